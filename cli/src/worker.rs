//! `longshore worker`: a worker's settings from flags, and its life.

use std::path::PathBuf;
use std::time::Duration;

use client::config::{Config, OnTerm, parse_label};
use protocol::wire::SLOTS_MAX;
use tokio::runtime::Runtime;

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
    #[arg(
        long,
        env = "LONGSHORE_SHARE_STATE_DIR",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    share_state_dir: Option<bool>,
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
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let terms = client::terms()?;
        client::run(config, terms).await.map_err(told)
    });
    end(runtime);
    outcome
}

/// Ends what still runs. A disk that hangs holds threads for as long as it does: they go with the process.
pub(crate) fn end(runtime: Runtime) {
    runtime.shutdown_timeout(LAST_CALLS);
}

/// What an orderly call to the disk may still take.
const LAST_CALLS: Duration = Duration::from_secs(2);

impl Room {
    /// A worker that lives and goes with one person's server.
    pub(crate) fn for_dev(state_dir: PathBuf, slots: Option<u32>) -> Self {
        Self {
            name: Some("dev".to_owned()),
            state_dir: Some(state_dir),
            share_state_dir: Some(false),
            slots,
            backlog: None,
            label: Vec::new(),
            on_term: Some(Leaving::Interrupt),
        }
    }

    /// Whether others may have their place in the same state directory: in a container they may, unless somebody says otherwise.
    fn shares_state_dir(&self, contained: bool) -> bool {
        self.share_state_dir.unwrap_or(contained)
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
    let contained = client::in_container();
    config.share_state_dir = room.shares_state_dir(contained);
    if let Some(name) = room.name {
        config.name = name;
    }
    if let Some(directory) = room.state_dir {
        config.state_dir = directory;
    }
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

const ON_TERM: &str = "What the first SIGTERM means: drain (finish what runs), interrupt (stop it) or detach (leave at once; containers go on, and the next start takes them up) [default: detach in a container, else drain]";

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use crate::{Verb, settings};

    /// Whether the state directory is shared: outside of a container, and in one.
    fn shares(words: &[&str]) -> [bool; 2] {
        let line = ["longshore", "worker"].iter().chain(words).map(std::ffi::OsString::from);
        let asked = settings::parse(line).unwrap_or_else(|_| panic!("{words:?} should be understood"));
        let Verb::Worker(flags) = asked.program.verb else { panic!("it is a worker") };
        [false, true].map(|contained| flags.room.shares_state_dir(contained))
    }

    #[test]
    fn what_is_said_of_the_state_directory_holds_in_a_container_too() {
        assert_eq!(shares(&[]), [false, true]);
        assert_eq!(shares(&["--share-state-dir"]), [true, true]);
        assert_eq!(shares(&["--share-state-dir=false"]), [false, false]);
        for (word, expected) in [("true", [true, true]), ("false", [false, false])] {
            let mut file = tempfile::NamedTempFile::new().expect("a file");
            writeln!(file, "share_state_dir: {word}").expect("it is written");
            let path = file.path().to_str().expect("it is text");
            assert_eq!(shares(&["--config", path]), expected, "{word} in the file");
        }
    }
}
