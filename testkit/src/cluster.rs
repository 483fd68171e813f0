//! A test cluster: one directory and one port for a server and its workers.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::port::ReservedPort;
use super::process::{log_tail, processes_mentioning};
use super::{Api, Process, ProcessSpec};

/// A directory with a jobs file, data, worker state and logs, and a reserved port for the server.
///
/// Drop kills all processes. After a failed test the directory is kept and the ends of the logs are printed.
#[derive(Debug)]
pub struct Cluster {
    program: PathBuf,
    home: TempDir,
    host: String,
    port: ReservedPort,
}

impl Cluster {
    /// Creates a cluster for this program in the system's temporary directory.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, jobs_file: &str) -> Self {
        Self::new_in(&std::env::temp_dir(), program, jobs_file)
    }

    /// As [`Cluster::new`], with its directory made in `parent`.
    #[must_use]
    pub fn new_in(parent: &Path, program: impl Into<PathBuf>, jobs_file: &str) -> Self {
        let home = tempfile::Builder::new().prefix("longshore-").tempdir_in(parent).unwrap();
        std::fs::write(home.path().join("jobs.yaml"), jobs_file).unwrap();
        Self { program: program.into(), home, host: "127.0.0.1".to_owned(), port: ReservedPort::new() }
    }

    /// Makes the server listen on another address of this machine.
    pub fn set_host(&mut self, host: String) {
        self.host = host;
    }

    /// Keeps the directory after the end.
    pub fn keep_directory(&mut self) {
        self.home.disable_cleanup(true);
    }

    /// The path of a file in the cluster's directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The attempts directory of a worker. A worker in a container keeps it below a `slot-0` directory.
    #[must_use]
    pub fn attempts_dir(&self, worker: &str) -> PathBuf {
        let candidates = ["attempts", "slot-0/attempts"].map(|below| self.path(worker).join(below));
        candidates.into_iter().find(|path| path.exists()).unwrap()
    }

    /// The port of the server.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// The address that the server listens on, `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port())
    }

    /// A client of the server.
    #[must_use]
    pub fn api(&self) -> Api {
        Api::new(&self.address())
    }

    /// Starts the server and waits until it is ready. Each start uses the same port and data directory.
    pub async fn start_server(&self, flags: &[&str]) -> Process {
        let mut server = self.spawn_server(flags);
        let api = self.api();
        tokio::select! {
            () = api.wait_until_ready() => {}
            status = server.wait_for_exit() => panic!("the server ended ({status}):\n{}", server.log()),
        }
        server
    }

    /// Starts the server without waiting until it is ready.
    #[must_use]
    pub fn spawn_server(&self, flags: &[&str]) -> Process {
        self.server_spec(flags).start()
    }

    /// The command that starts the server.
    #[must_use]
    pub fn server_spec(&self, flags: &[&str]) -> ProcessSpec {
        let mut arguments = vec!["server".to_owned(), "--listen".to_owned(), self.address()];
        arguments.extend(["--data".to_owned(), text(&self.path("data"))]);
        arguments.extend(["--jobs".to_owned(), text(&self.path("jobs.yaml"))]);
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        ProcessSpec::new(&self.program, arguments, self.path("server.log"))
    }

    /// Starts a worker. Its state directory is named after it, so a second start of the same name continues with its state.
    #[must_use]
    pub fn start_worker(&self, name: &str, flags: &[&str]) -> Process {
        self.worker_spec(name, &self.address(), flags).start()
    }

    /// The command that starts a worker which connects to `address`.
    #[must_use]
    pub fn worker_spec(&self, name: &str, address: &str, flags: &[&str]) -> ProcessSpec {
        let mut arguments = vec!["worker".to_owned(), "--server".to_owned(), address.to_owned()];
        arguments.extend(["--name".to_owned(), name.to_owned()]);
        arguments.extend(["--state-dir".to_owned(), text(&self.path(name))]);
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        ProcessSpec::new(&self.program, arguments, self.path(&format!("{name}.log")))
    }

    /// Runs another verb of the program to its end and returns its exit code and output.
    #[must_use]
    pub fn run_cli(&self, arguments: &[&str]) -> (i32, String) {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        ProcessSpec::new(&self.program, arguments, self.path("verb.log")).run()
    }

    /// Kills every process that mentions the cluster's directory. That includes job processes that workers have left behind.
    pub fn kill_all(&self) {
        for pid in self.processes() {
            // The process may have ended meanwhile.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }

    /// Lists every process that mentions the directory in its command line or environment.
    #[must_use]
    pub fn processes(&self) -> Vec<Pid> {
        processes_mentioning(self.home.path())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill_all();
        if std::thread::panicking() {
            self.home.disable_cleanup(true);
            eprintln!("the cluster's directory is kept: {}", self.home.path().display());
            for entry in std::fs::read_dir(self.home.path()).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.extension().is_some_and(|extension| extension == "log") {
                    eprintln!("--- {}\n{}", path.display(), log_tail(&path, LINES_SHOWN));
                }
            }
        }
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

const LINES_SHOWN: usize = 60;
