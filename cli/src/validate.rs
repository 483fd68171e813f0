//! `longshore validate`: checks a jobs file or a directory of them as a server does, without a server.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use server::config::jobs_file::{self, Environment, Fault, Faults, JobsText, LoadedFile};

use crate::args::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::records;
use crate::screen;

/// Check a jobs file, or a directory of them, without a server; prints all faults with line, column and suggestion.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore validate jobs.yaml
  longshore validate jobs.yaml -o json | jq '.faults[].line'
  longshore validate /etc/longshore/jobs.d                       all its *.yaml and *.yml files

  longshore validate jobs.yaml --heartbeat 3s --lease 10s        for a server that runs with these
  longshore validate jobs.yaml --elsewhere                       away from the server and its variables, as in CI

Variables such as ${TAG} are taken from the environment here. Exit code 2 if there are faults; warnings alone are none.")]
pub(crate) struct Flags {
    /// The jobs file, or a directory of them; - is standard input.
    #[arg(value_name = "PATH", default_value = "jobs.yaml")]
    file: PathBuf,
    /// The heartbeat interval of the server that will load the file.
    #[arg(long, env = "LONGSHORE_HEARTBEAT", default_value = "5s", value_name = "DURATION")]
    heartbeat: String,
    /// The lease of the server that will load the file: limits of lost_after depend on it. Without it the default of a server counts [default:
    /// 30s].
    #[arg(long, env = "LONGSHORE_LEASE", value_name = "DURATION")]
    lease: Option<String>,
    /// The policy of the server that will load the file.
    #[arg(long, env = "LONGSHORE_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Leave out what only the server can know: values with variables that are not set here, and environment files.
    #[arg(long)]
    elsewhere: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Checks a file.
pub(crate) fn validate(flags: &Flags) -> anyhow::Result<()> {
    let list = |faults: &[Fault]| faults.iter().map(as_json).collect::<Value>();
    let lease = flags.lease.as_deref().unwrap_or(DEFAULT_LEASE);
    let intervals = server::config::intervals(&flags.heartbeat, lease)
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    let policy = server::policy::load_optional(flags.policy.as_deref())
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    let environment = Environment::of_process().with_intervals(intervals).with_policy(policy);
    let environment = if flags.elsewhere { environment.elsewhere() } else { environment };
    let environment = if flags.lease.is_none() { environment.with_assumed_lease() } else { environment };
    let file = files::name_of_input(&flags.file);
    let loaded = match files::is_stdin(&flags.file) {
        true => jobs_file::parse(&files::read_jobs_file(&flags.file)?, Path::new(&file), &environment),
        false => jobs_file::load(&flags.file, &environment),
    };
    // As plan, reload and deploy say it. Only the first start of a server takes a file without jobs.
    let loaded = loaded.and_then(LoadedFile::require_jobs);
    match (loaded, flags.output.format) {
        (Ok(loaded), format) if format.is_text() => {
            for warning in &loaded.warnings {
                screen::note_lines(&format!("warning: {warning}"));
            }
            let jobs = screen::counted(loaded.definitions.len() as u64, "job");
            let files = match &loaded.text {
                JobsText::File(_) => String::new(),
                JobsText::Directory(files) => format!(" in {}", screen::counted(files.len() as u64, "file")),
            };
            screen::line(&format!("{}: {jobs}{files}, no faults", screen::visible(&file)))
        }
        (Ok(loaded), format) => {
            let told = json!({
                "valid": true, "jobs": loaded.definitions.len(), "faults": [], "more": 0, "warnings": list(&loaded.warnings),
            });
            records::print_list(format, &told, "faults", "code").map(drop)
        }
        (Err(faults), format) if format.is_text() => Err(refuse(&faults).into()),
        (Err(faults), format) => {
            let told = json!({ "valid": false, "jobs": 0, "faults": list(&faults.list), "more": faults.more, "warnings": [] });
            records::print_list(format, &told, "faults", "code")?;
            Err(Failure::silent(Exit::Usage).into())
        }
    }
}

/// Prints all faults of a jobs file and returns the failure.
pub(crate) fn refuse(faults: &Faults) -> Failure {
    for fault in &faults.list {
        screen::note_lines(&fault.to_string());
    }
    let count = screen::counted(faults.count() as u64, "fault");
    let shown =
        if faults.more > 0 { format!("; the first {} are above", faults.list.len()) } else { String::new() };
    Failure::new(Exit::Usage, format!("the jobs file has {count}{shown}"))
}

/// The lease of a server that is started without one.
const DEFAULT_LEASE: &str = "30s";

fn as_json(fault: &Fault) -> Value {
    let mut json = json!({ "file": &*fault.file, "code": fault.code.name(), "text": fault.text });
    if !fault.at.is_whole_file() {
        json["line"] = fault.at.line.into();
        json["column"] = fault.at.column.into();
    }
    json
}
