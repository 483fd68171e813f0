//! The Docker engine of a round: the one of this machine, or a private daemon in its own network namespace, which faults can kill.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::disk::unmount;
use testkit::{Process, ProcessSpec, SeededRng, processes_mentioning, wait_for};

/// An engine for the containers of a round.
#[derive(Debug)]
pub struct Engine {
    host: Option<String>,
    daemon: Option<Daemon>,
}

#[derive(Debug)]
struct Daemon {
    home: TempDir,
    spec: ProcessSpec,
    process: Process,
}

impl Engine {
    /// The engine of this machine.
    #[must_use]
    pub const fn host() -> Self {
        Self { host: None, daemon: None }
    }

    /// Starts a private daemon with its files below `parent`. Needs root.
    pub async fn private(parent: &Path, live_restore: bool) -> Self {
        let home = tempfile::Builder::new().prefix("dockerd-").tempdir_in(parent).unwrap();
        let at = |name: &str| home.path().join(name).display().to_string();
        // Socket paths are limited to about 100 bytes.
        let socket = format!("/run/longshore-chaos-{}.sock", std::process::id());
        let host = format!("unix://{socket}");
        // The machine's own daemon.json does not apply to this daemon.
        std::fs::write(home.path().join("daemon.json"), "{}").unwrap();
        let mut arguments = vec![
            format!("--config-file={}", at("daemon.json")),
            format!("--data-root={}", at("data")),
            format!("--exec-root={}", at("exec")),
            format!("--pidfile={}", at("pid")),
            format!("--host={host}"),
            "--bridge=none".to_owned(),
            "--iptables=false".to_owned(),
        ];
        arguments.extend(live_restore.then(|| "--live-restore".to_owned()));
        let mut spec = ProcessSpec::new(Path::new("dockerd"), arguments, home.path().join("dockerd.log"));
        spec.through = ["unshare", "--net"].map(str::to_owned).into();
        let process = spec.start();
        let mut engine = Self { host: Some(host), daemon: Some(Daemon { home, spec, process }) };
        engine.wait_until_ready().await;
        engine
    }

    /// The environment variables with which the worker's `docker` finds this engine.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        self.host.iter().map(|host| ("DOCKER_HOST".to_owned(), host.clone())).collect()
    }

    /// Imports the image with the test job program unless it exists; returns its name.
    #[must_use]
    pub fn import_job_image(&self, test_job: &Path, scratch: &Path) -> String {
        let mut hasher = DefaultHasher::new();
        std::fs::read(test_job).unwrap().hash(&mut hasher);
        let tag = format!("longshore-test-job:{:016x}", hasher.finish());
        if self.docker(&["image", "inspect", "--", &tag]).status.success() {
            return tag;
        }
        let archive = scratch.join("test-job.tar").display().to_string();
        let packed = Command::new("tar")
            .args([
                "--create",
                "--file",
                &archive,
                "--transform",
                "s/.*/longshore-test-job/",
                "--absolute-names",
            ])
            .arg(test_job)
            .status();
        assert!(packed.is_ok_and(|status| status.success()), "cannot pack the test job program");
        let imported = self.docker(&["import", &archive, &tag]);
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
        tag
    }

    /// Lists the containers of these definitions in any state, a line for each.
    #[must_use]
    pub fn containers(&self, definitions: &[String]) -> Vec<String> {
        let mut found = Vec::new();
        for definition in definitions {
            let filter = format!("label=longshore.definition={definition}");
            let listed =
                self.docker(&["ps", "--all", "--filter", &filter, "--format", "{{.Names}} {{.Status}}"]);
            found.extend(String::from_utf8_lossy(&listed.stdout).lines().map(|it| format!("container {it}")));
        }
        found
    }

    /// Kills and removes the containers of these definitions.
    pub fn remove(&self, definitions: &[String]) {
        // The daemon may be creating one meanwhile, so look twice.
        for _ in 0..2 {
            for line in self.containers(definitions) {
                if let Some(name) = line.split(' ').nth(1) {
                    self.docker(&["rm", "--force", "--volumes", "--", name]);
                }
            }
        }
    }

    /// Kills or stops the private daemon, starts it again after a while, and returns a description.
    ///
    /// # Panics
    /// This is the engine of the machine.
    pub async fn restart(&mut self, rng: &mut SeededRng) -> &'static str {
        let daemon = self.daemon.as_mut().expect("a private daemon");
        let how = if rng.below(2) == 0 {
            daemon.process.kill();
            "kill -9 of the Docker daemon"
        } else {
            daemon.process.signal(Signal::TERM);
            daemon.process.wait_for_exit().await;
            "a stop of the Docker daemon"
        };
        tokio::time::sleep(Duration::from_millis(rng.below(4_000))).await;
        daemon.process = daemon.spec.start();
        self.wait_until_ready().await;
        how
    }

    /// Stops the private daemon with SIGSTOP for this long and returns a description.
    ///
    /// # Panics
    /// This is the engine of the machine.
    pub async fn pause(&mut self, time: Duration) -> String {
        let daemon = self.daemon.as_mut().expect("a private daemon");
        daemon.process.signal(Signal::STOP);
        tokio::time::sleep(time).await;
        daemon.process.signal(Signal::CONT);
        self.wait_until_ready().await;
        format!("the Docker daemon was frozen for {time:?}")
    }

    /// Waits until the engine answers. A daemon that fails to start is started again.
    async fn wait_until_ready(&mut self) {
        wait_for("the engine answers", async || {
            if let Some(daemon) = &mut self.daemon
                && !daemon.process.is_running()
            {
                daemon.process = daemon.spec.start();
            }
            self.docker(&["version"]).status.success().then_some(())
        })
        .await;
    }

    fn docker(&self, words: &[&str]) -> Output {
        Command::new("docker").envs(self.environment()).args(words).output().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.process.signal(Signal::TERM);
        let began = Instant::now();
        while self.process.is_running() && began.elapsed() < LEAVES_WITHIN {
            std::thread::sleep(POLL_INTERVAL);
        }
        // A killed daemon leaves child processes and mounts behind.
        for left in processes_mentioning(self.home.path()) {
            let _ = rustix::process::kill_process(left, Signal::KILL);
        }
        let home = self.home.path().display().to_string();
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        for mounted in mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)) {
            if mounted.starts_with(&home) {
                unmount(Path::new(mounted));
            }
        }
    }
}

/// Compiles the test job program as a static executable, for this machine and for an image that holds nothing else.
#[must_use]
pub fn build_test_job(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/test_job.rs");
    let program = directory.join("longshore-test-job");
    let built = Command::new("rustc")
        .args(["--edition", "2024", "-C", "opt-level=1", "-C", "target-feature=+crt-static", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(built.is_ok_and(|status| status.success()), "cannot build the test job program");
    program
}

const LEAVES_WITHIN: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
