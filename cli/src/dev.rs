//! `longshore dev`: a server and a worker in one process, for trying out and developing jobs.

use std::path::PathBuf;
use std::sync::Arc;

use server::config::{Deploys, FaultyJobsFile, Settings};
use tokio_util::sync::CancellationToken;

use crate::failure::{Exit, Failure};
use crate::logging::{self, LoggingArgs};
use crate::{hangup, server as serving, worker as working};

/// Run a server and a worker in one process, with all data in one directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore dev                          uses ./jobs.yaml; in another terminal: longshore run NAME --follow
  longshore dev --no-docker --allow-process

A jobs file that changes is read again. Ctrl-C stops the jobs and exits; the jobs start again with the next 'longshore dev'.")]
pub(crate) struct Flags {
    /// Address to listen on; loopback only.
    #[arg(long, env = "LONGSHORE_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    listen: String,
    /// File with the job definitions, or a directory of such files (*.yaml, *.yml).
    #[arg(long, env = "LONGSHORE_JOBS", default_value = "jobs.yaml", value_name = "PATH")]
    jobs: PathBuf,
    /// Directory for all data.
    #[arg(long, env = "LONGSHORE_DATA", default_value = ".longshore", value_name = "DIR")]
    data: PathBuf,
    /// Number of jobs that run at once [default: the number of cores].
    #[arg(long, env = "LONGSHORE_SLOTS", value_name = "N", value_parser = crate::args::slots)]
    slots: Option<u32>,
    /// Directory with the secrets of jobs, a file each.
    #[arg(long, env = "LONGSHORE_SECRETS_DIR", value_name = "DIR")]
    secrets_dir: Option<PathBuf>,
    /// File with limits on what definitions may do.
    #[arg(long, env = "LONGSHORE_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Let 'longshore deploy' replace the jobs file.
    #[arg(long, env = "LONGSHORE_ALLOW_DEPLOY")]
    allow_deploy: bool,
    /// Post notifications also to this network, such as 127.0.0.0/8; without it only to public addresses. May be repeated.
    #[arg(long, env = "LONGSHORE_ALLOW_WEBHOOK", value_name = "CIDR", value_delimiter = ',')]
    allow_webhook: Vec<String>,
    #[command(flatten)]
    logging: LoggingArgs,
    #[command(flatten)]
    runtimes: working::RuntimeArgs,
}

/// Runs both until a signal; the worker stops first, then the server.
pub(crate) fn dev(flags: Flags) -> anyhow::Result<()> {
    logging::start(&flags.logging)?;
    let config = Settings {
        listen: flags.listen,
        data_dir: flags.data.join("server"),
        jobs_file: flags.jobs,
        // The file was probably edited just now, and its faults are what the user wants to see.
        faulty_jobs_file: FaultyJobsFile::Refuse,
        deploys: if flags.allow_deploy { Deploys::Allowed } else { Deploys::Refused },
        secrets_dir: flags.secrets_dir,
        policy_file: flags.policy,
        allowed_webhooks: flags.allow_webhook,
        ..Settings::default()
    };
    let config = config.check().map_err(serving::usage_failure)?;
    if !config.listen.ip().is_loopback() {
        return Err(loopback_only());
    }
    let worker_args = working::WorkerArgs::for_dev(flags.data.join("worker"), flags.slots);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let hangups = hangup::listen()?;
        let server = serving::start(config, shutdown.clone()).await?;
        tokio::spawn(hangup::reload_at_each(hangups, server.reloader()));
        let (reloader, until) = (server.reloader(), shutdown.clone());
        tokio::spawn(async move { reloader.watch(until).await });
        let worker = working::config(&server.address().to_string(), worker_args, flags.runtimes)?;
        let signals = client::shutdown_signals()?;
        let serving_ended = tokio::spawn(server.run());
        let working_ended = tokio::spawn(client::run(worker, signals, Arc::default()));
        tokio::pin!(serving_ended, working_ended);
        tokio::select! {
            ended = &mut working_ended => ended?.map_err(working::failure_from)?,
            ended = &mut serving_ended => {
                ended?.map_err(serving::failure_from)?;
                return Err(Failure::new(Exit::Failed, "the server stopped by itself").into());
            }
        }
        shutdown.cancel();
        serving_ended.await?.map_err(serving::failure_from)
    });
    working::shutdown_runtime(runtime);
    outcome
}

/// Replaces the server's error, whose hint names flags that `dev` does not have.
fn loopback_only() -> anyhow::Error {
    Failure::new(Exit::Usage, "--listen: dev listens on loopback only")
        .hint("'longshore server' and 'longshore worker' run on several machines")
        .into()
}
