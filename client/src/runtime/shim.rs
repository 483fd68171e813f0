//! `longshore shim DIR`: the parent of one plain process, so that somebody knows how it ended even if the worker died meanwhile.
//!
//! It reads what to run from the attempt directory, writes down who runs it, waits, and writes down how it ended. It is a process per
//! attempt, so it does nothing else: no runtime, no threads, no connection. Its own standard output tells the worker, if there is one,
//! that the program has started.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use protocol::Now;
use protocol::report::{OutputLengths, Stream};
use rustix::process::Signal;
use worker::input::{Exit, Fault};
use worker::step::Launch;

use super::{argv, proc};
use crate::attempt_dir::{AttemptDir, Ending, Error, Program, describe};
use crate::clock;

/// What the worker reads when the program has started.
pub(super) const STARTED: &str = "started";

/// Runs the attempt in the directory that is the only argument. The exit code is about the shim alone: how the program ended is in the
/// directory.
#[must_use]
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let (Some(dir), None) = (args.next(), args.next()) else {
        return complain("usage: longshore shim ATTEMPT_DIRECTORY");
    };
    let dir = AttemptDir::at(Path::new(&dir));
    match carry_out(&dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&describe(&error)),
    }
}

fn carry_out(dir: &AttemptDir) -> Result<(), Error> {
    let launch = dir.launch()?;
    let own = proc::identify(std::process::id());
    // Another shim has this attempt already: the worker was restarted in between.
    if !own.map_or(Ok(true), |own| dir.claim_watcher(own))? {
        return Ok(());
    }
    let exit = match command(dir, &launch)? {
        Ok(command) => run_to_end(dir, command)?,
        Err(invalid) => not_started(Fault::Definition, None, invalid.to_string()),
    };
    let output =
        if matches!(exit, Exit::NotStarted { .. }) { OutputLengths::default() } else { dir.lengths() };
    keep(dir, &Ending { exit, output, at: clock::now().utc })
}

/// Writes down how it ended: nobody else knows. While the disk is full that is tried again, until there is room or nobody wants to know.
fn keep(dir: &AttemptDir, ending: &Ending) -> Result<(), Error> {
    let mut complained = false;
    loop {
        match dir.record_ending(ending) {
            Err(error) if dir.path().exists() => {
                if !complained {
                    complain(&format!("cannot write down how the program ended yet: {}", describe(&error)));
                    complained = true;
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
    command.args(words).args(launch.body.iter().flat_map(|body| &body.args));
    command.env_clear().envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(environment);
    command.stdin(Stdio::null()).stdout(dir.output(Stream::Stdout)?).stderr(dir.output(Stream::Stderr)?);
    match &spec.working_dir {
        Some(path) => command.current_dir(path),
        None => {
            let own = dir.path().join("work");
            // It is there if the attempt was begun before.
            let _ = DirBuilder::new().create(&own);
            command.current_dir(own)
        }
    };
    command.process_group(0);
    Ok(Ok(command))
}

fn run_to_end(dir: &AttemptDir, mut command: Command) -> Result<Exit, Error> {
    let began = clock::now();
    // Where not even this can be written nothing is started; and if we are killed after this, nobody says that nothing was.
    dir.record_program(Program::Begun)?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(refused(&error)),
    };
    if let Some(program) = proc::identify(child.id())
        && let Err(error) = dir.record_program(Program::Is(program))
    {
        // Nobody could stop it, or find it again.
        proc::signal_group_of_child(child.id(), Signal::KILL);
        // It is our child, so this is how it ended, and no more is known of it.
        let _ = child.wait();
        complain(&format!("stopped a program that could not be written down: {}", describe(&error)));
        return Ok(Exit::Vanished);
    }
    // Nobody listens if the worker has died.
    let _ = writeln!(io::stdout(), "{STARTED} {}", child.id());
    proc::wait_without_reaping(child.id());
    // What it left behind in its group ends with it. Until it is reaped nobody else gets its number.
    proc::signal_group_of_child(child.id(), Signal::KILL);
    let status = child.wait();
    Ok(status.map_or(Exit::Vanished, |status| ended(status, began)))
}

fn ended(status: ExitStatus, began: Now) -> Exit {
    let code = status.code().or_else(|| status.signal().map(|it| 128 + it)).unwrap_or(-1);
    Exit::Ran { code, oom: false, ran: clock::now().up.since(began.up), result: None }
}

fn refused(error: &io::Error) -> Exit {
    let (fault, code) = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => (Fault::Definition, Some(127)),
        io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory => (Fault::Definition, Some(126)),
        io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => (Fault::Definition, None),
        // ENOEXEC: neither a program nor a script.
        _ if error.raw_os_error() == Some(8) => (Fault::Definition, Some(126)),
        _ => (Fault::Host, None),
    };
    not_started(fault, code, format!("the program cannot be started: {error}"))
}

fn not_started(fault: Fault, code: Option<i32>, message: String) -> Exit {
    Exit::NotStarted { fault, code, message }
}

fn complain(text: &str) -> ExitCode {
    // Nobody may be there to read it.
    let _ = writeln!(io::stderr(), "longshore shim: {text}");
    ExitCode::FAILURE
}

/// Between two times of writing down how it ended.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// What a program gets of the worker's own environment.
const PASSED_ON: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];
