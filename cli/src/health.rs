//! `longshore health`: for container health checks, and for scripts that wait for a server.

use std::path::{Path, PathBuf};

use crate::api::Api;
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure};
use crate::records;
use crate::screen;

/// Check whether the server is ready, or a worker connected; the exit code tells.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore health                                        server: ready to accept jobs?
  longshore health --live                                 server: process alive?
  longshore health --file /run/longshore-worker/health    worker started with --health-file: connected?

Exit code 0: yes; 6: no; 2: wrong usage.")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// Check only whether the server is alive, not whether it is ready.
    #[arg(long)]
    live: bool,
    /// Check a worker on this machine by the file that it keeps with --health-file.
    #[arg(long, value_name = "FILE", conflicts_with = "live")]
    file: Option<PathBuf>,
}

/// Checks and prints the state.
pub(crate) async fn health(flags: Flags) -> anyhow::Result<()> {
    let word = match &flags.file {
        Some(file) => of_worker(file)?,
        None => of_server(&flags).await?,
    };
    match records::print(flags.common.format, &serde_json::json!({ "status": word }), "status")? {
        true => Ok(()),
        false => screen::line(word),
    }
}

fn of_worker(file: &Path) -> anyhow::Result<&'static str> {
    client::health::check(file).map_err(|unwell| {
        let text = format!("{:#}", anyhow::Error::new(unwell));
        Failure::new(Exit::Unavailable, text).hint("see the worker's log")
    })?;
    Ok("connected")
}

async fn of_server(flags: &Flags) -> anyhow::Result<&'static str> {
    let api = Api::new(&flags.common.server_args)?;
    let (path, word) = if flags.live { ("healthz", "alive") } else { ("readyz", "ready") };
    // Any other response means that the server is not ready.
    let request = api.get(&[path]).timeout(TIMEOUT);
    api.send(request).await.map_err(|error| match error.downcast::<Failure>() {
        Ok(failure) => failure.with_exit(Exit::Unavailable).into(),
        Err(error) => error,
    })?;
    Ok(word)
}

/// Shorter than the usual timeout of a health check (Docker's default is 30 s; 5 s is common).
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(4);
