//! Calls of the `docker` program: environment, time limits, and the messages that mean that the engine is unreachable.
//!
//! Auxiliary calls have a time limit and are killed at its end, because a stuck engine makes every call hang. The call that runs a job has
//! none. It is killed only as the last step of a stop, and outlives this process.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::error_chain::error_chain;
use crate::runtime::argv::CommandLine;

/// The program and its environment.
#[derive(Debug)]
pub(super) struct Cli {
    program: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

/// The result of an auxiliary call.
#[derive(Debug)]
pub(super) struct CallOutput {
    pub(super) ok: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// The failure of an auxiliary call.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The program cannot be run: wrong path, not installed, or this machine is short of something.
    #[error("cannot run `{}`", program.display())]
    Program {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The engine is unreachable or denies access; the program's own message.
    #[error("{0}")]
    Unreachable(String),
    /// The call did not end within the time limit.
    #[error("no answer within {} s", .0.as_secs())]
    Slow(Duration),
}

/// The CLI of a job was not started.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    /// The arguments cannot be passed: they are too long, or one holds a NUL byte.
    #[error("its command line cannot be passed on")]
    CommandLine(#[source] io::Error),
    /// Any other failure, which is not the definition's.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl CallError {
    /// A message for operators: the problem, and the remedy where one is known.
    pub(super) fn with_remedy(&self) -> String {
        let why = error_chain(self);
        let remedy = match self {
            Self::Program { source, .. } => program_remedy(source),
            Self::Unreachable(_) => {
                UNREACHABLE.iter().find(|(phrase, _)| why.contains(phrase)).map(|(_, remedy)| *remedy)
            }
            Self::Slow(_) => Some("the engine hangs: look into its log (journalctl -u docker)"),
        };
        let remedy = remedy.map_or_else(String::new, |remedy| format!("; {remedy}"));
        format!("docker_unavailable: {why}{remedy}")
    }
}

/// The remedy for a program that could not be started.
fn program_remedy(source: &io::Error) -> Option<&'static str> {
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
            Some("install it, name it with --docker, or start with --no-docker")
        }
        io::ErrorKind::OutOfMemory => Some("this machine has too little memory for another process"),
        _ => match Errno::from_io_error(source)? {
            Errno::MFILE | Errno::NFILE => {
                Some("raise the worker's limit of open files (LimitNOFILE in its unit, ulimit -n)")
            }
            Errno::AGAIN => Some("raise the worker's limit of processes (TasksMax in its unit, ulimit -u)"),
            _ => None,
        },
    }
}

impl Cli {
    /// Keeps only variables of our environment that concern the program.
    pub(super) fn new(program: &Path) -> Self {
        let concerns = |name: &OsString| {
            let name = name.to_string_lossy();
            name.starts_with("DOCKER_") || PASSED_ON.contains(&&*name)
        };
        Self {
            program: program.into(),
            environment: std::env::vars_os().filter(|(name, _)| concerns(name)).collect(),
        }
    }

    /// Runs a short call, and kills it at its time limit.
    pub(super) async fn call<S: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        limit: Duration,
    ) -> Result<CallOutput, CallError> {
        let child = self.spawn(args)?;
        self.answer(child, std::future::ready(()), limit).await
    }

    /// Runs a long call with the same rules. `config` is the program's configuration, if it is not that of this user.
    /// `on_line` gets each line of its standard output, which is not kept.
    pub(super) async fn follow<S: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        config: Option<&Path>,
        limit: Duration,
        on_line: impl FnMut(&str) + Send,
    ) -> Result<CallOutput, CallError> {
        let mut command = self.command();
        if let Some(directory) = config {
            // Logins in the variable would go before those of the configuration.
            command.env("DOCKER_CONFIG", directory).env_remove("DOCKER_AUTH_CONFIG");
        }
        let mut child = self.spawn_piped(command, args, Stdio::null())?;
        let stdout = child.stdout.take();
        self.answer(child, read_lines(stdout, on_line), limit).await
    }

    /// Waits for the end of a call with its output, and kills it at its time limit.
    pub(super) async fn answer(
        &self,
        child: Child,
        meanwhile: impl Future<Output = ()> + Send,
        limit: Duration,
    ) -> Result<CallOutput, CallError> {
        let output = async { tokio::join!(child.wait_with_output(), meanwhile).0 };
        let output = tokio::time::timeout(limit, output).await;
        let output = output.map_err(|_| CallError::Slow(limit))?.map_err(|source| self.failed(source))?;
        let answer = CallOutput {
            ok: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        match unreachable_line(&answer.stderr) {
            Some(why) if !answer.ok => Err(CallError::Unreachable(why)),
            _ => Ok(answer),
        }
    }

    /// Starts a call with piped output. It is killed when the value is dropped.
    pub(super) fn spawn<S: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Child, CallError> {
        self.spawn_piped(self.command(), args, Stdio::null())
    }

    /// Like [`Cli::spawn`], with an input that the caller writes to.
    pub(super) fn spawn_with_input<S: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Child, CallError> {
        self.spawn_piped(self.command(), args, Stdio::piped())
    }

    fn spawn_piped<S: AsRef<std::ffi::OsStr>>(
        &self,
        mut command: Command,
        args: impl IntoIterator<Item = S>,
        input: Stdio,
    ) -> Result<Child, CallError> {
        command.args(args).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.spawn().map_err(|source| self.failed(source))
    }

    /// Starts a job. It outlives the value and this process: its outputs are files, it has its own process group, and its environment is
    /// complete before it starts.
    pub(super) fn run(&self, line: &CommandLine, stdout: File, stderr: File) -> Result<Child, RunError> {
        let environment = in_memory(&line.environment).map_err(|source| self.failed(source))?;
        let mut command = self.command();
        command.args(&line.args).stdin(environment).stdout(stdout).stderr(stderr);
        command.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => RunError::CommandLine(source),
            _ => self.failed(source).into(),
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value))).process_group(0);
        command
    }

    fn failed(&self, source: io::Error) -> CallError {
        CallError::Program { program: self.program.clone(), source }
    }
}

impl CallOutput {
    /// The standard error as one line.
    pub(super) fn error_line(&self) -> String {
        one_line(&self.stderr)
    }

    /// The last error as one line: some programs print progress before it.
    pub(super) fn error(&self) -> String {
        let at = self.stderr.rfind("\nError").unwrap_or_default();
        one_line(&self.stderr[at..])
    }

    /// `true` if it says that there is no container of this name.
    pub(super) fn says_absent(&self, name: &str) -> bool {
        self.stderr.lines().any(|line| {
            let says = line.to_lowercase();
            (says.contains("no such container") || says.contains("no such object"))
                && line.split_whitespace().next_back().is_some_and(|it| it.trim_matches('"') == name)
        })
    }
}

/// The line that says that the engine is unreachable, if there is one.
pub(super) fn unreachable_line(stderr: &str) -> Option<String> {
    let said = |it: &&str| UNREACHABLE.iter().any(|(phrase, _)| it.contains(phrase));
    stderr.lines().find(said).map(one_line)
}

/// `true` if Docker refused to make a container because its name is taken.
pub(super) fn is_name_conflict(stderr: &str) -> bool {
    stderr.contains("Conflict. The container name") || stderr.contains("is already in use by container")
}

/// Docker's message without its help, its prefix and its line breaks.
pub(super) fn one_line(stderr: &str) -> String {
    let lines = stderr.lines().map(str::trim).filter(|it| !it.is_empty());
    let useful = lines.filter(|it| !it.starts_with("See 'docker") && !it.starts_with("Run 'docker"));
    let text = useful.collect::<Vec<_>>().join(" ");
    let text = text.trim_start_matches("docker: ").trim_start_matches("Error response from daemon: ");
    text.chars().filter(|it| !it.is_control()).take(MESSAGE_CHARS_MAX).collect()
}

/// Reads to the end, so that a full pipe never blocks the program.
async fn read_lines(stdout: Option<ChildStdout>, mut on_line: impl FnMut(&str) + Send) {
    let Some(stdout) = stdout else { return };
    let (mut stdout, mut line) = (BufReader::new(stdout), Vec::new());
    // A longer line is passed on in pieces.
    while let Ok(1..) = (&mut stdout).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
        on_line(String::from_utf8_lossy(&line).trim_end_matches('\n'));
        line.clear();
    }
}

/// Docker's lines have less than 200 bytes.
const LINE_BYTES_MAX: u64 = 4 << 10;

/// A file in memory, complete before it is read. With a pipe, a worker that dies half-way would start a job with half of its environment.
fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("environment", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Passed on beside `DOCKER_*`. A job's environment must never steer the program.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK"];

/// Docker's messages about an unreachable engine, with remedies. Specific messages stand first.
const UNREACHABLE: [(&str, &str); 6] = [
    (
        "permission denied while trying to connect",
        "let this worker's user use the socket (usermod -aG docker USER), which makes it root on this machine",
    ),
    ("client version", "install a docker command and an engine of versions that know each other"),
    ("unable to resolve docker endpoint", "correct DOCKER_HOST or DOCKER_CONTEXT"),
    ("Cannot connect to the Docker daemon", START),
    ("failed to connect to the docker API", START),
    ("error during connect", START),
];

const START: &str = "start the engine (systemctl start docker), or correct DOCKER_HOST";

const MESSAGE_CHARS_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_become_one_line() {
        let stderr =
            "docker: Error response from daemon: No such image: nosuch:1.\nSee 'docker run --help'.\n";
        assert_eq!(one_line(stderr), "No such image: nosuch:1.");
        let down = "docker: Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?\n\nRun 'docker run --help' for more information\n";
        assert!(unreachable_line(down).is_some_and(|it| it.starts_with("Cannot connect")));
        assert_eq!(unreachable_line("Error: No such container: x"), None);
    }

    #[test]
    fn messages_about_an_unreachable_docker_name_the_remedy() {
        let away = |said: &str| CallError::Unreachable(said.to_owned()).with_remedy();
        let down = away("Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?");
        assert!(down.starts_with("docker_unavailable: Cannot connect") && down.ends_with(START), "{down}");
        let denied =
            away("permission denied while trying to connect to the Docker daemon socket at unix:///x");
        assert!(denied.contains("; let this worker's user use the socket"), "{denied}");
        assert_eq!(
            away("no space left"),
            "docker_unavailable: no space left",
            "no advice where none is known"
        );
        let missing =
            CallError::Program { program: "x".into(), source: io::ErrorKind::NotFound.into() }.with_remedy();
        assert!(missing.contains("cannot run `x`: ") && missing.contains("--docker"), "{missing}");
        for (code, remedy) in
            [(Errno::MFILE, "LimitNOFILE"), (Errno::AGAIN, "TasksMax"), (Errno::NOMEM, "memory")]
        {
            let source = io::Error::from_raw_os_error(code.raw_os_error());
            let short = CallError::Program { program: "x".into(), source }.with_remedy();
            assert!(short.contains(remedy) && !short.contains("--docker"), "{short}");
        }
        assert!(
            CallError::Slow(Duration::from_secs(5)).with_remedy().contains("within 5 s; the engine hangs")
        );
    }

    #[tokio::test]
    async fn a_hanging_call_is_killed_and_an_unstartable_one_fails() {
        let hangs = Cli::new(Path::new("/bin/sh")).call(["-c", "sleep 60"], Duration::from_millis(50)).await;
        assert!(matches!(hangs, Err(CallError::Slow(_))), "{hangs:?}");
        let missing =
            Cli::new(Path::new("/nonexistent/docker")).call(["version"], Duration::from_secs(5)).await;
        assert!(matches!(missing, Err(CallError::Program { .. })), "{missing:?}");
    }

    #[tokio::test]
    async fn a_long_call_passes_on_each_line() {
        let mut on_line = Vec::new();
        let script = r"printf 'one\n\377two\nthree'; echo no >&2; exit 3";
        let answer = Cli::new(Path::new("/bin/sh"))
            .follow(["-c", script], None, Duration::from_secs(5), |line| on_line.push(line.to_owned()))
            .await
            .expect("an answer");
        assert_eq!(on_line, ["one", "\u{fffd}two", "three"]);
        assert_eq!((answer.ok, answer.stdout.as_str(), answer.error_line().as_str()), (false, "", "no"));
    }

    #[tokio::test]
    async fn a_very_long_line_is_passed_on_in_pieces() {
        let (mut longest, mut bytes) = (0, 0);
        let on_line = |piece: &str| (longest, bytes) = (longest.max(piece.len()), bytes + piece.len());
        let script = "head -c 1000000 /dev/zero; echo; echo end";
        let answer = Cli::new(Path::new("/bin/sh"))
            .follow(["-c", script], None, Duration::from_secs(60), on_line)
            .await;
        assert!(answer.expect("an answer").ok);
        assert_eq!((longest, bytes), (4 << 10, 1_000_003));
    }

    #[test]
    fn progress_before_an_error_is_left_out() {
        let said =
            |stderr: &str| CallOutput { ok: false, stdout: String::new(), stderr: stderr.to_owned() }.error();
        let podman = "Trying to pull example.org/a:1...\nCopying blob 0f3d done\nError: unauthorized: no\n";
        assert_eq!(said(podman), "Error: unauthorized: no");
        assert_eq!(said("Error response from daemon: no such manifest\n"), said("no such manifest\n"));
    }

    #[tokio::test]
    async fn nothing_else_of_our_environment_reaches_the_program() {
        let answer =
            Cli::new(Path::new("/bin/sh")).call(["-c", "env | cut -d= -f1"], Duration::from_secs(5)).await;
        let names = answer.expect("an answer").stdout;
        let ours = |it: &str| {
            it.starts_with("DOCKER_")
                || PASSED_ON.contains(&it)
                || ["PWD", "_", "SHLVL", "OLDPWD"].contains(&it)
        };
        assert!(names.lines().all(ours), "{names}");
    }
}
