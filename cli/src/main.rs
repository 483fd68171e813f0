//! The one binary, `longshore`: server, worker, both at once, and the verbs of the command line.
//!
//! This file parses the command line, runs the verb, and turns its error into an exit code. The verbs are listed in [`program`].

mod api;
mod api_token;
mod args;
mod audit;
mod auth_proxy;
mod backfill;
mod backup;
mod batches;
mod bulk;
mod cert;
mod changes;
mod client_certificate;
mod completions;
mod core_dumps;
mod definitions;
mod deploy;
mod dev;
mod doctor;
mod duration;
mod end_args;
mod error_output;
mod events;
mod explain;
mod failure;
mod files;
mod grep;
mod hangup;
mod health;
mod import;
mod job_refs;
mod job_verbs;
mod jobs;
mod join;
mod limits;
mod local_time;
mod logging;
mod logs;
mod man;
mod new_job;
mod notify;
mod outage;
mod overrides;
mod pauses;
mod pipelines;
mod plan;
mod program;
mod progress;
mod quoting;
mod records;
mod reschedule;
mod restore;
mod run;
mod schedules;
mod schema;
mod screen;
mod server;
mod settings;
mod show;
mod sse;
mod statistics;
mod stream;
mod submit;
mod systemd;
mod tokens;
mod top;
mod upgrade_check;
mod usage;
mod utf8;
mod validate;
mod version_order;
mod view;
mod wait;
mod whoami;
mod worker;
mod workers;

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::program::Program;
use crate::screen::Format;
use crate::settings::{Invocation, ParseError};

/// The server's threads free what other threads have allocated; this one does so at less cost: docs/performance.md.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The worker starts one shim per plain process, so the shim skips the command line parser.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == "shim") {
        return client::runtime::shim::run(std::env::args_os().skip(2));
    }
    if let Some(end) = completions::answer(Program::command) {
        return end;
    }
    let Invocation { program, origins, overridden, format } =
        match settings::parse::<Program>(std::env::args_os()) {
            Ok(parsed) => parsed,
            Err(ParseError::CommandLine(error)) => {
                let is_help = error.kind() == clap::error::ErrorKind::DisplayHelp;
                let end = usage::explain(error, Program::command());
                if is_help {
                    program::describe_more(std::env::args_os());
                }
                return end;
            }
            Err(ParseError::File(failure)) => return error_output::report(&failure.into(), Format::Table),
        };
    match program.perform(overridden) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let end = error_output::report(&error, format);
            if let Some(origin) = origins.of(&error.to_string()) {
                screen::note(&format!("note: the value comes from {origin}"));
            }
            end
        }
    }
}
