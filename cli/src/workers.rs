//! `longshore workers`, `cordon`, `uncordon`, `drain`, `label`, `slots`, `forget`, `stop-unmanaged`: who there is, and what they may take.

use std::collections::BTreeMap;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::api::{self, Api};
use crate::failure::{Exit, Failure};
use crate::screen::{self, Format};
use crate::{Asking, view};

/// List workers: those that are connected or still have jobs.
///
/// With a worker's name or id, all that is known of it is shown instead.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore workers
  longshore workers --all -o json
  longshore workers anna                 with its machine's load, free disk and Docker engine")]
pub(crate) struct ListFlags {
    #[command(flatten)]
    asking: Asking,
    /// Also those that are gone.
    #[arg(long, conflicts_with = "worker")]
    all: bool,
    /// Only this one: its name, or its id; id:2 if a name looks like an id.
    #[arg(value_name = "WORKER")]
    worker: Option<String>,
}

/// Which worker.
#[derive(Debug, clap::Args)]
struct Target {
    #[command(flatten)]
    asking: Asking,
    /// The worker's name, or its id; id:2 if a name looks like an id.
    #[arg(value_name = "WORKER")]
    worker: String,
}

/// Let a worker take nothing new; what it has goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longshore cordon anna        (undo it with: longshore uncordon anna)")]
pub(crate) struct CordonFlags {
    #[command(flatten)]
    target: Target,
}

/// Let a worker take jobs again that was cordoned or is being drained.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longshore uncordon anna")]
pub(crate) struct UncordonFlags {
    #[command(flatten)]
    target: Target,
}

/// Let a worker take nothing new, finish what runs, and leave.
///
/// It stays cordoned when it is started again, until 'longshore uncordon'.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore drain anna                   before its machine is taken down
  longshore drain anna --deadline 10m    what still runs then is stopped, and runs again elsewhere")]
pub(crate) struct DrainFlags {
    #[command(flatten)]
    target: Target,
    /// Stop what still runs after this long (90s, 10m, 2h).
    #[arg(long, value_name = "DURATION", value_parser = deadline)]
    deadline: Option<String>,
}

/// Lay labels over those that a worker brings; they stay when it is started again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore label anna zone=b rack=7
  longshore label anna rack-            take away what was set; the worker's own shows again")]
pub(crate) struct LabelFlags {
    #[command(flatten)]
    target: Target,
    /// KEY=VALUE sets a label, KEY- takes away what was set.
    #[arg(required = true, value_name = "LABEL", value_parser = label_change)]
    labels: Vec<LabelChange>,
}

/// What is to become of a label: its name, and its value if it is set.
type LabelChange = (String, Option<String>);

/// Change how many jobs a worker runs at once; that stays when it is started again.
///
/// What runs goes on. To give a worker nothing more, cordon it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longshore slots anna 8")]
pub(crate) struct SlotsFlags {
    #[command(flatten)]
    target: Target,
    /// So many from now on, whatever the worker was started with.
    #[arg(value_parser = crate::worker::slots)]
    slots: u32,
}

/// Drop a worker from the list that will not come back.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longshore forget anna        (its state directory needs --rejoin from then on)")]
pub(crate) struct ForgetFlags {
    #[command(flatten)]
    target: Target,
}

/// Stop what a worker runs and this server never gave, as after a restored backup.
///
/// Such attempts go on until a person decides. They are asked to stop, and killed after their grace.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore stop-unmanaged anna          all of them; 'longshore workers -o json' lists them
  longshore stop-unmanaged anna 12#30    one: attempt 30, of job 12")]
pub(crate) struct StopUnmanagedFlags {
    #[command(flatten)]
    target: Target,
    /// Only this one, as 'unmanaged' of the worker names it.
    #[arg(value_name = "JOB#FENCE", value_parser = attempt)]
    attempt: Option<(u64, u64)>,
}

/// Lists workers, or shows one.
pub(crate) async fn list(flags: ListFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.asking.door)?;
    if let Some(wanted) = &flags.worker {
        return show(&api, wanted, flags.asking.format).await;
    }
    let json = fetch(&api, flags.all).await?;
    if flags.asking.format == Format::Json {
        return screen::json(&json);
    }
    let workers: Vec<view::Worker> = api::read(&api, &json)?;
    let now = jiff::Timestamp::now();
    screen::table(&view::Worker::HEADING, workers.iter().map(|worker| worker.row(now)).collect())?;
    warn(&workers);
    if workers.is_empty() {
        screen::note("no worker is connected; start one with: longshore worker --server ADDRESS");
    }
    Ok(())
}

async fn show(api: &Api, wanted: &str, format: Format) -> anyhow::Result<()> {
    let known = find(api, wanted).await?;
    let json = api.json(api.fetch(&["api", "workers", &known.id.to_string()])).await?;
    if format == Format::Json {
        return screen::json(&json);
    }
    let worker: view::Worker = api::read(api, &json)?;
    screen::facts(&worker.facts())?;
    warn(&[worker]);
    Ok(())
}

/// Tells what a person has to see to.
fn warn(workers: &[view::Worker]) {
    for worker in workers.iter().filter(|worker| !worker.unmanaged.is_empty()) {
        screen::note(&format!(
            "warning: {} has {} attempts that this server never gave; they go on until a person decides: longshore workers -o json, longshore stop-unmanaged {0}",
            worker.name,
            worker.unmanaged.len()
        ));
    }
    for worker in workers.iter().filter(|worker| !worker.copies.is_empty()) {
        screen::note(&format!(
            "warning: several processes say that they are {}, from {}: one state directory is a copy of the other. None of them is let in \
             until only one is left; remove the state directory of the copy",
            worker.name,
            worker.copies.join(" and ")
        ));
    }
}

/// Cordons a worker.
pub(crate) async fn cordon(flags: CordonFlags) -> anyhow::Result<()> {
    operate(&flags.target, "cordon", &[], "takes nothing new").await
}

/// Lifts a cordon.
pub(crate) async fn uncordon(flags: UncordonFlags) -> anyhow::Result<()> {
    operate(&flags.target, "uncordon", &[], "takes jobs again").await
}

/// Drains a worker.
pub(crate) async fn drain(flags: DrainFlags) -> anyhow::Result<()> {
    let query: Vec<(&str, &str)> = flags.deadline.iter().map(|text| ("deadline", text.as_str())).collect();
    operate(&flags.target, "drain", &query, "finishes what it has, and leaves").await
}

/// Changes a worker's labels.
pub(crate) async fn label(flags: LabelFlags) -> anyhow::Result<()> {
    let labels: BTreeMap<&str, Option<&str>> =
        flags.labels.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
    change(&flags.target, &json!({ "labels": labels }), |worker| {
        let shown = view::pairs(&worker.labels);
        if shown.is_empty() { "has no labels".to_owned() } else { format!("has the labels {shown}") }
    })
    .await
}

/// Changes how many jobs a worker runs at once.
pub(crate) async fn slots(flags: SlotsFlags) -> anyhow::Result<()> {
    change(&flags.target, &json!({ "slots": flags.slots }), |worker| match worker.slots {
        1 => "runs one job at a time".to_owned(),
        slots => format!("runs {slots} jobs at once"),
    })
    .await
}

/// Forgets a worker.
pub(crate) async fn forget(flags: ForgetFlags) -> anyhow::Result<()> {
    operate(&flags.target, "forget", &[], "is forgotten").await
}

/// Stops what was never given here.
pub(crate) async fn stop_unmanaged(flags: StopUnmanagedFlags) -> anyhow::Result<()> {
    let which = flags.attempt.map(|(job, fence)| [("job", job.to_string()), ("fence", fence.to_string())]);
    let query: Vec<(&str, &str)> =
        which.iter().flatten().map(|(name, number)| (*name, number.as_str())).collect();
    operate(&flags.target, "stop-unmanaged", &query, "stops what this server never gave").await
}

/// Changes what is kept of a worker, and tells how it is now.
async fn change(
    target: &Target,
    wish: &serde_json::Value,
    effect: impl FnOnce(&view::Worker) -> String,
) -> anyhow::Result<()> {
    let api = Api::new(&target.asking.door)?;
    let known = find(&api, &target.worker).await?;
    let path = ["api", "workers", &known.id.to_string()];
    let json = api.json(api.request(Method::PATCH, &path).json(wish)).await?;
    if target.asking.format == Format::Json {
        return screen::json(&json);
    }
    let worker: view::Worker = api::read(&api, &json)?;
    tell(&worker, &effect(&worker))
}

async fn operate(target: &Target, verb: &str, query: &[(&str, &str)], effect: &str) -> anyhow::Result<()> {
    let api = Api::new(&target.asking.door)?;
    let known = find(&api, &target.worker).await?;
    let path = ["api", "workers", &known.id.to_string(), verb];
    let response = api.send(api.request(Method::POST, &path).query(query)).await?;
    if response.status() == StatusCode::NO_CONTENT {
        // Of a forgotten worker there is nothing to show.
        return if target.asking.format == Format::Json { Ok(()) } else { tell(&known, effect) };
    }
    let json: Value = api.decode(response).await?;
    if target.asking.format == Format::Json {
        return screen::json(&json);
    }
    tell(&api::read(&api, &json)?, effect)
}

/// Says what became of a worker: by its name and its number, whichever was asked for.
fn tell(worker: &view::Worker, effect: &str) -> anyhow::Result<()> {
    screen::line(&format!(
        "worker {} (id {}) {}",
        screen::visible(&worker.name),
        worker.id,
        screen::visible(effect)
    ))
}

/// The worker that is meant by a number or by a name. A name may be a number: who is meant must be certain, and `id:2` always is.
async fn find(api: &Api, wanted: &str) -> anyhow::Result<view::Worker> {
    let workers: Vec<view::Worker> = api::read(api, &fetch(api, true).await?)?;
    let number = wanted.strip_prefix("id:").unwrap_or(wanted).parse::<u64>().ok();
    let mut meant: Vec<view::Worker> =
        workers.into_iter().filter(|worker| Some(worker.id) == number || worker.name == wanted).collect();
    match (meant.len(), meant.pop()) {
        (1, Some(worker)) => Ok(worker),
        (_, None) => {
            let text = match number {
                Some(number) => format!("no worker has the id {number}, and none is called {wanted:?}"),
                None => format!("no worker is called {wanted:?}"),
            };
            Err(Failure::new(Exit::NotFound, text).hint("'longshore workers --all' lists them").into())
        }
        (_, Some(last)) => {
            meant.push(last);
            let shown: Vec<String> =
                meant.iter().map(|worker| format!("{:?} (id {})", worker.name, worker.id)).collect();
            let text = format!("{wanted:?} may be several workers: {}", shown.join(" and "));
            Err(Failure::new(Exit::Conflict, text).hint(format!("give the id as id:{}", meant[0].id)).into())
        }
    }
}

/// The server reads it again; here only what cannot be right is refused.
fn deadline(text: &str) -> Result<String, String> {
    crate::duration::parse(text).map(|_| text.to_owned())
}

fn label_change(text: &str) -> Result<LabelChange, String> {
    match (text.split_once('='), text.strip_suffix('-')) {
        (Some((name, value)), _) if !name.is_empty() => Ok((name.to_owned(), Some(value.to_owned()))),
        (None, Some(name)) if !name.is_empty() => Ok((name.to_owned(), None)),
        _ => Err("a label is written KEY=VALUE, or KEY- to take it away".to_owned()),
    }
}

/// `12#30`: job 12, attempt 30.
fn attempt(text: &str) -> Result<(u64, u64), String> {
    let numbers =
        text.split_once('#').and_then(|(job, fence)| Some((job.parse().ok()?, fence.parse().ok()?)));
    numbers.ok_or_else(|| "it is a job and its attempt's fence, as in 12#30".to_owned())
}

async fn fetch(api: &Api, all: bool) -> anyhow::Result<Value> {
    let request = api.fetch(&["api", "workers"]);
    api.json(if all { request.query(&[("all", "1")]) } else { request }).await
}
