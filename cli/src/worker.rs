//! `longshore worker`: a worker's settings from flags, and its life.

use std::path::{Path, PathBuf};

use client::config::{Config, OnTerm, parse_label};
use protocol::wire::SLOTS_MAX;

use crate::failure::{Exit, Failure};
use crate::settings::Settings;
use crate::telemetry::{self, Logging};

/// Run a worker: take jobs from a server and run them in containers.
///
/// A worker without its server goes on with what runs, keeps its reports and output, and calls again for ever.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore worker --server jobs.example:8080 --token-file /etc/longshore/tokens/worker
  longshore worker --slots 8 --label zone=b --allow-mount /srv/data
  longshore worker --no-docker --allow-process      plain processes only

The first SIGTERM (or Ctrl-C) means what --on-term says, a second one stops the jobs with grace, a third one leaves at once.")]
pub(crate) struct Flags {
    /// The server: HOST:PORT, with the base path if it has one, or a URL.
    #[arg(long, env = "LONGSHORE_SERVER", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    server: String,
    /// A file with the token for workers, readable by its owner only.
    #[arg(long, env = "LONGSHORE_WORKER_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Join although the server does not know this state directory (it was lost, or the server's data was).
    #[arg(long, env = "LONGSHORE_REJOIN")]
    rejoin: bool,
    /// Keep a file that says until when it counts as connected, for `longshore health --file`.
    #[arg(long, env = "LONGSHORE_HEALTH_FILE", value_name = "FILE")]
    health_file: Option<PathBuf>,
    #[command(flatten)]
    room: Room,
    #[command(flatten)]
    logging: Logging,
    #[command(flatten)]
    file: Settings,
    #[command(flatten)]
    runtimes: Runtimes,
}

/// Who a worker is, and how much it takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Room {
    /// What people call this worker [default: the host's name].
    #[arg(long, env = "LONGSHORE_NAME", value_name = "NAME")]
    name: Option<String>,
    /// Where its identity and its attempts are kept [default: as root /var/lib/longshore-worker, else ~/.local/state/longshore-worker].
    #[arg(long, env = "LONGSHORE_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Several workers share the state directory: each takes the first free slot-N in it [default in a container].
    #[arg(long, env = "LONGSHORE_SHARE_STATE_DIR")]
    share_state_dir: bool,
    /// How many containers may run at once [default: the number of cores].
    #[arg(long, env = "LONGSHORE_SLOTS", value_name = "N", value_parser = slots)]
    slots: Option<u32>,
    /// How many jobs may wait here, in front of the slots [default: the number of cores].
    #[arg(long, env = "LONGSHORE_BACKLOG", value_name = "N", value_parser = backlog)]
    backlog: Option<u32>,
    /// A label, for people: no job can ask for one yet. May be repeated; in the variable separated by commas.
    #[arg(long, env = "LONGSHORE_LABELS", value_name = "KEY=VALUE", value_delimiter = ',')]
    label: Vec<String>,
    /// What the first SIGTERM means [default: detach in a container, else drain].
    #[arg(long, env = "LONGSHORE_ON_TERM", value_enum, value_name = "WHAT", hide_possible_values = true, help = ON_TERM)]
    on_term: Option<Leaving>,
}

/// What a worker runs, and what it lets jobs have. No server can widen it.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "What jobs may do here")]
pub(crate) struct Runtimes {
    /// The program that runs containers; anything that speaks like docker.
    #[arg(long, env = "LONGSHORE_DOCKER", default_value = "docker", value_name = "PROGRAM")]
    docker: PathBuf,
    /// Run no containers.
    #[arg(long, env = "LONGSHORE_NO_DOCKER", conflicts_with = "docker")]
    no_docker: bool,
    /// Let definitions with `runtime: process` run as plain processes of this worker's user.
    #[arg(long, env = "LONGSHORE_ALLOW_PROCESS")]
    allow_process: bool,
    /// Pretend to run definitions with `runtime: fake`: for tests and benchmarks.
    #[arg(long, env = "LONGSHORE_ALLOW_FAKE")]
    allow_fake: bool,
    /// Allow bind mounts from below this directory. May be repeated.
    #[arg(long, env = "LONGSHORE_ALLOW_MOUNT", value_name = "DIR", value_delimiter = ',')]
    allow_mount: Vec<PathBuf>,
    /// Allow only images that match (`*` is any text). May be repeated.
    #[arg(long, env = "LONGSHORE_ALLOW_IMAGE", value_name = "PATTERN", value_delimiter = ',')]
    allow_image: Vec<String>,
    /// Allow a capability to be added. May be repeated.
    #[arg(long, env = "LONGSHORE_ALLOW_CAPABILITY", value_name = "NAME", value_delimiter = ',')]
    allow_capability: Vec<String>,
    /// Allow the host's network.
    #[arg(long, env = "LONGSHORE_ALLOW_HOST_NETWORK")]
    allow_host_network: bool,
}

/// What the first SIGTERM means.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Leaving {
    Drain,
    Interrupt,
    Detach,
}

/// Runs the worker until it has left.
pub(crate) fn worker(flags: Flags) -> anyhow::Result<()> {
    telemetry::start(&flags.logging)?;
    flags.file.tell();
    let mut config = config(&flags.server, flags.room, flags.runtimes)?;
    config.token_file = flags.token_file;
    config.rejoin = flags.rejoin;
    config.health_file = flags.health_file;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let terms = client::terms()?;
        client::run(config, terms).await.map_err(told)
    })
}

impl Room {
    /// A worker that lives and goes with one person's server.
    pub(crate) fn for_dev(state_dir: PathBuf, slots: Option<u32>) -> Self {
        Self {
            name: Some("dev".to_owned()),
            state_dir: Some(state_dir),
            share_state_dir: false,
            slots,
            backlog: None,
            label: Vec::new(),
            on_term: Some(Leaving::Interrupt),
        }
    }
}

/// An error of the worker's as the end of a verb.
pub(crate) fn told(error: client::Error) -> anyhow::Error {
    match error {
        client::Error::Config(wrong) => usage(wrong),
        client::Error::Token(_) => {
            let text = format!("{:#}", anyhow::Error::new(error));
            Failure::new(Exit::Usage, text).hint("check --token-file").into()
        }
        other => other.into(),
    }
}

/// Reads how many slots there are to be.
pub(crate) fn slots(text: &str) -> Result<u32, String> {
    number(text, 1, SLOTS_MAX)
}

fn backlog(text: &str) -> Result<u32, String> {
    number(text, 0, SLOTS_MAX)
}

/// Reads a number. What is none is told with the range; what is one and beyond it, [`Config::check`] tells.
fn number(text: &str, from: u32, to: u32) -> Result<u32, String> {
    text.parse().map_err(|_| format!("not a number from {from} to {to}"))
}

/// The settings of a worker of this server.
pub(crate) fn config(server: &str, room: Room, runtimes: Runtimes) -> anyhow::Result<Config> {
    let mut config = Config::new(server).map_err(usage)?;
    let contained = in_container();
    if let Some(name) = room.name {
        config.name = name;
    }
    if let Some(directory) = room.state_dir {
        config.state_dir = directory;
    }
    config.share_state_dir = room.share_state_dir || contained;
    config.slots = room.slots.unwrap_or(config.slots);
    config.backlog = room.backlog.unwrap_or(config.backlog);
    config.labels =
        room.label.iter().map(|text| parse_label(text)).collect::<Result<_, _>>().map_err(usage)?;
    config.on_term = match room.on_term {
        Some(Leaving::Drain) => OnTerm::Drain,
        Some(Leaving::Interrupt) => OnTerm::Interrupt,
        Some(Leaving::Detach) => OnTerm::Detach,
        None if contained => OnTerm::Detach,
        None => OnTerm::Drain,
    };
    config.runtimes.docker = (!runtimes.no_docker).then_some(runtimes.docker);
    config.runtimes.process = runtimes.allow_process;
    config.runtimes.fake = runtimes.allow_fake;
    config.runtimes.allow = client::runtime::policy::Allow {
        mounts: runtimes.allow_mount,
        images: runtimes.allow_image,
        capabilities: runtimes.allow_capability,
        host_network: runtimes.allow_host_network,
    };
    config.check().map_err(usage)?;
    Ok(config)
}

fn usage(wrong: client::ConfigError) -> anyhow::Error {
    let text = format!("{:#}", anyhow::Error::new(wrong));
    Failure::new(Exit::Usage, text).hint("see 'longshore worker --help'").into()
}

/// Docker and Podman leave these files in their containers.
fn in_container() -> bool {
    Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists()
}

const ON_TERM: &str = "What the first SIGTERM means: drain (finish what runs), interrupt (stop it) or detach (leave at once; containers go on, and the next start takes them up) [default: detach in a container, else drain]";
