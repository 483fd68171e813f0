//! The environment of a measurement: a directory on a real disk, and real processes of the measured program in it.

use std::ffi::OsString;
use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::process::{Child, Command};

use crate::load::{Connection, Endpoint};
use crate::probe;
use crate::record::log_progress;

/// The directory and program that all measurements share.
#[derive(Debug)]
pub(crate) struct BenchEnv {
    directory: PathBuf,
    program: PathBuf,
}

impl BenchEnv {
    /// Finds the program, and a directory that is on a disk.
    pub(crate) fn prepare(directory: &Path, program: Option<&Path>) -> anyhow::Result<Self> {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let directory = directory.canonicalize()?;
        let kind = rustix::fs::statfs(&directory)?.f_type;
        if IN_MEMORY.contains(&kind) {
            bail!(
                "{} is in memory, so nothing there is ever synced; choose a disk with --dir",
                directory.display()
            );
        }
        let program = match program {
            Some(given) => given.to_owned(),
            None => build_or_find_program()?,
        };
        log_progress(&format!("measuring {} in {}", program.display(), directory.display()));
        Ok(Self { directory, program })
    }

    /// A new directory for one run, with this jobs file.
    pub(crate) fn run_dir(&self, jobs_file: &str) -> anyhow::Result<RunDir> {
        let home = tempfile::Builder::new().prefix("run-").tempdir_in(&self.directory)?;
        std::fs::write(home.path().join("jobs.yaml"), jobs_file)?;
        Ok(RunDir { program: self.program.clone(), home, access: Access::Open })
    }
}

/// Protection of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Anybody on this machine may do anything.
    Open,
    /// Clients and workers show tokens.
    Tokens,
    /// They show tokens, over TLS.
    Tls,
}

impl Access {
    /// Its name in the results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Tokens => "tokens",
            Self::Tls => "tokens and TLS",
        }
    }
}

/// A data directory, state directories and a jobs file; removed in the end.
#[derive(Debug)]
pub(crate) struct RunDir {
    program: PathBuf,
    home: tempfile::TempDir,
    access: Access,
}

impl RunDir {
    /// The same directory, for a server with this protection.
    pub(crate) fn with_access(self, access: Access) -> anyhow::Result<Self> {
        if access != Access::Open {
            for (file, token) in [(API_TOKEN_FILE, API_TOKEN), (WORKER_TOKEN_FILE, WORKER_TOKEN)] {
                let path = self.home.path().join(file);
                std::fs::write(&path, token)?;
                std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            }
        }
        if access == Access::Tls {
            let mut command = std::process::Command::new(&self.program);
            let made = command
                .args(["cert", "--host", "127.0.0.1", "--dir"])
                .arg(self.home.path().join("tls"))
                .output()?;
            anyhow::ensure!(
                made.status.success(),
                "no certificate: {}",
                String::from_utf8_lossy(&made.stderr)
            );
        }
        Ok(Self { access, ..self })
    }

    fn endpoint(&self, address: SocketAddr) -> anyhow::Result<Endpoint> {
        let token = (self.access != Access::Open).then(|| API_TOKEN.to_owned());
        let tls = if self.access == Access::Tls {
            Some(trust(&self.home.path().join("tls/ca.pem"))?)
        } else {
            None
        };
        Ok(Endpoint { address, token, tls })
    }

    fn server_flags(&self) -> Vec<OsString> {
        let mut flags = Vec::new();
        let mut add =
            |flag: &str, file: &str| flags.extend([flag.into(), self.home.path().join(file).into()]);
        if self.access != Access::Open {
            add("--api-token-file", API_TOKEN_FILE);
            add("--worker-token-file", WORKER_TOKEN_FILE);
        }
        if self.access == Access::Tls {
            add("--tls-cert", "tls/server.pem");
            add("--tls-key", "tls/server-key.pem");
        }
        flags
    }

    fn worker_flags(&self, address: SocketAddr) -> Vec<OsString> {
        let scheme = if self.access == Access::Tls { "https" } else { "http" };
        let mut flags = vec!["--server".into(), format!("{scheme}://{address}").into()];
        let mut add =
            |flag: &str, file: &str| flags.extend([flag.into(), self.home.path().join(file).into()]);
        if self.access != Access::Open {
            add("--token-file", WORKER_TOKEN_FILE);
        }
        if self.access == Access::Tls {
            add("--ca-file", "tls/ca.pem");
        }
        flags
    }

    /// The server's data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// Starts a server, and waits until it is ready; how long that took.
    pub(crate) async fn server(&self) -> anyhow::Result<(Server, Duration)> {
        self.server_at(free_address()?).await
    }

    /// Likewise, at an address that clients know already.
    pub(crate) async fn server_at(&self, address: SocketAddr) -> anyhow::Result<(Server, Duration)> {
        let mut command = self.longshore("server", "server.log")?;
        command.arg("--listen").arg(address.to_string()).arg("--data").arg(self.data());
        command.arg("--jobs").arg(self.home.path().join("jobs.yaml"));
        // Measurements may submit more jobs than the default limit; the machine is chosen for it.
        command.args(["--max-jobs", "100000000"]).args(self.server_flags());
        let endpoint = self.endpoint(address)?;
        let began = Instant::now();
        let mut process = Process::start(command)?;
        while !is_ready(endpoint.clone(), WAIT_TIMEOUT.saturating_sub(began.elapsed())).await {
            if let Some(status) = process.child.try_wait()? {
                bail!("the server ended ({status}):\n{}", self.tail("server.log"));
            }
            if began.elapsed() > WAIT_TIMEOUT {
                bail!("the server is not ready after {WAIT_TIMEOUT:?}:\n{}", self.tail("server.log"));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let took = began.elapsed();
        Ok((Server { process, address, endpoint }, took))
    }

    /// Starts workers, and waits until the server lists all of them as ready.
    pub(crate) async fn workers(&self, server: &Server, pool: &WorkerPool) -> anyhow::Result<Vec<Process>> {
        let mut workers = Vec::new();
        for n in 1..=pool.workers {
            let mut command = self.longshore("worker", &format!("worker-{n}.log"))?;
            command.args(self.worker_flags(server.address)).arg("--name").arg(format!("bench-{n}"));
            command.arg("--label").arg(format!("bench=w{n}"));
            command.arg("--state-dir").arg(self.home.path().join(format!("worker-{n}"))).args(pool.flags());
            workers.push(Process::start(command)?);
        }
        let began = Instant::now();
        let mut connection = server.connect().await?;
        loop {
            let listed = connection.read("/api/workers").await?;
            let ready = listed
                .as_array()
                .map_or(0, |all| all.iter().filter(|worker| worker["state"] == "ready").count());
            if ready == pool.workers as usize {
                return Ok(workers);
            }
            if began.elapsed() > WAIT_TIMEOUT {
                let logs = (1..=pool.workers).map(|n| self.tail(&format!("worker-{n}.log")));
                let logs = logs.collect::<Vec<_>>().join("\n");
                bail!("only {ready} of {} workers are ready:\n{logs}", pool.workers);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn longshore(&self, verb: &str, log: &str) -> anyhow::Result<Command> {
        let log = std::fs::File::options().create(true).append(true).open(self.home.path().join(log))?;
        let mut command = Command::new(&self.program);
        command.arg(verb).env("LONGSHORE_LOG", "warn").stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        Ok(command)
    }

    fn tail(&self, log: &str) -> String {
        let text = std::fs::read_to_string(self.home.path().join(log)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

/// The jobs that a worker takes at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerCapacity {
    /// Jobs that run at the same time.
    pub(crate) slots: u32,
    /// Jobs that wait on the worker for a slot.
    pub(crate) backlog: u32,
}

/// How many workers, and how they are set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerPool {
    /// How many.
    pub(crate) workers: u32,
    /// Slots and backlog of each; absent: the program's own defaults.
    pub(crate) capacity: Option<WorkerCapacity>,
    /// A flag that lets them run something unusual.
    pub(crate) allow: Option<&'static str>,
}

impl WorkerPool {
    fn flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        if let Some(WorkerCapacity { slots, backlog }) = self.capacity {
            flags.extend([
                "--slots".to_owned(),
                slots.to_string(),
                "--backlog".to_owned(),
                backlog.to_string(),
            ]);
        }
        flags.extend(self.allow.map(str::to_owned));
        flags
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    /// Its process.
    pub(crate) process: Process,
    /// The address that the server listens on.
    pub(crate) address: SocketAddr,
    /// Its address, with the API token and the TLS settings for clients.
    pub(crate) endpoint: Endpoint,
}

impl Server {
    /// A new connection.
    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(self.endpoint.clone()).await
    }
}

/// One of the measured processes; killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: u32,
}

impl Process {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        let child = command.spawn().context("cannot start the program")?;
        let pid = child.id().context("the program was waited for already")?;
        Ok(Self { child, pid })
    }

    /// Processor time used so far, in microseconds.
    pub(crate) fn cpu_us(&self) -> anyhow::Result<f64> {
        probe::cpu_us(self.pid)
    }

    /// Its anonymous resident memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> anyhow::Result<u64> {
        probe::memory_bytes(self.pid)
    }

    /// The most memory that it has had, files included, in bytes.
    pub(crate) fn peak_memory_bytes(&self) -> anyhow::Result<u64> {
        probe::peak_memory_bytes(self.pid)
    }

    /// Sends SIGTERM, and waits until the process has exited.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        match tokio::time::timeout(WAIT_TIMEOUT, self.child.wait()).await {
            Ok(ended) => {
                anyhow::ensure!(ended?.success(), "process {} did not end well after SIGTERM", self.pid)
            }
            Err(_) => bail!("process {} did not exit after SIGTERM", self.pid),
        }
        Ok(())
    }

    /// Ends it at once, as a crash would.
    pub(crate) async fn crash(mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        self.child.wait().await?;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid =
            i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("the process id is out of range")?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }
}

/// The settings of a TLS client that trusts the authority in this file only.
fn trust(authority: &Path) -> anyhow::Result<Arc<rustls::ClientConfig>> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority)? {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// The server answers within this time that it is ready.
async fn is_ready(endpoint: Endpoint, within: Duration) -> bool {
    let answer = async {
        let mut connection = Connection::open(endpoint).await?;
        connection.ask(hyper::Method::GET, "/readyz", crate::load::JSON, bytes::Bytes::new()).await
    };
    let answer = tokio::time::timeout(within, answer).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|(status, _)| status.is_success()))
}

/// A port that was free a moment ago.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Builds the release program. Where there is no cargo, takes the one next to this executable. A debug build of the benchmark is an error: it
/// would measure a debug build of the program.
fn build_or_find_program() -> anyhow::Result<PathBuf> {
    if cfg!(debug_assertions) {
        bail!("this is a debug build; run the benchmark with --release, or name a program with --longshore");
    }
    let program = std::env::current_exe()?.with_file_name("longshore");
    log_progress("building the program (cargo build --release)");
    let built = std::process::Command::new("cargo")
        .args(["build", "--release", "--quiet", "--package", "longshore-cli"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    let is_built = match built {
        Ok(status) => status.success(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    if !is_built || !program.exists() {
        bail!("cannot build {}; name a program with --longshore", program.display());
    }
    Ok(program)
}

const API_TOKEN_FILE: &str = "api.token";
const WORKER_TOKEN_FILE: &str = "worker.token";
/// The tokens of clients and of workers of a measured server, which lives for minutes on loopback.
const API_TOKEN: &str = "bench-token-of-a-measured-server-0123456789";
const WORKER_TOKEN: &str = "bench-token-of-its-workers-9876543210-abcdef";

/// tmpfs and ramfs, from linux/magic.h.
const IN_MEMORY: [rustix::fs::FsWord; 2] = [0x0102_1994, 0x8584_58f6];
/// A start with millions of jobs takes seconds; more than a minute is a fault.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
