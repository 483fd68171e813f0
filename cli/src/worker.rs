//! `longshore worker`: the flags of a worker, its start and its shutdown.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::config::{Config, ConfigError, OnTerm, parse_image_gc, parse_label};
use client::offer;
use client::tls::TrustError;
use protocol::labels;
use protocol::wire::SLOTS_MAX;
use tokio::runtime::Runtime;

use crate::args::{self, number};
use crate::client_certificate::ClientCertificateArgs;
use crate::failure::{Exit, Failure};
use crate::logging::{self, LoggingArgs};
use crate::settings::Settings;
use crate::{core_dumps, join, systemd, workers};

/// Run a worker: take jobs from a server and run them in containers.
///
/// If the server is unreachable, running jobs continue, reports and output are kept, and the worker reconnects forever.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  longshore worker --server https://jobs.example:8080 --token-file /etc/longshore/tokens/worker
  longshore worker --slots 8 --label zone=b --allow-mount /srv/data
  longshore worker --no-docker --allow-process      plain processes only

The first SIGTERM (or Ctrl-C) does what --on-term says. Each further one goes one step on: drain, interrupt, detach.")]
pub(crate) struct Flags {
    #[command(subcommand)]
    verb: Option<WorkerVerb>,
    /// The server: HOST:PORT, with the base path if it has one, or a URL.
    #[arg(long, env = "LONGSHORE_SERVER", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub(crate) server: String,
    /// File with the token for workers, readable by its owner only.
    #[arg(long, env = "LONGSHORE_WORKER_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Trust the certificate authorities in this file, not the system's.
    #[arg(long, env = "LONGSHORE_CA_FILE", value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) client_certificate: ClientCertificateArgs,
    /// Join although the server does not know this state directory, because it was lost or the server's data was.
    #[arg(long, env = "LONGSHORE_REJOIN")]
    rejoin: bool,
    /// A tmpfs for the secrets of jobs [default: /dev/shm]. A worker in a container shares it with the machine at the same path.
    #[arg(long, env = "LONGSHORE_SECRETS_TMPFS", value_name = "DIR")]
    secrets_tmpfs: Option<PathBuf>,
    /// Keep a file that says until when the worker counts as connected, for `longshore health --file`.
    #[arg(long, env = "LONGSHORE_HEALTH_FILE", value_name = "FILE")]
    health_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) worker_args: WorkerArgs,
    #[command(flatten)]
    logging: LoggingArgs,
    #[command(flatten)]
    pub(crate) file: Settings,
    #[command(flatten)]
    runtimes: RuntimeArgs,
}

#[derive(Debug, clap::Subcommand)]
enum WorkerVerb {
    Join(join::Flags),
    Revoke(workers::RevokeFlags),
}

/// The worker's name, state directory and capacity.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    /// Name of this worker [default: the host name].
    #[arg(long, env = "LONGSHORE_NAME", value_name = "NAME")]
    name: Option<String>,
    /// Directory for the worker's identity and attempts [default: as root /var/lib/longshore-worker, else ~/.local/state/longshore-worker].
    #[arg(long, env = "LONGSHORE_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Share the state directory with other workers: each takes the first free slot-N in it [default in a container].
    #[arg(
        long,
        env = "LONGSHORE_SHARE_STATE_DIR",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    share_state_dir: Option<bool>,
    /// Number of jobs that run at once; 0 means the maximum, 10,000 [default: the number of cores].
    #[arg(long, env = "LONGSHORE_SLOTS", value_name = "N", value_parser = args::slots)]
    slots: Option<u32>,
    /// Number of jobs that may wait at this worker for a free slot [default: the number of cores].
    #[arg(long, env = "LONGSHORE_BACKLOG", value_name = "N", value_parser = backlog)]
    backlog: Option<u32>,
    /// Number of images that are pulled at once; jobs whose image is pulled take no slot [default: 2].
    #[arg(long, env = "LONGSHORE_PULL_SLOTS", value_name = "N", value_parser = pull_slots)]
    pull_slots: Option<u32>,
    /// Remove images that this worker has pulled when the engine's disk is full, such as high=85%,low=70%: from the high watermark
    /// on, least recently used first, down to the low one. Images in use, or used within an hour, stay [default: images stay].
    #[arg(long, env = "LONGSHORE_IMAGE_GC", value_name = "WATERMARKS", num_args = 1..=2)]
    image_gc: Vec<String>,
    /// Label of this worker, which definitions may require. May be repeated; in the variable separated by commas.
    #[arg(long, env = "LONGSHORE_LABELS", value_name = "KEY=VALUE", value_delimiter = ',')]
    label: Vec<String>,
    /// Cores that jobs may reserve together; 0: cores are not counted [default: the cores of this process].
    #[arg(long, env = "LONGSHORE_CPUS", value_name = "CORES")]
    cpus: Option<String>,
    /// Memory that jobs may reserve together, such as 16g; 0: memory is not counted [default: the memory of the machine or container].
    #[arg(long, env = "LONGSHORE_MEMORY", value_name = "SIZE")]
    memory: Option<String>,
    /// Ids of the GPUs that jobs may reserve, separated by commas, such as 0,1 [default: none].
    #[arg(long, env = "LONGSHORE_OFFERED_GPUS", value_name = "IDS", value_delimiter = ',')]
    gpus: Vec<String>,
    /// Amount of a resource that jobs may reserve under this name, such as license=2. May be repeated; in the variable separated by commas.
    #[arg(long, env = "LONGSHORE_RESOURCES", value_name = "NAME=AMOUNT", value_delimiter = ',')]
    resource: Vec<String>,
    /// Effect of the first SIGTERM [default: detach in a container, else drain].
    #[arg(long, env = "LONGSHORE_ON_TERM", value_enum, value_name = "WHAT", hide_possible_values = true, help = ON_TERM)]
    on_term: Option<OnTermArg>,
}

/// Runtimes of a worker, and what it allows jobs. The server cannot extend it.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Runtimes and permissions of jobs")]
pub(crate) struct RuntimeArgs {
    /// The docker program, or a compatible one.
    #[arg(long, env = "LONGSHORE_DOCKER", default_value = "docker", value_name = "PROGRAM")]
    docker: PathBuf,
    /// Run no containers.
    #[arg(long, env = "LONGSHORE_NO_DOCKER", conflicts_with = "docker")]
    no_docker: bool,
    /// Run definitions with `runtime: process` as plain processes of this worker's user.
    #[arg(long, env = "LONGSHORE_ALLOW_PROCESS")]
    allow_process: bool,
    /// Simulate definitions with `runtime: fake`, for tests and benchmarks.
    #[arg(long, env = "LONGSHORE_ALLOW_FAKE")]
    allow_fake: bool,
    /// Allow bind mounts below this directory. May be repeated.
    #[arg(long, env = "LONGSHORE_ALLOW_MOUNT", value_name = "DIR", value_delimiter = ',')]
    allow_mount: Vec<PathBuf>,
    /// Allow mounts of paths below --allow-mount although the worker does not see its engine's disks (in a container, or with a remote
    /// engine). A job that may write there can leave a link through which a later job mounts any path of the engine's machine.
    #[arg(long, env = "LONGSHORE_ALLOW_MOUNT_BELOW")]
    allow_mount_below: bool,
    /// Allow named volumes that match (`*` matches any text). May be repeated.
    #[arg(long, env = "LONGSHORE_ALLOW_VOLUME", value_name = "PATTERN", value_delimiter = ',')]
    allow_volume: Vec<String>,
    /// Allow a network of the engine, beside the default bridge and none. May be repeated.
    #[arg(long, env = "LONGSHORE_ALLOW_NETWORK", value_name = "NAME", value_delimiter = ',')]
    allow_network: Vec<String>,
    /// Allow only images that match (`*` matches any text). May be repeated.
    #[arg(long, env = "LONGSHORE_ALLOW_IMAGE", value_name = "PATTERN", value_delimiter = ',')]
    allow_image: Vec<String>,
    /// Allow jobs to add this capability. May be repeated.
    #[arg(long, env = "LONGSHORE_ALLOW_CAPABILITY", value_name = "NAME", value_delimiter = ',')]
    allow_capability: Vec<String>,
    /// Allow jobs to use the host's network.
    #[arg(long, env = "LONGSHORE_ALLOW_HOST_NETWORK")]
    allow_host_network: bool,
}

/// Effect of the first SIGTERM.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OnTermArg {
    Drain,
    Interrupt,
    Detach,
}

/// Runs the worker until it has stopped, or the verb behind `worker`.
pub(crate) fn worker(flags: Flags) -> anyhow::Result<()> {
    if let Some(verb) = flags.verb {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        return match verb {
            WorkerVerb::Join(flags) => runtime.block_on(join::join(flags)),
            WorkerVerb::Revoke(flags) => runtime.block_on(workers::revoke(flags)),
        };
    }
    logging::start(&flags.logging)?;
    flags.file.log_source();
    core_dumps::forbid();
    let config = flags.into_config()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let signals = systemd::announce_stop(client::shutdown_signals()?);
        let last_turn = Arc::default();
        systemd::report(Arc::clone(&last_turn));
        client::run(config, signals, last_turn).await.map_err(failure_from)
    });
    shutdown_runtime(runtime);
    outcome
}

impl Flags {
    /// The configuration of the worker.
    ///
    /// # Errors
    /// A value is wrong, or two contradict each other.
    pub(crate) fn into_config(self) -> anyhow::Result<Config> {
        let mut config = config(&self.server, self.worker_args, self.runtimes)?;
        config.token_file = self.token_file;
        config.ca_file = self.ca_file;
        config.client_certificate = self.client_certificate.files()?;
        config.secrets_tmpfs = self.secrets_tmpfs;
        config.rejoin = self.rejoin;
        config.health_file = self.health_file;
        Ok(config)
    }
}

/// Shuts the runtime down. Threads that hang in disk calls end with the process.
pub(crate) fn shutdown_runtime(runtime: Runtime) {
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
}

/// Time for disk calls that are still running.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

impl WorkerArgs {
    /// The worker of `longshore dev`.
    pub(crate) fn for_dev(state_dir: PathBuf, slots: Option<u32>) -> Self {
        Self {
            name: Some("dev".to_owned()),
            state_dir: Some(state_dir),
            share_state_dir: Some(false),
            slots,
            backlog: None,
            pull_slots: None,
            image_gc: Vec::new(),
            label: Vec::new(),
            cpus: None,
            memory: None,
            gpus: Vec::new(),
            resource: Vec::new(),
            on_term: Some(OnTermArg::Interrupt),
        }
    }

    /// Returns true if other workers may use the same state directory: by default in a container only.
    pub(crate) fn shares_state_dir(&self, contained: bool) -> bool {
        self.share_state_dir.unwrap_or(contained)
    }
}

/// Converts a worker error into a failure.
pub(crate) fn failure_from(error: client::Error) -> anyhow::Error {
    match error {
        client::Error::Config(wrong) => usage(wrong),
        client::Error::Token(_) => usage_with_hint(error, "check --token-file"),
        client::Error::Trust(TrustError::Own(_)) => {
            usage_with_hint(error, "check --tls-client-cert and --tls-client-key")
        }
        client::Error::Trust(_) => usage_with_hint(error, "check --ca-file"),
        client::Error::Secrets(_) => usage_with_hint(error, "check --secrets-tmpfs"),
        other => other.into(),
    }
}

fn usage_with_hint(error: client::Error, hint: &str) -> anyhow::Error {
    Failure::new(Exit::Usage, format!("{:#}", anyhow::Error::new(error))).hint(hint).into()
}

fn backlog(text: &str) -> Result<u32, String> {
    number(text, 0, SLOTS_MAX)
}

fn pull_slots(text: &str) -> Result<u32, String> {
    number(text, 1, client::config::PULL_SLOTS_MAX)
}

/// Builds the configuration of a worker for this server.
pub(crate) fn config(server: &str, worker_args: WorkerArgs, runtimes: RuntimeArgs) -> anyhow::Result<Config> {
    let mut config = Config::new(server).map_err(usage)?;
    let contained = client::in_container();
    config.share_state_dir = worker_args.shares_state_dir(contained);
    if let Some(name) = worker_args.name {
        config.name = name;
    }
    if let Some(directory) = worker_args.state_dir {
        config.state_dir = directory;
    }
    config.slots = worker_args.slots.unwrap_or(config.slots);
    config.backlog = worker_args.backlog.unwrap_or(config.backlog);
    config.pull_slots = worker_args.pull_slots.unwrap_or(config.pull_slots);
    if !worker_args.image_gc.is_empty() {
        config.image_gc = Some(parse_image_gc(&worker_args.image_gc.join(" ")).map_err(usage)?);
    }
    config.labels =
        worker_args.label.iter().map(|text| parse_label(text)).collect::<Result<_, _>>().map_err(usage)?;
    let is_askable = |name: &str| labels::is_name(name) && name.len() <= labels::ASKED_NAME_BYTES_MAX;
    for (label, _) in config.labels.iter().filter(|(name, _)| !is_askable(name)) {
        tracing::warn!(
            label,
            "no job can ask for this label: a name is 1 to {} letters, digits, . _ - /",
            labels::ASKED_NAME_BYTES_MAX
        );
    }
    if let Some(cpus) = &worker_args.cpus {
        config.resources.cpus_milli =
            offer::parse_cpus(cpus).map_err(|wrong| usage(ConfigError::Resources(wrong)))?;
    }
    if let Some(memory) = &worker_args.memory {
        config.resources.memory_bytes =
            offer::parse_memory(memory).map_err(|wrong| usage(ConfigError::Resources(wrong)))?;
    }
    offer::check_gpus(&worker_args.gpus).map_err(|wrong| usage(ConfigError::Resources(wrong)))?;
    config.resources.gpus.clone_from(&worker_args.gpus);
    config.resources.custom =
        offer::parse_custom(&worker_args.resource).map_err(|wrong| usage(ConfigError::Resources(wrong)))?;
    config.on_term = match worker_args.on_term {
        Some(OnTermArg::Drain) => OnTerm::Drain,
        Some(OnTermArg::Interrupt) => OnTerm::Interrupt,
        Some(OnTermArg::Detach) => OnTerm::Detach,
        None if contained => OnTerm::Detach,
        None => OnTerm::Drain,
    };
    config.runtimes.docker = (!runtimes.no_docker).then_some(runtimes.docker);
    config.runtimes.process = runtimes.allow_process;
    config.runtimes.fake = runtimes.allow_fake;
    config.runtimes.allow = client::runtime::policy::Allow {
        mounts: runtimes.allow_mount,
        mounts_below: runtimes.allow_mount_below,
        volumes: runtimes.allow_volume,
        networks: runtimes.allow_network,
        images: runtimes.allow_image,
        capabilities: runtimes.allow_capability,
        host_network: runtimes.allow_host_network,
        engine_sockets: client::engine_sockets(),
        private_dirs: Vec::new(),
    };
    config.check().map_err(usage)?;
    if config.image_gc.is_some() && !client::sees_engine_disks() {
        return Err(usage(ConfigError::ImageGcBlind));
    }
    Ok(config)
}

fn usage(wrong: client::ConfigError) -> anyhow::Error {
    let text = format!("{:#}", anyhow::Error::new(wrong));
    Failure::new(Exit::Usage, text).hint("see 'longshore worker --help'").into()
}

const ON_TERM: &str = "Effect of the first SIGTERM: drain (finish what runs), interrupt (stop it) or detach (exit at once; containers continue and the next start adopts them) [default: detach in a container, else drain]";

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        flags: Flags,
    }

    #[test]
    fn every_worker_refuses_the_sockets_of_its_engine() {
        let flags = CommandLine::try_parse_from(["longshore", "--allow-mount", "/"]).unwrap().flags;
        let config = config("127.0.0.1:1", flags.worker_args, flags.runtimes).unwrap();
        let refused = config.runtimes.allow.engine_sockets;
        assert!(!refused.is_empty() && refused == client::engine_sockets(), "{refused:?}");
    }
}
