//! `longshore shim DIR`: the parent of one plain process. It records the end even if the worker died meanwhile.
//!
//! It reads the command from the attempt directory, records its process, waits, kills what the program has left, and records its end. It is
//! a process per attempt, so it has no runtime, no threads and no connection. On its standard output it tells the worker that the program
//! has started.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use protocol::report::{OutputLengths, Stream};
use protocol::{Now, Usage};
use rustix::fs::Access;
use rustix::process::Signal;
use worker::input::{Exit, ResultFile, StartFailure};
use worker::step::Launch;

use super::{argv, orphans, process_id};
use crate::attempt_dir::{AttemptDir, AttemptEnd, Error, INPUT_VARIABLE, ProgramState, RESULT_VARIABLE};
use crate::boot::RecordedInstant;
use crate::clock;
use crate::error_chain::error_chain;
use crate::secrets;
use crate::usage::ChildUsage;

/// The line that tells the worker of the start.
pub(super) const STARTED: &str = "started";

/// Runs the attempt of the directory that is the only argument. The exit code is about the shim alone; the end of the program is in
/// the directory.
#[must_use]
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let (Some(dir), None) = (args.next(), args.next()) else {
        return print_error("usage: longshore shim ATTEMPT_DIRECTORY");
    };
    let dir = AttemptDir::at(Path::new(&dir));
    match carry_out(&dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => print_error(&error_chain(&error)),
    }
}

fn carry_out(dir: &AttemptDir) -> Result<(), Error> {
    let mut launch = dir.launch()?;
    let own = process_id::identify(std::process::id());
    // Another shim has this attempt: the worker was restarted in between.
    if !own.map_or(Ok(true), |own| dir.claim_watcher(own))? {
        return Ok(());
    }
    add_secrets(dir, &mut launch)?;
    add_exchange(dir, &mut launch)?;
    let end = match command(dir, &launch)? {
        Ok(command) => run_to_end(dir, command)?,
        Err(invalid) => ProgramEnd::now(not_started(StartFailure::Definition, None, invalid.to_string())),
    };
    // The output and the result are read when nothing that the program has started can write to them any more.
    let (exit, usage, at) = (with_result(dir, end.exit), end.usage, RecordedInstant::of(end.at));
    retry("cannot write down how the program ended yet", dir, || {
        let has_output = !matches!(exit, Exit::NotStarted { .. });
        let output = if has_output { dir.try_lengths()? } else { OutputLengths::default() };
        dir.record_end(&AttemptEnd { exit: exit.clone(), output, usage, at })
    })
}

/// Reads the secret variables from the tmpfs, and tells the program the directory of the secret files.
fn add_secrets(dir: &AttemptDir, launch: &mut Launch) -> Result<(), Error> {
    let Some(path) = dir.secrets()? else { return Ok(()) };
    let values = secrets::read(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
    launch.secrets = values.into();
    if let Some(files) = secrets::files(&path) {
        let mut spec = (*launch.spec).clone();
        spec.environment.push((SECRETS_VARIABLE.into(), files.to_string_lossy().into_owned()));
        launch.spec = spec.into();
    }
    Ok(())
}

/// Writes the input, and tells the program the paths of input and result.
fn add_exchange(dir: &AttemptDir, launch: &mut Launch) -> Result<(), Error> {
    let files = dir.prepare_exchange(launch.input())?;
    let mut spec = (*launch.spec).clone();
    let path = |path: &Path| path.to_string_lossy().into_owned();
    if let Some(input) = &files.input {
        spec.environment.push((INPUT_VARIABLE.into(), path(input)));
    }
    spec.environment.push((RESULT_VARIABLE.into(), path(&files.result)));
    launch.spec = spec.into();
    Ok(())
}

/// Adds the result of a program that succeeded.
fn with_result(dir: &AttemptDir, exit: Exit) -> Exit {
    match exit {
        Exit::Ran { code: 0, oom, run_time, .. } => {
            Exit::Ran { code: 0, oom, run_time, result: dir.result() }
        }
        exit => exit,
    }
}

/// Records what no other process knows. If that fails, as on a full disk, it is tried again until it works or the directory is gone.
fn retry(problem: &str, dir: &AttemptDir, record: impl Fn() -> Result<(), Error>) -> Result<(), Error> {
    let mut printed = false;
    loop {
        match record() {
            Err(error) if dir.path().exists() => {
                if !printed {
                    print_error(&format!("{problem}: {}", error_chain(&error)));
                    printed = true;
                }
                std::thread::sleep(TRY_AGAIN);
            }
            done => return done,
        }
    }
}

fn command(dir: &AttemptDir, launch: &Launch) -> Result<Result<Command, argv::Invalid>, Error> {
    let spec = &*launch.spec;
    let mut words = spec.entrypoint.iter().flatten().chain(&spec.command);
    let Some(program) = words.next() else {
        let problem = "is missing: a plain process has no image to name one".into();
        return Ok(Err(argv::Invalid { field: "command".into(), problem }));
    };
    let environment = match argv::merged_environment(launch) {
        Ok(environment) => environment,
        Err(invalid) => return Ok(Err(invalid)),
    };
    let mut command = Command::new(program);
    command.args(words).args(launch.overrides.iter().flat_map(|overrides| &overrides.args));
    command.env_clear().envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(environment);
    command.stdin(Stdio::null()).stdout(dir.output(Stream::Stdout)?).stderr(dir.output(Stream::Stderr)?);
    match &spec.working_dir {
        Some(path) => command.current_dir(path),
        None => {
            let own = dir.path().join("work");
            // The directory exists if the attempt was begun before.
            let _ = DirBuilder::new().create(&own);
            command.current_dir(own)
        }
    };
    command.process_group(0);
    Ok(Ok(command))
}

/// The end of the program itself.
struct ProgramEnd {
    exit: Exit,
    /// Of the program and of all descendants that were waited for.
    usage: Usage,
    at: Now,
}

impl ProgramEnd {
    /// An end that used nothing.
    fn now(exit: Exit) -> Self {
        Self { exit, usage: Usage::default(), at: clock::now() }
    }
}

/// Runs the program. When this returns, all that it has started is gone, but for what cannot be killed.
fn run_to_end(dir: &AttemptDir, mut command: Command) -> Result<ProgramEnd, Error> {
    let began = clock::now();
    if let Err(error) = orphans::adopt_orphans() {
        print_error(&format!(
            "cannot adopt processes that the program leaves; they go on after its end: {error}"
        ));
    }
    // Without this record nothing is started. With it, a killed shim does not count as unstarted.
    dir.record_program(ProgramState::Starting)?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            // The directory of the attempt is always there.
            let directory = command.get_current_dir().filter(|path| !path.starts_with(dir.path()));
            let program = command.get_program().to_string_lossy();
            return Ok(ProgramEnd::now(refused(&error, &program, directory)));
        }
    };
    if let Some(program) = process_id::identify(child.id())
        && let Err(error) = dir.record_program(ProgramState::Started(program))
    {
        // The program could neither be stopped nor found again.
        process_id::signal_group_of_child(child.id(), Signal::KILL);
        // The shim is its parent, so it ends here; its exit is not kept.
        let _ = child.wait();
        kill_orphans(dir);
        print_error(&format!("stopped a program that could not be written down: {}", error_chain(&error)));
        return Ok(ProgramEnd::now(Exit::Vanished));
    }
    dir.record_start(began.up);
    // The worker may have died.
    let _ = writeln!(io::stdout(), "{STARTED} {}", child.id());
    let used = ChildUsage::begin();
    orphans::wait_for_program(child.id());
    let at = clock::now();
    // Processes that it left in its group end with it. Until the program is reaped its number stays its own.
    process_id::signal_group_of_child(child.id(), Signal::KILL);
    let status = child.wait();
    kill_orphans(dir);
    let exit = status.map_or(Exit::Vanished, |status| Exit::Ran {
        code: exit_code(status),
        oom: false,
        run_time: at.up.since(began.up),
        result: ResultFile::Absent,
    });
    Ok(ProgramEnd { exit, usage: used.end(), at })
}

/// Ends the processes that the program has left outside of its group.
fn kill_orphans(dir: &AttemptDir) {
    let left = orphans::kill_all();
    let dir = dir.path().display();
    for process in left.iter().take(NAMED_MAX) {
        let process = orphans::describe(*process);
        print_error(&format!("{dir}: process {process} cannot be killed and goes on"));
    }
    if let Some(more @ 1..) = left.len().checked_sub(NAMED_MAX) {
        print_error(&format!("{dir}: {more} more processes cannot be killed and go on"));
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|it| 128 + it)).unwrap_or(-1)
}

/// `directory` is that of the key `working_dir`. A missing directory has the same error as a missing program.
fn refused(error: &io::Error, program: &str, directory: Option<&Path>) -> Exit {
    let (fault, code) = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => (StartFailure::Definition, Some(127)),
        io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory => {
            (StartFailure::Definition, Some(126))
        }
        io::ErrorKind::InvalidFilename | io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => {
            (StartFailure::Definition, None)
        }
        // ENOEXEC: neither a binary nor a script.
        _ if error.raw_os_error() == Some(8) => (StartFailure::Definition, Some(126)),
        _ => (StartFailure::Host, None),
    };
    let may_enter = |path: &Path| path.is_dir() && rustix::fs::access(path, Access::EXEC_OK).is_ok();
    let message = match directory.filter(|path| !may_enter(path)) {
        Some(path) => format!("working_dir {} cannot be entered on this worker: {error}", path.display()),
        None => format!("the program `{}` cannot be started: {error}", argv::shortened(program)),
    };
    not_started(fault, code, message)
}

fn not_started(fault: StartFailure, code: Option<i32>, message: String) -> Exit {
    Exit::NotStarted { fault, code, message }
}

fn print_error(text: &str) -> ExitCode {
    // The standard error may be closed.
    let _ = writeln!(io::stderr(), "longshore shim: {text}");
    ExitCode::FAILURE
}

/// The directory of the secret files of a plain process.
const SECRETS_VARIABLE: &str = "LONGSHORE_SECRETS_DIR";

/// Processes that cannot be killed and are named. A program that makes them faster than they are killed leaves thousands.
const NAMED_MAX: usize = 10;

/// Pause between two tries to record the end.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Variables that a program gets of the worker's own environment.
const PASSED_ON: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];
