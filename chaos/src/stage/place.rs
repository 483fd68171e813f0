//! Where a test takes place: a directory, a port, and processes in them.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::port::Port;
use super::process::mentioning;
use super::{Api, Launch, Process};

/// A directory with a jobs file, and a port. After a failed test the directory is kept, and the logs are shown.
#[derive(Debug)]
pub struct Stage {
    program: PathBuf,
    home: TempDir,
    host: String,
    port: Port,
}

impl Stage {
    /// A new one for this program, in the system's directory for temporary files.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, jobs_file: &str) -> Self {
        Self::below(&std::env::temp_dir(), program, jobs_file)
    }

    /// As [`Stage::new`], with its own directory made in `parent`.
    #[must_use]
    pub fn below(parent: &Path, program: impl Into<PathBuf>, jobs_file: &str) -> Self {
        let home = tempfile::Builder::new().prefix("longshore-").tempdir_in(parent).unwrap();
        std::fs::write(home.path().join("jobs.yaml"), jobs_file).unwrap();
        Self { program: program.into(), home, host: "127.0.0.1".to_owned(), port: Port::free() }
    }

    /// Lets the server listen at another address of this machine.
    pub fn move_to(&mut self, host: String) {
        self.host = host;
    }

    /// Keeps its directory.
    pub fn keep(&mut self) {
        self.home.disable_cleanup(true);
    }

    /// A place in its directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Where this worker keeps its attempts. One in a container shares its state directory with its likes.
    #[must_use]
    pub fn attempts(&self, worker: &str) -> PathBuf {
        let places = ["attempts", "slot-0/attempts"].map(|place| self.path(worker).join(place));
        places.into_iter().find(|place| place.exists()).unwrap()
    }

    /// The port of its server.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where its server listens: `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port())
    }

    /// Asks its server.
    #[must_use]
    pub fn api(&self) -> Api {
        Api::new(&self.address())
    }

    /// Starts the server, on the same port and data each time, and waits until it serves.
    pub async fn server(&self, flags: &[&str]) -> Process {
        let mut server = self.launch_server(flags);
        let api = self.api();
        tokio::select! {
            () = api.ready() => {}
            status = server.ended() => panic!("the server ended ({status}):\n{}", server.said()),
        }
        server
    }

    /// Starts the server, and does not wait for anything.
    #[must_use]
    pub fn launch_server(&self, flags: &[&str]) -> Process {
        self.server_launch(flags).start()
    }

    /// How its server is started.
    #[must_use]
    pub fn server_launch(&self, flags: &[&str]) -> Launch {
        let mut arguments = vec!["server".to_owned(), "--listen".to_owned(), self.address()];
        arguments.extend(["--data".to_owned(), text(&self.path("data"))]);
        arguments.extend(["--jobs".to_owned(), text(&self.path("jobs.yaml"))]);
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Launch::new(&self.program, arguments, self.path("server.log"))
    }

    /// Starts a worker; the same name has the same state directory.
    #[must_use]
    pub fn worker(&self, name: &str, flags: &[&str]) -> Process {
        self.worker_launch(name, &self.address(), flags).start()
    }

    /// How a worker is started that calls its server at `address`.
    #[must_use]
    pub fn worker_launch(&self, name: &str, address: &str, flags: &[&str]) -> Launch {
        let mut arguments = vec!["worker".to_owned(), "--server".to_owned(), address.to_owned()];
        arguments.extend(["--name".to_owned(), name.to_owned()]);
        arguments.extend(["--state-dir".to_owned(), text(&self.path(name))]);
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Launch::new(&self.program, arguments, self.path(&format!("{name}.log")))
    }

    /// Runs another verb to its end: its exit code, and all that it said.
    #[must_use]
    pub fn verb(&self, arguments: &[&str]) -> (i32, String) {
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        Launch::new(&self.program, arguments, self.path("verb.log")).finish()
    }

    /// Ends every process of the stage: those that workers have left behind mention the directory in their command line, too.
    pub fn end_what_is_left(&self) {
        for pid in self.processes() {
            // It may just have ended.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }

    /// Every process that mentions the directory, in its command line or its environment, whoever started it.
    #[must_use]
    pub fn processes(&self) -> Vec<Pid> {
        mentioning(self.home.path())
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

const LINES_SHOWN: usize = 60;
