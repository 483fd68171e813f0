//! `longshore health`: for container health checks and scripts that wait for a server.

use crate::Asking;
use crate::api::Api;
use crate::screen;

/// Ask whether the server is up and ready; the exit code tells.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore health             ready to accept jobs?
  longshore health --live      alive at all?

Exit code 0 is yes, 6 is no.")]
pub(crate) struct Flags {
    #[command(flatten)]
    asking: Asking,
    /// Ask only whether it is alive, not whether it is ready.
    #[arg(long)]
    live: bool,
}

/// Asks, and says so.
pub(crate) async fn health(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.asking.door)?;
    let (path, word) = if flags.live { ("healthz", "alive") } else { ("readyz", "ready") };
    api.send(api.fetch(&[path]).timeout(PATIENCE)).await?;
    match flags.asking.format {
        screen::Format::Table => screen::line(word),
        screen::Format::Json => screen::json(&serde_json::json!({ "status": word })),
    }
}

/// Less than a health check's usual patience (docker's is 30 s, often set to 5 s).
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(4);
