//! Where a test takes place: a directory, a port, and processes in them.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::{Api, Process};

/// A directory with a jobs file, and a port. After a failed test the directory is kept, and the logs are shown.
#[derive(Debug)]
pub(crate) struct Stage {
    home: TempDir,
    port: u16,
}

impl Stage {
    pub(crate) fn new(jobs_file: &str) -> Self {
        let home = tempfile::Builder::new().prefix("longshore-").tempdir().unwrap();
        std::fs::write(home.path().join("jobs.yaml"), jobs_file).unwrap();
        Self { home, port: free_port() }
    }

    /// A place in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn api(&self) -> Api {
        Api::new(self.port)
    }

    /// Starts the server, on the same port and data each time, and waits until it serves.
    pub(crate) async fn server(&self, flags: &[&str]) -> Process {
        let mut server = self.launch_server(flags);
        let api = self.api();
        tokio::select! {
            () = api.ready() => {}
            status = server.ended() => panic!("the server ended ({status}):\n{}", server.said()),
        }
        server
    }

    /// Starts the server, and does not wait for anything.
    pub(crate) fn launch_server(&self, flags: &[&str]) -> Process {
        let mut arguments =
            vec!["server".to_owned(), "--listen".to_owned(), format!("127.0.0.1:{}", self.port)];
        arguments.extend(["--data".to_owned(), text(&self.path("data"))]);
        arguments.extend(["--jobs".to_owned(), text(&self.path("jobs.yaml"))]);
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Process::start(&arguments, &self.path("server.log"))
    }

    /// Starts a worker; the same name has the same state directory.
    pub(crate) fn worker(&self, name: &str, flags: &[&str]) -> Process {
        let mut arguments =
            vec!["worker".to_owned(), "--server".to_owned(), format!("127.0.0.1:{}", self.port)];
        arguments.extend(["--name".to_owned(), name.to_owned()]);
        arguments.extend(["--state-dir".to_owned(), text(&self.path(name))]);
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Process::start(&arguments, &self.path(&format!("{name}.log")))
    }

    /// Processes that workers have left behind mention the directory in their command line.
    fn end_what_is_left(&self) {
        let home = text(self.home.path());
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let is_ours = String::from_utf8_lossy(&line).contains(&home);
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            if let Some(pid) = pid.filter(|_| is_ours) {
                // It may just have ended.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.end_what_is_left();
        if std::thread::panicking() {
            self.home.disable_cleanup(true);
            eprintln!("everything is kept in {}", self.home.path().display());
            for entry in std::fs::read_dir(self.home.path()).into_iter().flatten().flatten() {
                show_end(&entry.path());
            }
        }
    }
}

fn show_end(log: &Path) {
    if log.extension().is_some_and(|it| it == "log") {
        let all = std::fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> = all.lines().collect();
        eprintln!("--- {}\n{}", log.display(), lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n"));
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A port that stays ours while its server is down: not one that the system gives to outgoing connections, else a worker that calls
/// may be given the very port that it calls, and talk to itself.
fn free_port() -> u16 {
    let first = (std::process::id() % 200) as u16 * 100;
    (0..PORTS)
        .map(|_| PORTS_FROM + (first + NEXT_PORT.fetch_add(1, Ordering::Relaxed)) % PORTS)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

static NEXT_PORT: AtomicU16 = AtomicU16::new(0);
const PORTS_FROM: u16 = 11_000;
/// Linux gives out ports from 32768 on.
const PORTS: u16 = 20_000;
const LINES_SHOWN: usize = 60;
