//! `longshore health`: for container health checks and scripts that wait for a server.

use std::path::{Path, PathBuf};

use crate::Asking;
use crate::api::Api;
use crate::failure::{Exit, Failure};
use crate::screen;

/// Ask whether the server is up and ready, or a worker connected; the exit code tells.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore health                              a server: ready to accept jobs?
  longshore health --live                       a server: alive at all?
  longshore health --file /run/longshore-worker the worker that was started with --health-file: connected?

Exit code 0 is yes, 6 is no; 2 if it cannot be asked so.")]
pub(crate) struct Flags {
    #[command(flatten)]
    asking: Asking,
    /// Ask only whether it is alive, not whether it is ready.
    #[arg(long)]
    live: bool,
    /// Ask no server: look at the file that a worker of this machine keeps by its --health-file.
    #[arg(long, value_name = "FILE", conflicts_with = "live")]
    file: Option<PathBuf>,
}

/// Asks, and says so.
pub(crate) async fn health(flags: Flags) -> anyhow::Result<()> {
    let word = match &flags.file {
        Some(file) => of_worker(file)?,
        None => of_server(&flags).await?,
    };
    match flags.asking.format {
        screen::Format::Table => screen::line(word),
        screen::Format::Json => screen::json(&serde_json::json!({ "status": word })),
    }
}

fn of_worker(file: &Path) -> anyhow::Result<&'static str> {
    client::health::check(file).map_err(|unwell| {
        let text = format!("{:#}", anyhow::Error::new(unwell));
        Failure::new(Exit::Unavailable, text).hint("the worker's log says what it waits for")
    })?;
    Ok("connected")
}

async fn of_server(flags: &Flags) -> anyhow::Result<&'static str> {
    let api = Api::new(&flags.asking.door)?;
    let (path, word) = if flags.live { ("healthz", "alive") } else { ("readyz", "ready") };
    // Whatever answers instead: it is not up.
    let request = api.fetch(&[path]).timeout(PATIENCE);
    api.send(request).await.map_err(|error| match error.downcast::<Failure>() {
        Ok(failure) => failure.with(Exit::Unavailable).into(),
        Err(error) => error,
    })?;
    Ok(word)
}

/// Less than a health check's usual patience (docker's is 30 s, often set to 5 s).
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(4);
