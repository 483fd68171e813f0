//! `longshore cordon`, `uncordon` and `drain`: of one worker, of several, or of all that have a label. `drain --wait` waits until the workers
//! have no attempt left.
//!
//! All workers are found before the first one is changed, so that a wrong name changes nothing. After that, one that the server refuses does
//! not keep the others from their change; the first refusal decides the exit code.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::{fetch, find_among, tell};
use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::end_args::EndArgs;
use crate::failure::{Exit, Failure, exit_of};
use crate::outage::{Awaited, Outage};
use crate::screen;
use crate::view::{self, JobView as _};
use crate::{bulk, duration, error_output, jobs, overrides, records};

/// The workers to change.
#[derive(Debug, clap::Args)]
struct ChosenArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Names or ids of workers; id:2 if a name looks like an id.
    #[arg(value_name = "WORKER", required_unless_present = "label", add = crate::completions::workers())]
    workers: Vec<String>,
    /// All workers with this label; with several labels those that have all of them.
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "workers", value_parser = overrides::pair)]
    label: Vec<(String, String)>,
    /// Do not ask before workers are changed that labels select.
    #[arg(short = 'y', long, requires = "label")]
    yes: bool,
}

/// Stop sending new jobs to workers, without an end or until a time; their jobs continue.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore cordon anna                (undo it with: longshore uncordon anna)
  longshore cordon anna bert --reason 'disk swap, back on Monday'
  longshore cordon anna --for 2h
  longshore cordon anna --until 'monday 06:00' --timezone Europe/Berlin
  longshore cordon --label rack=7      counts the workers, asks, and cordons them

The end of a cordon does as 'longshore uncordon': it ends a drain as well.")]
pub(crate) struct CordonFlags {
    #[command(flatten)]
    chosen: ChosenArgs,
    #[command(flatten)]
    end: EndArgs,
    /// Why; kept with your name and the time, and shown wherever the worker is. A later cordon of the same replaces the end, also by none.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Send jobs to workers again after cordon or drain.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore uncordon anna
  longshore uncordon --label rack=7 --yes

Of a worker that is not connected, the server knows the labels that were granted or set, and not its own.")]
pub(crate) struct UncordonFlags {
    #[command(flatten)]
    chosen: ChosenArgs,
}

/// Drain workers: they take no new jobs, finish the running ones, and exit.
///
/// A worker stays cordoned when it is started again, until 'longshore uncordon'.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore drain anna                   before maintenance of its machine
  longshore drain anna --deadline 10m    jobs that still run then are stopped and run elsewhere
  longshore drain anna --wait --reason 'kernel update' && ssh anna reboot
  longshore drain --label rack=7 --yes --wait=2h

With --wait the exit code is 0 when no worker has an attempt left, 124 when the time is up, and 5
if somebody has taken the drain back. The drain goes on when the time is up, and after Ctrl-C.")]
pub(crate) struct DrainFlags {
    #[command(flatten)]
    chosen: ChosenArgs,
    /// Stop jobs that still run after this time (90s, 10m, 2h).
    #[arg(long, alias = "timeout", value_name = "DURATION", value_parser = deadline)]
    deadline: Option<String>,
    /// Why; kept with your name and the time, and shown wherever the worker is.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Wait until the workers have no attempt left, at most this long; name the jobs that are waited for.
    #[arg(short = 'w', long, value_name = "DURATION", num_args = 0..=1, require_equals = true, value_parser = duration::parse)]
    wait: Option<Option<Duration>>,
}

/// Cordons workers.
pub(crate) async fn cordon(flags: CordonFlags) -> anyhow::Result<()> {
    let CordonFlags { chosen, end, reason } = flags;
    let end = end.read()?;
    let effect = format!("is cordoned{} and takes no new jobs", end.words());
    Change::start(&chosen, "cordon", &[], end.body(reason).as_ref(), &effect).await?.finish()
}

/// Lifts cordons.
pub(crate) async fn uncordon(flags: UncordonFlags) -> anyhow::Result<()> {
    Change::start(&flags.chosen, "uncordon", &[], None, "takes jobs again").await?.finish()
}

/// Drains workers, and waits for them if asked to.
pub(crate) async fn drain(flags: DrainFlags) -> anyhow::Result<()> {
    let query: Vec<(&str, &str)> = flags.deadline.iter().map(|text| ("deadline", text.as_str())).collect();
    let effect = "is draining: it finishes its jobs and exits";
    let body = reason_body(flags.reason.as_deref());
    let mut change = Change::start(&flags.chosen, "drain", &query, body.as_ref(), effect).await?;
    let Some(limit) = flags.wait else { return change.finish() };
    let up_at = limit.map(|limit| Instant::now() + limit);
    let is_up = async {
        match up_at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    let waited = tokio::select! {
        waited = change.wait() => Ok(waited),
        () = is_up => Err(Exit::TimedOut),
        _ = tokio::signal::ctrl_c() => Err(Exit::Interrupted),
    };
    match waited {
        Ok(Ok(())) => {}
        // The drains are made, whatever became of the wait.
        Ok(Err(error)) => change.record(error),
        Err(exit) => {
            let left: Vec<String> =
                change.draining.values().map(|it| screen::visible(&it.name).into_owned()).collect();
            screen::note(&format!("longshore: the drain goes on; not done yet: {}", left.join(", ")));
            change.failure = change.failure.or(Some(exit));
        }
    }
    change.finish()
}

/// The body of a request with a reason. The server checks it.
pub(crate) fn reason_body(reason: Option<&str>) -> Option<Value> {
    reason.map(|reason| json!({ "reason": reason }))
}

/// An operation on several workers.
struct Change<'f> {
    api: Api,
    chosen: &'f ChosenArgs,
    /// The JSON of each worker that was changed, as it was last read, in the order of the changes.
    answers: Vec<(u64, Value)>,
    /// Changed workers with attempts, as they were last read.
    draining: BTreeMap<u64, view::Worker>,
    /// The exit code of the first refusal.
    failure: Option<Exit>,
}

impl<'f> Change<'f> {
    /// Sends the operation for each worker.
    ///
    /// # Errors
    /// A worker was not found, or the answer to the question was no: nothing has changed.
    async fn start(
        chosen: &'f ChosenArgs,
        verb: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
        effect: &str,
    ) -> anyhow::Result<Self> {
        let api = Api::new(&chosen.common.server_args)?;
        let workers = choose(&api, chosen, verb).await?;
        let mut change = Self { api, chosen, answers: Vec::new(), draining: BTreeMap::new(), failure: None };
        for worker in workers {
            let path = ["api", "workers", &worker.id.to_string(), verb];
            let request = change.api.request(Method::POST, &path).query(query);
            let request = match body {
                Some(body) => request.json(body),
                None => request,
            };
            match change.api.json(request).await {
                Ok(json) => {
                    let changed: view::Worker = api::parse(&change.api, &json)?;
                    if chosen.common.format.is_text() {
                        tell(&changed, effect)?;
                    }
                    change.answers.push((changed.id, json));
                    change.draining.insert(changed.id, changed);
                }
                Err(error) => change.record(error.context(format!("worker {:?}", worker.name))),
            }
        }
        Ok(change)
    }

    /// Prints a refusal at once.
    fn record(&mut self, error: anyhow::Error) {
        error_output::report(&error, self.chosen.common.format);
        self.failure = self.failure.or(Some(exit_of(&error)));
    }

    /// Waits until all workers have left and none has an attempt, prints each, and notes meanwhile which jobs the others have.
    ///
    /// # Errors
    /// The server was away for too long.
    ///
    /// # Cancel safety
    /// The workers in `draining` are those that still have attempts.
    async fn wait(&mut self) -> anyhow::Result<()> {
        let mut outage = Outage::default();
        let mut noted = BTreeMap::new();
        while !self.draining.is_empty() {
            for id in self.draining.keys().copied().collect::<Vec<_>>() {
                match self.look(id, &mut noted).await {
                    Ok(()) => outage.end(),
                    Err(error) => {
                        outage.retry_or_fail(error, Awaited::Drain)?;
                        break;
                    }
                }
            }
            if !self.draining.is_empty() {
                sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// Looks at a worker, and takes it from those that are waited for if it has no attempt left, or will not come to that.
    async fn look(&mut self, id: u64, noted: &mut BTreeMap<u64, u32>) -> anyhow::Result<()> {
        let json = match self.api.json(self.api.get(&["api", "workers", &id.to_string()])).await {
            Ok(json) => json,
            // It was forgotten, which nobody can do while it has attempts.
            Err(error) if exit_of(&error) == Exit::NotFound => {
                self.draining.remove(&id);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let worker: view::Worker = api::parse(&self.api, &json)?;
        if let Some((_, shown)) = self.answers.iter_mut().find(|(changed, _)| *changed == id) {
            *shown = json;
        }
        let left = worker.busy + worker.queued;
        if left == 0 && worker.state != "draining" {
            self.draining.remove(&id);
            if worker.cordoned {
                let is_text = self.chosen.common.format.is_text();
                return if is_text { tell(&worker, "has no attempt left") } else { Ok(()) };
            }
        }
        if !worker.cordoned {
            self.draining.remove(&id);
            let text =
                format!("worker {:?} takes jobs again: somebody has taken the drain back", worker.name);
            self.record(Failure::new(Exit::Conflict, text).into());
            return Ok(());
        }
        if noted.insert(id, left) != Some(left) {
            let jobs = if left > 0 { self.jobs_text(id).await } else { ", and has not left yet".to_owned() };
            screen::note(&format!(
                "longshore: {} has {}{jobs}",
                worker.name,
                screen::counted(left, "attempt")
            ));
        }
        self.draining.insert(id, worker);
        Ok(())
    }

    /// The jobs of a worker: `: job 12 (resize) running, job 13 (load) assigned`. Empty if the server does not answer.
    async fn jobs_text(&self, worker: u64) -> String {
        let query = [("worker", worker.to_string()), ("state", "running,assigned".to_owned())];
        let Ok((listed, has_more)) = jobs::fetch_jobs(&self.api, &query, JOBS_MAX).await else {
            return String::new();
        };
        let listed = listed.iter().filter_map(|job| api::parse::<view::Job>(&self.api, job).ok());
        let mut names: Vec<String> =
            listed.map(|job| format!("job {} ({}) {}", job.id, job.name, job.state_text())).collect();
        if has_more {
            names.push("…".to_owned());
        }
        if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) }
    }

    /// Prints the workers in formats for programs. One that was named alone is an object, as in `longshore workers NAME`.
    fn finish(self) -> anyhow::Result<()> {
        let mut answers: Vec<Value> = self.answers.into_iter().map(|(_, json)| json).collect();
        let is_one = self.chosen.workers.len() == 1;
        let json = if is_one { answers.pop().unwrap_or_default() } else { Value::Array(answers) };
        if !json.is_null() {
            records::print(self.chosen.common.format, &json, "name")?;
        }
        self.failure.map_or(Ok(()), |exit| Err(Failure::silent(exit).into()))
    }
}

/// Finds the workers, and asks before those are changed that labels select.
async fn choose(api: &Api, chosen: &ChosenArgs, verb: &str) -> anyhow::Result<Vec<view::Worker>> {
    let known: Vec<view::Worker> = api::parse(api, &fetch(api, true).await?)?;
    let mut workers: Vec<view::Worker> = Vec::new();
    if chosen.label.is_empty() {
        for wanted in &chosen.workers {
            let worker = find_among(&known, wanted)?;
            if workers.iter().all(|it| it.id != worker.id) {
                workers.push(worker);
            }
        }
        return Ok(workers);
    }
    overrides::object(&chosen.label, "the label")?;
    let labels = &chosen.label;
    let has_all = |worker: &view::Worker| {
        labels.iter().all(|(name, value)| worker.labels.get(name).is_some_and(|it| it == value))
    };
    // A revoked worker never comes back.
    workers.extend(known.into_iter().filter(|worker| worker.state != "revoked" && has_all(worker)));
    let shown =
        labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" and ");
    if workers.is_empty() {
        let text = format!("no worker has the label {shown}");
        return Err(Failure::new(Exit::NotFound, text).hint("'longshore workers' shows the labels").into());
    }
    if !chosen.yes {
        let counted = screen::counted(workers.len() as u64, "worker");
        let names: Vec<&str> = workers.iter().take(NAMES_MAX).map(|worker| worker.name.as_str()).collect();
        let more = if workers.len() > NAMES_MAX { ", …" } else { "" };
        let described = format!("{counted} ({}{more})", names.join(", "));
        bulk::ask(verb, &format!("the label {shown} selects"), &described)?;
    }
    Ok(workers)
}

/// Checks the form only; the server parses it again.
fn deadline(text: &str) -> Result<String, String> {
    duration::parse(text).map(|_| text.to_owned())
}

/// Between two looks at the workers that are waited for.
const PAUSE: Duration = Duration::from_secs(1);
/// Jobs that a note names.
const JOBS_MAX: usize = 10;
/// Workers that a question names.
const NAMES_MAX: usize = 10;
