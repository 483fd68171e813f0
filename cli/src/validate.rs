//! `longshore validate`: what a server would say about a jobs file, without a server.

use std::path::PathBuf;

use serde_json::{Value, json};
use server::config::jobs_file::{self, Environment, Fault, Place};

use crate::failure::{Exit, Failure};
use crate::screen::{self, Format};

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
    /// How the result is written: table for people, json for programs.
    #[arg(
        short = 'o',
        long = "output",
        env = "LONGSHORE_OUTPUT",
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    format: Format,
}

/// Checks a file.
pub(crate) fn validate(flags: &Flags) -> anyhow::Result<()> {
    let (jobs, faults, warnings, more) = match jobs_file::load(&flags.file, &Environment::of_process()) {
        Ok(loaded) => (loaded.definitions.len(), Vec::new(), loaded.warnings, 0),
        Err(faults) => (0, faults.list, Vec::new(), faults.more),
    };
    if flags.format == Format::Json {
        let list = |faults: &[Fault]| faults.iter().map(as_json).collect::<Value>();
        screen::json(&json!({
            "valid": faults.is_empty(), "jobs": jobs, "faults": list(&faults), "more": more, "warnings": list(&warnings),
        }))?;
    } else {
        for warning in &warnings {
            screen::paragraph(&format!("warning: {warning}"));
        }
        for fault in &faults {
            screen::paragraph(&fault.to_string());
        }
    }
    let count = faults.len() + more;
    if count > 0 && flags.format == Format::Json {
        return Err(Failure::silent(Exit::Usage).into());
    }
    if count > 0 {
        let shown = if more > 0 { format!(", the first {} are above", faults.len()) } else { String::new() };
        return Err(Failure::new(
            Exit::Usage,
            format!("{}: {}{shown}", flags.file.display(), counted(count, "fault")),
        )
        .into());
    }
    if flags.format == Format::Table {
        let file = flags.file.display().to_string();
        screen::line(&format!("{}: {}, no faults", screen::visible(&file), counted(jobs, "job")))?;
    }
    Ok(())
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
