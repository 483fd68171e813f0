//! `longshore workers`, `cordon`, `uncordon`, `drain`: who there is, and what they may take.

use reqwest::Method;
use serde_json::Value;

use crate::api::{self, Api};
use crate::failure::{Exit, Failure};
use crate::screen::{self, Format};
use crate::{Asking, view};

/// List workers: those that are connected or still have jobs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore workers
  longshore workers --all -o json")]
pub(crate) struct ListFlags {
    #[command(flatten)]
    asking: Asking,
    /// Also those that are gone.
    #[arg(long)]
    all: bool,
}

/// Which worker.
#[derive(Debug, clap::Args)]
struct Target {
    #[command(flatten)]
    asking: Asking,
    /// The worker's id or name.
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

/// Let a cordoned worker take jobs again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longshore uncordon anna")]
pub(crate) struct UncordonFlags {
    #[command(flatten)]
    target: Target,
}

/// Let a worker take nothing new, finish what runs, and leave.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longshore drain anna         (before its machine is taken down)")]
pub(crate) struct DrainFlags {
    #[command(flatten)]
    target: Target,
}

/// Lists workers.
pub(crate) async fn list(flags: ListFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.asking.address)?;
    let json = fetch(&api, flags.all).await?;
    if flags.asking.format == Format::Json {
        return screen::json(&json);
    }
    let workers: Vec<view::Worker> = api::read(&api, &json)?;
    let now = jiff::Timestamp::now();
    screen::table(&view::Worker::HEADING, workers.iter().map(|worker| worker.row(now)).collect())?;
    if workers.is_empty() {
        screen::note("no worker is connected; start one with: longshore worker --server ADDRESS");
    }
    Ok(())
}

/// Cordons a worker.
pub(crate) async fn cordon(flags: CordonFlags) -> anyhow::Result<()> {
    operate(&flags.target, "cordon", "takes nothing new").await
}

/// Lifts a cordon.
pub(crate) async fn uncordon(flags: UncordonFlags) -> anyhow::Result<()> {
    operate(&flags.target, "uncordon", "takes jobs again").await
}

/// Drains a worker.
pub(crate) async fn drain(flags: DrainFlags) -> anyhow::Result<()> {
    operate(&flags.target, "drain", "finishes what it has, and leaves").await
}

async fn operate(target: &Target, verb: &str, effect: &str) -> anyhow::Result<()> {
    let api = Api::new(&target.asking.address)?;
    let id = find(&api, &target.worker).await?;
    let json = api.json(api.request(Method::POST, &["api", "workers", &id.to_string(), verb])).await?;
    if target.asking.format == Format::Json {
        return screen::json(&json);
    }
    screen::line(&format!("worker {} {effect}", screen::visible(&target.worker)))
}

/// The number of a worker that is given by number or by name.
pub(crate) async fn find(api: &Api, worker: &str) -> anyhow::Result<u64> {
    if let Ok(id) = worker.parse() {
        return Ok(id);
    }
    let workers: Vec<view::Worker> = api::read(api, &fetch(api, true).await?)?;
    let named: Vec<u64> = workers.iter().filter(|known| known.name == worker).map(|known| known.id).collect();
    match named[..] {
        [id] => Ok(id),
        [] => Err(Failure::new(Exit::NotFound, format!("no worker is called {worker:?}"))
            .hint("'longshore workers --all' lists them")
            .into()),
        _ => Err(Failure::new(
            Exit::Conflict,
            format!("several workers are called {worker:?} (ids {named:?})"),
        )
        .hint("give the id")
        .into()),
    }
}

async fn fetch(api: &Api, all: bool) -> anyhow::Result<Value> {
    let request = api.fetch(&["api", "workers"]);
    api.json(if all { request.query(&[("all", "1")]) } else { request }).await
}
