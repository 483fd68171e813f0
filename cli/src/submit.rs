//! `longshore submit`: makes the jobs of a list.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::CONTENT_TYPE;

use crate::api::Api;
use crate::args::CommonArgs;
use crate::batches::{self, UniqueArgs};
use crate::duration;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::outage::Outage;

/// Create the jobs that a file lists: all of them, or none.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore submit jobs.json             a JSON array of jobs, or a job a line
  longshore submit - --wait < jobs.json  wait until all have ended
  longshore submit jobs.json --key nightly-2026-03-01 --resume
                                         go on with the batch of an earlier run, if there is one

A job of the list is an object with the \"name\" of its definition and the fields of a submission. Jobs can come after one another:
  {\"name\": \"extract\"}
  {\"name\": \"load\", \"after\": [\"extract\"]}
  {\"name\": \"alarm\", \"after\": [{\"name\": \"load\", \"outcome\": \"not_succeeded\"}]}")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// The list; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A name for the batch that the jobs form.
    #[arg(long, value_name = "NAME")]
    batch_name: Option<String>,
    /// Start no further job once this number has failed.
    #[arg(long, value_name = "N")]
    max_failures: Option<u32>,
    /// The most jobs of the list that run at once.
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    #[command(flatten)]
    unique: UniqueArgs,
    /// Wait until all jobs have ended, at most this long. The exit code is 0 if all succeeded, 124 when the time is up, and 1 otherwise.
    #[arg(short = 'w', long, value_name = "DURATION", num_args = 0..=1, require_equals = true, value_parser = duration::parse)]
    wait: Option<Option<Duration>>,
    /// Idempotency key: make no second batch if one was made with this key [default: a random key, for repeating the request].
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Go on with the batch that an earlier run has made with this --key: wait for its end, repeat the members that have not succeeded, and wait
    /// for these, too. The exit code is 0 if in the end all members have succeeded, or the retries of those that had not; 4, and nothing is
    /// repeated, if some of them are no longer kept. Implies --wait.
    #[arg(long, conflicts_with = "batch_unique_key")]
    resume: bool,
    /// Print only the number of the batch. With --wait only the exit code tells how it ended.
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// Makes the jobs of a list.
pub(crate) async fn submit(flags: Flags) -> anyhow::Result<()> {
    let key = flags.key.as_deref();
    if flags.resume && key.is_none() {
        let text = "--resume needs --key, which finds the batch of an earlier run";
        let hint =
            "give the runs for the same data the same key, such as --key \"nightly-$LONGSHORE_SCHEDULED_AT\"";
        return Err(Failure::new(Exit::Usage, text).hint(hint).into());
    }
    let api = Api::new(&flags.common.server_args)?;
    let text = files::read_input(&flags.file, BYTES_MAX)?;
    let is_array = text.trim_start().starts_with('[');
    if !is_array && !text.trim_start().starts_with('{') && !text.trim().is_empty() {
        let shown = files::name_of_input(&flags.file);
        let why = format!(
            "{shown}: this is no list of jobs, which is a JSON array, or a JSON object a line (NDJSON)"
        );
        return Err(Failure::new(Exit::Usage, why).hint(HINT).into());
    }
    let form = if is_array { "application/json" } else { "application/x-ndjson" };
    let mut request = api.request(Method::POST, &["api", "jobs"]).header(CONTENT_TYPE, form).body(text);
    if let Some(name) = &flags.batch_name {
        request = request.query(&[("batch_name", name)]);
    }
    if let Some(max) = flags.max_failures {
        request = request.query(&[("max_failures", max)]);
    }
    if let Some(limit) = &flags.concurrency {
        request = request.query(&[("concurrency", limit)]);
    }
    request = flags.unique.add_to(request);
    let output = batches::Output { format: flags.common.format, quiet: flags.quiet, wait: flags.wait };
    match key.filter(|_| flags.resume) {
        Some(key) => batches::resume(&api, request, key, &output).await,
        None => {
            let outage = flags.wait.map(Outage::before_first_answer);
            batches::submit(&api, request, key, &output, outage).await
        }
    }
}

/// As much as the server takes.
const BYTES_MAX: u64 = server::http::LIST_BYTES_MAX as u64;
const HINT: &str = "\"longshore submit --help\" has an example; the definitions of a jobs file are brought to the server by \"longshore deploy\"";
