//! The command line of `longshore`: its verbs, their flags, and the function that each verb calls.
//!
//! Verbs speak to a server through the public HTTP API only. No verb imports from this file.

use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::failure::{Exit, exit_of};
use crate::settings::{self, Invocation, Overridden};
use crate::{
    audit, backfill, backup, batches, cert, changes, completions, definitions, deploy, dev, doctor, events,
    explain, grep, health, import, job_verbs, jobs, limits, logs, man, notify, pauses, pipelines, plan,
    reschedule, restore, run, schedules, schema, screen, server, show, statistics, submit, tokens, top,
    upgrade_check, validate, wait, whoami, worker, workers,
};

/// A job server with remote workers.
///
/// The server reads job definitions from jobs.yaml and sends jobs to workers, which run them in containers.
#[derive(Debug, Parser)]
#[command(name = "longshore", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "Examples:
  longshore dev                           start a server and a worker on this machine
  longshore run resize --follow -- a.png  run a job and print its output
  longshore ls --state failed             list failed jobs

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not allowed, 4 not found, 5 conflict, 6 unavailable;
run --wait, run --follow, wait and logs --exit-code exit with the job's exit code, with 124 when the
time of a wait is up, or 130 after Ctrl-C: the job continues.")]
pub(crate) struct Program {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    // Boxed: these have several times as many flags as the others.
    Server(Box<server::Flags>),
    Worker(Box<worker::Flags>),
    Dev(dev::Flags),
    Run(run::Flags),
    Submit(submit::Flags),
    Wait(wait::Flags),
    #[command(visible_aliases = ["jobs", "list"])]
    Ls(jobs::ListFlags),
    Top(top::Flags),
    Show(show::Flags),
    Explain(explain::Flags),
    Limits(limits::Flags),
    #[command(visible_alias = "stats")]
    Statistics(statistics::Flags),
    Logs(logs::Flags),
    Grep(grep::Flags),
    Events(events::Flags),
    Batches(batches::ListFlags),
    Batch(batches::Flags),
    Pipeline(pipelines::Flags),
    Cancel(job_verbs::CancelFlags),
    Release(job_verbs::ReleaseFlags),
    Retry(Box<job_verbs::RetryFlags>),
    Ack(Box<job_verbs::AckFlags>),
    Reschedule(reschedule::Flags),
    Workers(workers::ListFlags),
    Cordon(workers::CordonFlags),
    Uncordon(workers::UncordonFlags),
    Drain(workers::DrainFlags),
    Label(workers::LabelFlags),
    Slots(workers::SlotsFlags),
    Forget(workers::ForgetFlags),
    ResetWorker(workers::ResetFlags),
    StopUnmanaged(workers::StopUnmanagedFlags),
    Definitions(definitions::Flags),
    Plan(plan::Flags),
    Deploy(deploy::Flags),
    Reload(definitions::ReloadFlags),
    Changes(changes::Flags),
    Schedules(schedules::ListFlags),
    Next(schedules::NextFlags),
    Fires(schedules::FiresFlags),
    Backfill(backfill::Flags),
    Pause(pauses::PauseFlags),
    Resume(pauses::ResumeFlags),
    Pauses(pauses::ListFlags),
    Validate(validate::Flags),
    Schema(schema::Flags),
    Import(import::Flags),
    Health(health::Flags),
    Doctor(doctor::Flags),
    UpgradeCheck(upgrade_check::Flags),
    Cert(cert::Flags),
    Token(tokens::Flags),
    Whoami(whoami::Flags),
    Audit(audit::Flags),
    Notify(notify::Flags),
    Backup(backup::Flags),
    Restore(restore::Flags),
    Completions(completions::Flags),
    #[command(hide = true)]
    Man(man::Flags),
}

impl Program {
    /// Runs the verb. `server` and `worker` log which settings of their file have no effect.
    pub(crate) fn perform(mut self, overridden: Vec<Overridden>) -> anyhow::Result<()> {
        match &mut self.verb {
            Verb::Server(flags) => flags.file.set_overridden(overridden),
            Verb::Worker(flags) => flags.file.set_overridden(overridden),
            _ => {}
        }
        perform(self.verb)
    }
}

/// Adds to the help of `run NAME` what only the server knows: the parameters of the definition. Without a name, or without a server,
/// the help stands alone.
pub(crate) fn describe_more(words: impl IntoIterator<Item = OsString>) {
    let words =
        words.into_iter().take_while(|word| word != "--").filter(|word| word != "--help" && word != "-h");
    let Ok(Invocation { program: Program { verb: Verb::Run(flags) }, .. }) =
        settings::parse::<Program>(words)
    else {
        return;
    };
    if let Err(error) = block_on(run::describe_params(flags))
        && exit_of(&error) != Exit::OutputClosed
    {
        screen::note(&format!("longshore: the parameters are not known: {error}"));
    }
}

fn perform(verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Server(flags) => server::server(*flags),
        Verb::Worker(flags) => worker::worker(*flags),
        Verb::Dev(flags) => dev::dev(flags),
        Verb::Run(flags) => block_on(run::run(flags)),
        Verb::Submit(flags) => block_on(submit::submit(flags)),
        Verb::Wait(flags) => block_on(wait::wait(flags)),
        Verb::Ls(flags) => block_on(jobs::list(flags)),
        Verb::Top(flags) => block_on(top::top(flags)),
        Verb::Show(flags) => block_on(show::show(flags)),
        Verb::Explain(flags) => block_on(explain::explain(flags)),
        Verb::Limits(flags) => block_on(limits::limits(flags)),
        Verb::Statistics(flags) => block_on(statistics::statistics(flags)),
        Verb::Logs(flags) => block_on(logs::logs(flags)),
        Verb::Grep(flags) => block_on(grep::grep(flags)),
        Verb::Events(flags) => block_on(events::events(flags)),
        Verb::Batches(flags) => block_on(batches::list(flags)),
        Verb::Batch(flags) => block_on(batches::batch(flags)),
        Verb::Pipeline(flags) => block_on(pipelines::pipeline(flags)),
        Verb::Cancel(flags) => block_on(job_verbs::cancel(flags)),
        Verb::Release(flags) => block_on(job_verbs::release(flags)),
        Verb::Reschedule(flags) => block_on(reschedule::reschedule(flags)),
        Verb::Retry(flags) => block_on(job_verbs::retry(*flags)),
        Verb::Ack(flags) => block_on(job_verbs::ack(*flags)),
        Verb::Workers(flags) => block_on(workers::list(flags)),
        Verb::Cordon(flags) => block_on(workers::cordon(flags)),
        Verb::Uncordon(flags) => block_on(workers::uncordon(flags)),
        Verb::Drain(flags) => block_on(workers::drain(flags)),
        Verb::Label(flags) => block_on(workers::label(flags)),
        Verb::Slots(flags) => block_on(workers::slots(flags)),
        Verb::Forget(flags) => block_on(workers::forget(flags)),
        Verb::ResetWorker(flags) => block_on(workers::reset(flags)),
        Verb::StopUnmanaged(flags) => block_on(workers::stop_unmanaged(flags)),
        Verb::Definitions(flags) => block_on(definitions::definitions(flags)),
        Verb::Plan(flags) => block_on(plan::plan(flags)),
        Verb::Deploy(flags) => block_on(deploy::deploy(flags)),
        Verb::Reload(flags) => block_on(definitions::reload(flags)),
        Verb::Changes(flags) => block_on(changes::changes(flags)),
        Verb::Schedules(flags) => block_on(schedules::list(flags)),
        Verb::Next(flags) => block_on(schedules::next(flags)),
        Verb::Fires(flags) => block_on(schedules::fires(flags)),
        Verb::Backfill(flags) => block_on(backfill::backfill(flags)),
        Verb::Pause(flags) => block_on(pauses::pause(flags)),
        Verb::Resume(flags) => block_on(pauses::resume(flags)),
        Verb::Pauses(flags) => block_on(pauses::list(flags)),
        Verb::Validate(flags) => validate::validate(&flags),
        Verb::Schema(flags) => schema::schema(&flags),
        Verb::Import(flags) => import::import(&flags),
        Verb::Health(flags) => block_on(health::health(flags)),
        Verb::Doctor(flags) => block_on(doctor::doctor(flags, parse_worker_settings)),
        Verb::UpgradeCheck(flags) => block_on(upgrade_check::check(flags, parse_for_check)),
        Verb::Cert(flags) => cert::cert(&flags),
        Verb::Token(flags) => block_on(tokens::token(flags)),
        Verb::Whoami(flags) => block_on(whoami::whoami(flags)),
        Verb::Audit(flags) => block_on(audit::audit(flags)),
        Verb::Notify(flags) => block_on(notify::notify(flags)),
        Verb::Backup(flags) => backup::backup(flags),
        Verb::Restore(flags) => restore::restore(flags),
        Verb::Completions(flags) => completions::completions(&flags),
        Verb::Man(flags) => man::man(&flags, Program::command()),
    }
}

/// Parses the command line of a unit, as an upgraded program would at its start.
fn parse_for_check(words: &[String]) -> Result<Option<server::CheckedFiles>, String> {
    Ok(match parse_words(words.iter().map(OsString::from))? {
        Verb::Server(flags) => Some(flags.checked_files()),
        _ => None,
    })
}

/// Reads the settings file of a worker, as its service does at its start: without the variables of this shell.
fn parse_worker_settings(file: &Path) -> Result<worker::Flags, String> {
    let words = ["longshore", "worker", "--config"].iter().map(OsString::from);
    let parsed = settings::parse_without_variables::<Program>(words.chain([file.into()])).map_err(text_of)?;
    match parsed.program.verb {
        Verb::Worker(flags) => Ok(*flags),
        // The words name this verb.
        _ => Err("it is no settings file of a worker".to_owned()),
    }
}

fn parse_words(words: impl Iterator<Item = OsString>) -> Result<Verb, String> {
    Ok(settings::parse::<Program>(words).map_err(text_of)?.program.verb)
}

/// The error in one line. The faults of a file name it with their places.
fn text_of(error: settings::ParseError) -> String {
    match error {
        settings::ParseError::CommandLine(error) => first_lines(&error.to_string()),
        settings::ParseError::File(failure) if failure.faults().is_empty() => failure.to_string(),
        settings::ParseError::File(failure) => failure.faults().join("; "),
    }
}

/// The error of the parser without its usage.
fn first_lines(error: &str) -> String {
    let lines = error.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("; ").trim_start_matches("error: ").to_owned()
}

/// Runs a verb that only waits for a server. A runtime with one thread starts fastest.
fn block_on(verb: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(verb)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use clap::Command;

    use super::*;
    use crate::settings;

    #[test]
    fn every_flag_of_server_and_worker_has_an_environment_variable() {
        let program = Program::command();
        for verb in ["server", "worker"] {
            let verb = program.find_subcommand(verb).unwrap();
            for argument in verb.get_arguments() {
                let variable = argument.get_env().map(|name| name.to_string_lossy().into_owned());
                assert!(variable.is_some_and(|name| name.starts_with("LONGSHORE_")), "{argument}");
            }
        }
    }

    /// The verbs that do nothing but hold others, and `man`, which `--help` hides, are left out.
    #[test]
    fn the_docs_name_the_verbs_without_an_output_format() {
        fn collect(verb: &Command, path: &str, without: &mut Vec<String>) {
            if !verb.is_subcommand_required_set()
                && verb.get_arguments().all(|argument| argument.get_id() != "format")
            {
                without.push(format!("`{path}`"));
            }
            for inner in verb.get_subcommands().filter(|inner| !inner.is_hide_set()) {
                collect(inner, format!("{path} {}", inner.get_name()).trim_start(), without);
            }
        }
        let docs = include_str!("../../docs/operating.md");
        let sentence = docs.lines().find(|line| line.starts_with("These have no `-o`: ")).unwrap();
        let (named, of_import) = sentence.split_once('.').unwrap();
        assert!(of_import.contains("`import -o FILE`"), "{sentence}");
        let mut without = Vec::new();
        collect(&Program::command(), "", &mut without);
        without.retain(|verb| !verb.starts_with("`import "));
        let mut named: Vec<&str> =
            named["These have no `-o`: ".len()..].split(", ").flat_map(|it| it.split(" and ")).collect();
        without.sort_unstable();
        named.sort_unstable();
        assert_eq!(without, named);
    }

    /// Parses `longshore worker` and returns whether the state directory is shared: outside of a container, and in one.
    fn shares_state_dir(arguments: &[&str]) -> [bool; 2] {
        let line = ["longshore", "worker"].iter().chain(arguments).map(std::ffi::OsString::from);
        let parsed =
            settings::parse::<Program>(line).unwrap_or_else(|_| panic!("{arguments:?} should be understood"));
        let Verb::Worker(flags) = parsed.program.verb else { panic!("the verb is worker") };
        [false, true].map(|contained| flags.worker_args.shares_state_dir(contained))
    }

    #[test]
    fn share_state_dir_defaults_to_true_in_a_container_only() {
        assert_eq!(shares_state_dir(&[]), [false, true]);
        assert_eq!(shares_state_dir(&["--share-state-dir"]), [true, true]);
        assert_eq!(shares_state_dir(&["--share-state-dir=false"]), [false, false]);
        for (value, expected) in [("true", [true, true]), ("false", [false, false])] {
            let mut file = tempfile::NamedTempFile::new().expect("a file");
            writeln!(file, "share_state_dir: {value}").expect("it is written");
            let path = file.path().to_str().expect("a UTF-8 path");
            assert_eq!(shares_state_dir(&["--config", path]), expected, "{value} in the file");
        }
    }
}
