//! The one binary, `longshore`: server, worker, both at once, and the verbs of those who use them.
//!
//! Here flags are read and handed to a verb; nothing else. The user's verbs speak only the public HTTP API. Errors of all verbs end in
//! [`failure::report`].

mod api;
mod backup;
mod completions;
mod deeds;
mod definitions;
mod dev;
mod doctor;
mod duration;
mod ending;
mod events;
mod explain;
mod failure;
mod health;
mod jobs;
mod logs;
mod restore;
mod run;
mod schema;
mod screen;
mod server;
mod settings;
mod show;
mod telemetry;
mod text;
mod usage;
mod validate;
mod view;
mod words;
mod worker;
mod workers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::api::Door;
use crate::screen::Format;
use crate::settings::{Asked, Wrong};

/// A job server with remote workers.
///
/// The server reads job definitions from jobs.yaml and hands jobs to workers, which run them in containers.
#[derive(Debug, Parser)]
#[command(name = "longshore", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "Examples:
  longshore dev                           a server and a worker on this machine, here and now
  longshore run resize --follow -- a.png  run a job and see its output; exits as it does
  longshore ls --state failed             what went wrong

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not allowed, 4 not found, 5 conflict, 6 unavailable;
run --wait and run --follow exit as the job's container did, or 130 after Ctrl-C: the job goes on.")]
struct Program {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Server(server::Flags),
    Worker(worker::Flags),
    Dev(dev::Flags),
    Run(run::Flags),
    Ls(jobs::ListFlags),
    Show(show::Flags),
    Explain(explain::Flags),
    Logs(logs::Flags),
    Cancel(deeds::CancelFlags),
    Release(deeds::ReleaseFlags),
    Retry(deeds::RetryFlags),
    Workers(workers::ListFlags),
    Cordon(workers::CordonFlags),
    Uncordon(workers::UncordonFlags),
    Drain(workers::DrainFlags),
    Label(workers::LabelFlags),
    Slots(workers::SlotsFlags),
    Forget(workers::ForgetFlags),
    StopUnmanaged(workers::StopUnmanagedFlags),
    Definitions(definitions::Flags),
    Reload(definitions::ReloadFlags),
    Validate(validate::Flags),
    Schema(schema::Flags),
    Health(health::Flags),
    Doctor(doctor::Flags),
    Backup(backup::Flags),
    Restore(restore::Flags),
    Completions(completions::Flags),
}

/// What every verb that asks the server takes.
#[derive(Debug, clap::Args)]
struct Asking {
    #[command(flatten)]
    door: Door,
    /// How the result is written.
    #[arg(
        short = 'o',
        long = "output",
        env = "LONGSHORE_OUTPUT",
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    format: Format,
}

fn main() -> ExitCode {
    // A worker starts one of these per plain process, so it skips everything that is for people.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == "shim") {
        return client::runtime::shim::run(std::env::args_os().skip(2));
    }
    let Asked { program, origins, format } = match settings::parse(std::env::args_os()) {
        Ok(parsed) => parsed,
        Err(Wrong::Words(error)) => return usage::explain(&error),
        Err(Wrong::File(failure)) => return failure::report(&failure.into(), Format::Table),
    };
    match perform(program.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let end = failure::report(&error, format);
            if let Some(origin) = origins.of(&error.to_string()) {
                screen::note(&format!("note: the value comes from {origin}"));
            }
            end
        }
    }
}

fn perform(verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Server(flags) => server::server(flags),
        Verb::Worker(flags) => worker::worker(flags),
        Verb::Dev(flags) => dev::dev(flags),
        Verb::Run(flags) => asking(run::run(flags)),
        Verb::Ls(flags) => asking(jobs::list(flags)),
        Verb::Show(flags) => asking(show::show(flags)),
        Verb::Explain(flags) => asking(explain::explain(flags)),
        Verb::Logs(flags) => asking(logs::logs(flags)),
        Verb::Cancel(flags) => asking(deeds::cancel(flags)),
        Verb::Release(flags) => asking(deeds::release(flags)),
        Verb::Retry(flags) => asking(deeds::retry(flags)),
        Verb::Workers(flags) => asking(workers::list(flags)),
        Verb::Cordon(flags) => asking(workers::cordon(flags)),
        Verb::Uncordon(flags) => asking(workers::uncordon(flags)),
        Verb::Drain(flags) => asking(workers::drain(flags)),
        Verb::Label(flags) => asking(workers::label(flags)),
        Verb::Slots(flags) => asking(workers::slots(flags)),
        Verb::Forget(flags) => asking(workers::forget(flags)),
        Verb::StopUnmanaged(flags) => asking(workers::stop_unmanaged(flags)),
        Verb::Definitions(flags) => asking(definitions::definitions(flags)),
        Verb::Reload(flags) => asking(definitions::reload(flags)),
        Verb::Validate(flags) => validate::validate(&flags),
        Verb::Schema(flags) => schema::schema(&flags),
        Verb::Health(flags) => asking(health::health(flags)),
        Verb::Doctor(flags) => asking(doctor::doctor(flags)),
        Verb::Backup(flags) => backup::backup(flags),
        Verb::Restore(flags) => restore::restore(flags),
        Verb::Completions(flags) => completions::completions(&flags),
    }
}

/// Runs a verb that only waits for a server: one thread is enough, and starts fastest.
fn asking(verb: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(verb)
}
