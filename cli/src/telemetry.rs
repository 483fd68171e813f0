//! Logging of the long-running verbs: to standard error, as much as `--log` says.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::failure::{Exit, Failure};

/// How much is logged.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Logging {
    /// What is logged: error, warn, info, debug or trace, also per module (info,longshore_server=debug).
    #[arg(long, env = "LONGSHORE_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
}

/// Starts logging; from here on, events are written to standard error.
pub(crate) fn start(logging: &Logging) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&logging.log).map_err(|error| {
        Failure::new(Exit::Usage, format!("--log: {error}"))
            .hint("for example info, or info,longshore_server=debug")
    })?;
    let colours = crate::screen::stderr_has_colour();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(std::io::stderr().is_terminal())
        .try_init()
        .map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
