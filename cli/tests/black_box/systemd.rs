//! The shipped units, and what a process reports to systemd: READY=1 when it is ready, WATCHDOG=1 from then on, STOPPING=1 when it leaves.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its stage fails")]

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// A socket like systemd's, and the process that reports to it.
struct Unit {
    /// Open until the process has reported that it leaves.
    socket: Option<UnixDatagram>,
    process: Child,
    directory: tempfile::TempDir,
}

impl Unit {
    fn start(words: &[&str], files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let address = directory.path().join("notify");
        let socket = UnixDatagram::bind(&address).unwrap();
        socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_longshore"))
            .args(words)
            .current_dir(directory.path())
            .env("NOTIFY_SOCKET", &address)
            .env("WATCHDOG_USEC", "200000")
            .env_remove("WATCHDOG_PID")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { socket: Some(socket), process, directory }
    }

    /// The next report.
    fn reported(&self) -> String {
        let mut report = [0; 256];
        let length = self.socket.as_ref().unwrap().recv(&mut report).unwrap();
        String::from_utf8(report[..length].to_vec()).unwrap().trim_end().to_owned()
    }

    fn reports_its_life(mut self) {
        assert_eq!(self.reported(), "READY=1");
        for _ in 0..3 {
            assert_eq!(self.reported(), "WATCHDOG=1");
        }
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        while self.reported() != "STOPPING=1" {}
        // A process that goes on to report to a socket that nobody reads would wait for room in it.
        self.socket = None;
        assert!(self.process.wait().unwrap().success());
        assert!(self.directory.path().exists());
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // One that has ended is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_server_reports_that_it_is_ready_and_alive() {
    let jobs = "version: 1\njobs: { quick: { runtime: fake } }\n";
    let words = ["server", "--listen", "127.0.0.1:0", "--data", "data", "--jobs", "jobs.yaml"];
    Unit::start(&words, &[("jobs.yaml", jobs)]).reports_its_life();
}

/// Its server is not there: a worker without one is ready to run what it has.
#[test]
fn a_worker_reports_that_it_is_ready_and_alive_without_a_server() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let words = ["worker", "--server", &nobody, "--state-dir", "state", "--no-docker", "--allow-fake"];
    Unit::start(&words, &[]).reports_its_life();
}

#[test]
fn systemd_understands_the_shipped_units() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd");
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("there is no systemd-analyze here: the units are not verified");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for name in ["longshore-server.service", "longshore-worker.service"] {
        let text = std::fs::read_to_string(units.join(name)).unwrap();
        // The program need not be installed here.
        let text = text.replace("/usr/local/bin/longshore", env!("CARGO_BIN_EXE_longshore"));
        let path: PathBuf = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        let verified =
            Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&verified.stderr);
        let about_ours: Vec<&str> = said.lines().filter(|line| line.contains(name)).collect();
        assert!(verified.status.success() && about_ours.is_empty(), "{name}: {said}");
    }
}

/// The rest of /run is read-only to the worker.
#[test]
fn the_unit_makes_the_directory_of_the_health_file_that_the_help_names() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd/longshore-worker.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let directory = unit.lines().find_map(|line| line.strip_prefix("RuntimeDirectory=")).unwrap();
    let help = Command::new(env!("CARGO_BIN_EXE_longshore")).args(["health", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains(&format!("--file /run/{directory}/health ")), "{help}");
}

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
