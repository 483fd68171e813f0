//! A Docker engine for a round: the machine's own, or a private daemon in a network namespace of its own, which can be struck too.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::disk::unmount;
use crate::stage::{Dice, Launch, Process, eventually, mentioning};

/// Where containers run.
#[derive(Debug)]
pub struct Engine {
    host: Option<String>,
    daemon: Option<Daemon>,
}

#[derive(Debug)]
struct Daemon {
    home: TempDir,
    launch: Launch,
    process: Process,
}

impl Engine {
    /// The one that this machine has.
    #[must_use]
    pub const fn of_machine() -> Self {
        Self { host: None, daemon: None }
    }

    /// A daemon of our own, with everything that it keeps below `parent`. Needs root.
    pub async fn private(parent: &Path, live_restore: bool) -> Self {
        let home = tempfile::Builder::new().prefix("dockerd-").tempdir_in(parent).unwrap();
        let at = |name: &str| home.path().join(name).display().to_string();
        // The path of a socket must be short.
        let socket = format!("/run/longshore-chaos-{}.sock", std::process::id());
        let host = format!("unix://{socket}");
        // What the machine has set for its own daemon is not for ours.
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
        let mut launch = Launch::new(Path::new("dockerd"), arguments, home.path().join("dockerd.log"));
        launch.through = ["unshare", "--net"].map(str::to_owned).into();
        let process = launch.start();
        let mut engine = Self { host: Some(host), daemon: Some(Daemon { home, launch, process }) };
        engine.answers().await;
        engine
    }

    /// What the worker's `docker` must know to find it.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        self.host.iter().map(|host| ("DOCKER_HOST".to_owned(), host.clone())).collect()
    }

    /// Makes the image that holds nothing but the witness, unless it is there; its name.
    #[must_use]
    pub fn provide(&self, witness: &Path, scratch: &Path) -> String {
        let mut hasher = DefaultHasher::new();
        std::fs::read(witness).unwrap().hash(&mut hasher);
        let tag = format!("longshore-witness:{:016x}", hasher.finish());
        if self.docker(&["image", "inspect", "--", &tag]).status.success() {
            return tag;
        }
        let archive = scratch.join("witness.tar").display().to_string();
        let packed = Command::new("tar")
            .args([
                "--create",
                "--file",
                &archive,
                "--transform",
                "s/.*/longshore-witness/",
                "--absolute-names",
            ])
            .arg(witness)
            .status();
        assert!(packed.is_ok_and(|status| status.success()), "cannot pack the witness");
        let imported = self.docker(&["import", &archive, &tag]);
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
        tag
    }

    /// The containers of these definitions, in whatever state: a line for each.
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

    /// Ends and removes the containers of these definitions.
    pub fn remove(&self, definitions: &[String]) {
        // The daemon may be in the middle of making one.
        for _ in 0..2 {
            for line in self.containers(definitions) {
                if let Some(name) = line.split(' ').nth(1) {
                    self.docker(&["rm", "--force", "--volumes", "--", name]);
                }
            }
        }
    }

    /// Lets the daemon die or leave, and after a while starts it again. What was done, in words.
    ///
    /// # Panics
    /// It is the machine's own: that one is not ours to strike.
    pub async fn restart(&mut self, dice: &mut Dice) -> &'static str {
        let daemon = self.daemon.as_mut().expect("a private daemon");
        let how = if dice.below(2) == 0 {
            daemon.process.kill();
            "kill -9 of the Docker daemon"
        } else {
            daemon.process.signal(Signal::TERM);
            daemon.process.ended().await;
            "a stop of the Docker daemon"
        };
        tokio::time::sleep(Duration::from_millis(dice.below(4_000))).await;
        daemon.process = daemon.launch.start();
        self.answers().await;
        how
    }

    /// Lets the daemon stand still for so long.
    ///
    /// # Panics
    /// It is the machine's own: that one is not ours to strike.
    pub async fn pause(&mut self, time: Duration) -> String {
        let daemon = self.daemon.as_mut().expect("a private daemon");
        daemon.process.signal(Signal::STOP);
        tokio::time::sleep(time).await;
        daemon.process.signal(Signal::CONT);
        self.answers().await;
        format!("the Docker daemon was frozen for {time:?}")
    }

    /// Waits until it answers. A daemon that gives up while it starts, because its machine is busy, is started again.
    async fn answers(&mut self) {
        eventually("the engine answers", async || {
            if let Some(daemon) = &mut self.daemon
                && !daemon.process.is_alive()
            {
                daemon.process = daemon.launch.start();
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
        while self.process.is_alive() && began.elapsed() < LEAVES_WITHIN {
            std::thread::sleep(LOOK_EVERY);
        }
        // What outlives a daemon that was killed: its own children, and what it has mounted.
        for left in mentioning(self.home.path()) {
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

/// The witness as a program that needs nothing else, for this machine and for images without anything.
#[must_use]
pub fn build_witness(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/witness.rs");
    let program = directory.join("longshore-witness");
    let built = Command::new("rustc")
        .args(["--edition", "2024", "-C", "opt-level=1", "-C", "target-feature=+crt-static", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(built.is_ok_and(|status| status.success()), "cannot build the witness");
    program
}

const LEAVES_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);
