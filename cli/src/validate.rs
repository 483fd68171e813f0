//! `longshore validate`: what a server would say about a jobs file, without a server.

use std::path::PathBuf;

use serde_json::{Value, json};
use server::config::jobs_file::{self, Environment, Fault, Faults, Place};

use crate::failure::{Exit, Failure};
use crate::screen::{self, Format, Shape};

/// Check a jobs file, offline: all faults at once, with line, column and what to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore validate jobs.yaml
  longshore validate jobs.yaml -o json | jq '.faults[].line'

Variables such as ${TAG} are taken from the environment here. Exit code 2 if there are faults; warnings alone are none.")]
pub(crate) struct Flags {
    /// The file.
    #[arg(value_name = "FILE", default_value = "jobs.yaml")]
    file: PathBuf,
    #[command(flatten)]
    shape: Shape,
}

/// Checks a file.
pub(crate) fn validate(flags: &Flags) -> anyhow::Result<()> {
    let list = |faults: &[Fault]| faults.iter().map(as_json).collect::<Value>();
    let loaded = jobs_file::load(&flags.file, &Environment::of_process());
    match (loaded, flags.shape.format) {
        (Ok(loaded), Format::Table) => {
            for warning in &loaded.warnings {
                screen::paragraph(&format!("warning: {warning}"));
            }
            let file = flags.file.display().to_string();
            let jobs = counted(loaded.definitions.len(), "job");
            screen::line(&format!("{}: {jobs}, no faults", screen::visible(&file)))
        }
        (Ok(loaded), Format::Json) => screen::json(&json!({
            "valid": true, "jobs": loaded.definitions.len(), "faults": [], "more": 0, "warnings": list(&loaded.warnings),
        })),
        (Err(faults), Format::Table) => Err(refuse(&faults).into()),
        (Err(faults), Format::Json) => {
            let told = json!({ "valid": false, "jobs": 0, "faults": list(&faults.list), "more": faults.more, "warnings": [] });
            screen::json(&told)?;
            Err(Failure::silent(Exit::Usage).into())
        }
    }
}

/// Tells all faults of a jobs file; the end that they mean for whoever wanted to use it.
pub(crate) fn refuse(faults: &Faults) -> Failure {
    for fault in &faults.list {
        screen::paragraph(&fault.to_string());
    }
    let count = counted(faults.list.len() + faults.more, "fault");
    let shown =
        if faults.more > 0 { format!("; the first {} are above", faults.list.len()) } else { String::new() };
    Failure::new(Exit::Usage, format!("the jobs file has {count}{shown}"))
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn as_json(fault: &Fault) -> Value {
    let mut json = json!({ "file": &*fault.file, "code": fault.code.name(), "text": fault.text });
    if fault.at != Place::FILE {
        json["line"] = fault.at.line.into();
        json["column"] = fault.at.column.into();
    }
    json
}
