//! `longshore run`: creates a job, and optionally waits for its end or follows its output.

mod csv;
mod each;

use std::path::Path;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, RequestBuilder};
use serde_json::{Map, Value, json};

use self::each::EachArgs;

use crate::api::{Api, CreatedJob, idempotency_key, parse};
use crate::args::CommonArgs;
use crate::batches::UniqueArgs;
use crate::failure::{Exit, Failure};
use crate::new_job::{NewJobArgs, note_warning};
use crate::outage::Outage;
use crate::overrides::{self, Overrides, object};
use crate::screen;
use crate::view::JobView as _;
use crate::{batches, definitions, duration, view};

/// Create a job; follow its output with --follow, or wait for its end with --wait.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore run resize                            create a job and return at once
  longshore run resize --follow -- --size 640     print its output; exit with its exit code
  longshore run resize -p size=640 -p mode=fast   give it parameters
  longshore run report --wait=10m -e MONTH=3      wait at most ten minutes
  longshore run report --delay 10m                start it in ten minutes
  longshore run report --at 18:30                 start it at half past six by the clock here
  longshore run load --after 12 --after 13        start it when both jobs have succeeded
  longshore run report --after batch:100:ended    start it when all members of batch 100 have ended
  longshore run clean-up --on web-3               on this worker
  longshore run train --on rack=7 --on 'cores>=8' on a worker with these labels
  longshore run bill --key bill-2026-03           a repetition with this key creates no second job
  longshore run render --count 1000 --wait        a batch of 1000 jobs, with its progress
  longshore run resize --each sizes.txt           a batch with a job for each line of a file
  ls *.png | longshore run resize --each - --each-as file -p size=640
  longshore run resize --each jobs.csv            several parameters a line, named by the header
  longshore run report --as-scheduled             run it now, as its schedule would

With --follow and --wait the exit code is the container's, also of one that was stopped (143 after SIGTERM), and 0 after any success;
1 if the job ended without one (cancelled before its start, lost, …).
It is 124 when the time of --wait is up, and 6 when the server was away for 15 minutes: the job goes on.
A server that is away at first is waited for as long, or for the time of --wait.
Ctrl-C does not stop the job: use 'longshore cancel'.")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// Name of the job definition.
    #[arg(value_name = "NAME", value_parser = crate::args::parse_definition_name, add = crate::completions::definitions())]
    name: String,
    #[command(flatten)]
    overrides: Overrides,
    /// Label for the job, to find it by. May be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = overrides::pair)]
    label: Vec<(String, String)>,
    /// Idempotency key: create no second job if one was created with this key [default: a random key, for repeating the request].
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Create a batch with this number of jobs, 1 to 100000; each is told its position in LONGSHORE_INDEX.
    #[arg(long, value_name = "N", group = "size", conflicts_with_all = ["follow", "as_scheduled"], value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: Option<u32>,
    #[command(flatten)]
    each: EachArgs,
    /// A name for the batch.
    #[arg(long, value_name = "NAME", requires = "size")]
    batch_name: Option<String>,
    /// Cancel the members of the batch that have not started once this number has failed.
    #[arg(long, value_name = "N", requires = "size", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_failures: Option<u32>,
    /// The most jobs of the batch that run at once.
    #[arg(long, value_name = "N", requires = "size", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: Option<u32>,
    #[command(flatten)]
    unique: UniqueArgs,
    /// Give it the parameters, environment and arguments of the definition's schedule, with this moment as its slot. The schedule fires as before.
    #[arg(long)]
    as_scheduled: bool,
    /// The schedule to run as, if the definition has several.
    #[arg(long, value_name = "ID", requires = "as_scheduled")]
    schedule: Option<String>,
    /// Fail if no connected worker could run the job now.
    #[arg(long)]
    require_worker: bool,
    #[command(flatten)]
    next: NewJobArgs,
    /// Arguments to append to the definition's command.
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

/// Creates the job, and waits for it if asked to.
pub(crate) async fn run(flags: Flags) -> anyhow::Result<()> {
    flags.next.check(flags.common.format)?;
    let api = Api::new(&flags.common.server_args)?;
    let mut outage = flags.next.outage();
    if flags.count.is_some() || flags.each.each.is_some() {
        return submit_batch(&api, &flags, outage).await;
    }
    let made = submit(&api, &flags, outage.as_mut()).await?;
    let job: view::Job = parse(&api, &made.json)?;
    // Without --key the key is random, so only a repetition of this request can have used it.
    if flags.key.is_some() {
        made.note_replay(&job);
    }
    if job.duplicate {
        screen::note(&format!("longshore: job {} has the unique key; no second job was created", job.id));
    }
    note_warning(&job);
    let id = job.id;
    let text = format!("job {id} is {}; follow it with: longshore logs -f {id}", job.state_text());
    flags.next.print(&api, flags.common.format, &made.json, &text, outage.as_ref()).await
}

async fn submit_batch(api: &Api, flags: &Flags, mut outage: Option<Outage>) -> anyhow::Result<()> {
    let output =
        batches::Output { format: flags.common.format, quiet: flags.next.quiet, wait: flags.next.wait };
    let request = match &flags.each.each {
        Some(file) => each_request(api, flags, file, outage.as_mut()).await?,
        None => request(api, flags)?,
    };
    batches::submit(api, request, flags.key.as_deref(), &output, outage).await
}

/// The request for a job for each line of a file. A batch has its options in the query.
async fn each_request(
    api: &Api,
    flags: &Flags,
    file: &Path,
    outage: Option<&mut Outage>,
) -> anyhow::Result<RequestBuilder> {
    if file.as_os_str() == "-" && flags.overrides.reads_stdin() {
        let text = "--each and --input cannot both read standard input";
        return Err(Failure::new(Exit::Usage, text).hint("put one of them into a file").into());
    }
    let mut fields = body(flags)?;
    let mut request =
        api.request(Method::POST, &["api", "jobs"]).header(CONTENT_TYPE, "application/x-ndjson");
    for option in ["batch_name", "max_failures", "concurrency", "batch_unique_key", "on_duplicate"] {
        if let Some(value) = fields.remove(option) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            request = request.query(&[(option, value)]);
        }
    }
    if flags.require_worker {
        request = request.query(&[("require_worker", "1")]);
    }
    let body = flags.each.body(file, api, (&flags.name, &fields), outage).await?;
    Ok(request.body(body))
}

async fn submit(api: &Api, flags: &Flags, outage: Option<&mut Outage>) -> anyhow::Result<CreatedJob> {
    let key = idempotency_key(flags.key.as_deref())?;
    api.create_job_until_interrupt(request(api, flags)?, &key, outage).await
}

fn request(api: &Api, flags: &Flags) -> Result<RequestBuilder, Failure> {
    let mut request = api.request(Method::POST, &["api", "jobs", &flags.name]);
    if flags.require_worker {
        request = request.query(&[("require_worker", "1")]);
    }
    if flags.as_scheduled {
        request = request.query(&[("as_scheduled", "1")]);
    }
    if let Some(id) = &flags.schedule {
        request = request.query(&[("schedule", id)]);
    }
    let body = body(flags)?;
    Ok(if body.is_empty() { request } else { request.json(&body) })
}

/// The job's overrides of its definition.
fn body(flags: &Flags) -> Result<Map<String, Value>, Failure> {
    let labels = object(&flags.label, "the label")?;
    let mut body = flags.overrides.fields(flags.next.quiet)?;
    let parts = [
        ("labels", labels),
        ("args", (!flags.args.is_empty()).then(|| json!(flags.args))),
        ("count", flags.count.map(|count| json!(count))),
        ("batch_name", flags.batch_name.as_ref().map(|name| json!(name))),
        ("max_failures", flags.max_failures.map(|max| json!(max))),
        ("concurrency", flags.concurrency.map(|limit| json!(limit))),
    ];
    body.extend(flags.unique.params().map(|(name, value)| (name.to_owned(), json!(value))));
    body.extend(parts.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    Ok(body)
}

/// Prints the parameters of the definition below the help of the verb. A server that cannot be asked is noted.
pub(crate) async fn describe_params(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let json = api.json(api.get(&["api", "definitions", &flags.name])).await?;
    let definition: view::Definition = parse(&api, &json)?;
    screen::line("")?;
    if definition.params.is_empty() {
        return screen::line(&format!("{} has no parameters.", flags.name));
    }
    screen::line(&format!("Parameters of {}:", flags.name))?;
    definitions::print_params(&definition.params)
}

/// Checks an instant. The text itself is sent, because the server says which instants it takes.
fn instant(text: &str) -> Result<String, String> {
    match text.parse::<jiff::Timestamp>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("write an instant with its zone, such as 2026-03-01T09:30:00Z".to_owned()),
    }
}

/// Reads a date, or an instant. The text of a date is sent: the server takes it in the zone of the schedule.
pub(crate) fn date_or_instant(text: &str) -> Result<String, String> {
    match jiff::civil::Date::strptime("%Y-%m-%d", text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => instant(text).map_err(|_| {
            "write a date, such as 2026-03-01, or an instant with its zone, such as 2026-03-01T09:30:00Z"
                .to_owned()
        }),
    }
}

/// Reads the bound of a span of time: a date, or as [`instant_or_ago`]. The text of a date is sent: the server takes it as a whole day.
pub(crate) fn date_or_instant_or_ago(text: &str) -> Result<String, String> {
    match jiff::civil::Date::strptime("%Y-%m-%d", text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => instant_or_ago(text),
    }
}

/// Reads an instant, or a duration before now such as `1h`, as an instant.
pub(crate) fn instant_or_ago(text: &str) -> Result<String, String> {
    if let Ok(instant) = instant(text) {
        return Ok(instant);
    }
    let ago = duration::parse(text).map_err(|why| {
        format!("write a time with its zone, such as 2026-03-01T09:30:00Z, or a duration before now; {why}")
    })?;
    let then = jiff::Timestamp::now().checked_sub(ago).map_err(|error| error.to_string())?;
    Ok(format!("{then:.3}"))
}
