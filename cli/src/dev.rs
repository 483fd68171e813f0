//! `longshore dev`: a server and a worker in one process, for one person on one machine.

use std::path::PathBuf;

use server::config::{Settings, SettingsError};
use tokio_util::sync::CancellationToken;

use crate::failure::{Exit, Failure};
use crate::telemetry::{self, Logging};
use crate::{server as serving, worker as working};

/// Run a server and a worker in one process, with everything in a directory right here.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore dev                          with ./jobs.yaml; then, elsewhere: longshore run NAME --follow
  longshore dev --no-docker --allow-process

Ctrl-C stops the jobs with grace and leaves; they start again with the next 'longshore dev'.")]
pub(crate) struct Flags {
    /// Where to listen, on loopback.
    #[arg(long, env = "LONGSHORE_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    listen: String,
    /// The job definitions.
    #[arg(long, env = "LONGSHORE_JOBS", default_value = "jobs.yaml", value_name = "FILE")]
    jobs: PathBuf,
    /// Where everything is kept.
    #[arg(long, env = "LONGSHORE_DATA", default_value = ".longshore", value_name = "DIR")]
    data: PathBuf,
    /// How many jobs may run at once [default: the number of cores].
    #[arg(long, env = "LONGSHORE_SLOTS", value_name = "N", value_parser = working::slots)]
    slots: Option<u32>,
    #[command(flatten)]
    logging: Logging,
    #[command(flatten)]
    runtimes: working::Runtimes,
}

/// Runs both until told to leave: first the worker leaves, then the server.
pub(crate) fn dev(flags: Flags) -> anyhow::Result<()> {
    telemetry::start(&flags.logging)?;
    let config = Settings {
        listen: flags.listen,
        data_dir: flags.data.join("server"),
        jobs_file: flags.jobs,
        ..Settings::default()
    };
    let config = config.check().map_err(|wrong| match wrong {
        SettingsError::OpenBeyondLoopback => loopback_only(),
        other => serving::wrong(other),
    })?;
    let room = working::Room::for_dev(flags.data.join("worker"), flags.slots);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let leaving = CancellationToken::new();
        let server = serving::start(config, leaving.clone()).await?;
        let worker = working::config(&server.address().to_string(), room, flags.runtimes)?;
        let terms = client::terms()?;
        let serving_ended = tokio::spawn(server.run());
        let working_ended = tokio::spawn(client::run(worker, terms));
        tokio::pin!(serving_ended, working_ended);
        tokio::select! {
            ended = &mut working_ended => ended?.map_err(working::told)?,
            ended = &mut serving_ended => {
                ended?.map_err(serving::told)?;
                return Err(Failure::new(Exit::Failed, "the server has left by itself").into());
            }
        }
        leaving.cancel();
        serving_ended.await?.map_err(serving::told)
    });
    working::end(runtime);
    outcome
}

/// The server would advise flags that are not here.
fn loopback_only() -> anyhow::Error {
    Failure::new(Exit::Usage, "--listen: dev listens on loopback only")
        .hint("'longshore server' and 'longshore worker' are for more than one machine")
        .into()
}
