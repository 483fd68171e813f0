//! A worker's settings, checked once. They come from flags, variables or tests.

use std::path::PathBuf;

use protocol::resources::OfferedResources;
use protocol::wire::{LABELS_MAX, SLOTS_MAX};
use worker::image_gc::Watermarks;

use crate::client_certificate::ClientCertificateFiles;
use crate::offer;
use crate::runtime::policy::Allow;
use crate::ws::Address;

/// A worker's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the server.
    pub server: Address,
    /// The name that people use: 1 to 63 of `A-Z a-z 0-9 . _ -`, beginning with a letter or a digit.
    pub name: String,
    /// The file with the bearer token, read at each connection; `None` if the server is open.
    pub token_file: Option<PathBuf>,
    /// A file with the certificates of authorities that may sign the server's certificate; `None`: those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The certificate for a server that asks for one.
    pub client_certificate: Option<ClientCertificateFiles>,
    /// Directory of the identity and the attempts.
    pub state_dir: PathBuf,
    /// A tmpfs for secrets; `None`: `/dev/shm`. A container engine that sees other file systems than the
    /// worker must see it at the same path.
    pub secrets_tmpfs: Option<PathBuf>,
    /// Several workers of this host share the state directory; each takes the first free `slot-N` in it.
    pub share_state_dir: bool,
    /// Join although the server does not know this state directory's secret.
    pub rejoin: bool,
    /// Number of containers that may run at once.
    pub slots: u32,
    /// Number of attempts that may wait in front of the slots.
    pub backlog: u32,
    /// Number of images that are pulled at once.
    pub pull_slots: u32,
    /// Shares of the container engine's disk at which images are removed; `None`: images stay.
    pub image_gc: Option<Watermarks>,
    /// Labels that jobs may require.
    pub labels: Vec<(String, String)>,
    /// Resources that jobs may reserve.
    pub resources: OfferedResources,
    /// The runtimes that it offers.
    pub runtimes: Runtimes,
    /// The reaction to SIGTERM.
    pub on_term: OnTerm,
    /// A file that holds the end of the lease: see [`health`](crate::health).
    pub health_file: Option<PathBuf>,
}

/// The runtimes that a worker offers.
#[derive(Clone, Debug)]
pub struct Runtimes {
    /// The docker program, or one with the same command line; `None`: no containers.
    pub docker: Option<PathBuf>,
    /// Operations that containers may use beyond the default.
    pub allow: Allow,
    /// Plain subprocesses, for definitions that ask for them.
    pub process: bool,
    /// Simulated attempts, for tests and benchmarks.
    pub fake: bool,
}

/// The reaction to the first SIGTERM. Each further one goes one step on, in the order of these variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTerm {
    /// Finish what runs, give back the rest.
    #[default]
    Drain,
    /// Stop what runs, with grace.
    Interrupt,
    /// Leave at once: containers go on, and the next start adopts them.
    Detach,
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// See [`AddressError`](crate::ws::AddressError).
    #[error("--server")]
    Server(#[source] crate::ws::AddressError),
    /// The name is invalid.
    #[error("--name: `{}` must be 1 to 63 of A-Z a-z 0-9 . _ - and begin with a letter or a digit", .0.escape_debug())]
    Name(String),
    /// The number of slots is out of range.
    #[error("--slots: {0} is not between 1 and {SLOTS_MAX}")]
    Slots(u32),
    /// The backlog is out of range.
    #[error("--backlog: {0} is not between 0 and {SLOTS_MAX}")]
    Backlog(u32),
    /// The number of pull slots is out of range.
    #[error("--pull-slots: {0} is not between 1 and {PULL_SLOTS_MAX}")]
    PullSlots(u32),
    /// The watermarks are invalid.
    #[error("--image-gc: `{}` is not high=PERCENT,low=PERCENT with a low watermark below the high one, such as high=85%,low=70%", .0.escape_debug())]
    ImageGc(String),
    /// There are no images to remove.
    #[error("--image-gc: it needs Docker, which --no-docker switches off")]
    ImageGcWithoutDocker,
    /// The disk cannot be measured.
    #[error(
        "--image-gc: this worker does not see its engine's disks: the engine is on another machine, or the worker runs in a container whose own engine does not run, or runs as another user"
    )]
    ImageGcBlind,
    /// The label is not `key=value`, or is too long.
    #[error("--label: `{}` must be KEY=VALUE in one line, each at most {LABEL_BYTES_MAX} bytes", .0.escape_debug())]
    Label(String),
    /// The key is given twice.
    #[error("--label: `{}` is given twice", .0.escape_debug())]
    LabelTwice(String),
    /// More labels than a server takes.
    #[error("--label: there are {0}, at most {LABELS_MAX} are allowed")]
    Labels(usize),
    /// See [`OfferError`](offer::OfferError).
    #[error(transparent)]
    Resources(#[from] offer::OfferError),
    /// The worker could run nothing.
    #[error("no runtime is left: allow docker, process or fake")]
    NoRuntime,
}

impl Config {
    /// Settings for this server with defaults for everything else: docker only, one slot per core, and a backlog of the same size. So a
    /// freed slot starts its next attempt without asking the server, and at most one round of work waits behind a slow one.
    ///
    /// # Errors
    /// `server` is not a valid address; see [`Address`].
    pub fn new(server: &str) -> Result<Self, ConfigError> {
        let cores =
            std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
        Ok(Self {
            server: Address::parse(server).map_err(ConfigError::Server)?,
            name: host_name(),
            token_file: None,
            ca_file: None,
            client_certificate: None,
            state_dir: default_state_dir(),
            secrets_tmpfs: None,
            share_state_dir: false,
            rejoin: false,
            slots: cores.min(SLOTS_MAX),
            backlog: cores.min(SLOTS_MAX),
            pull_slots: PULL_SLOTS,
            image_gc: None,
            labels: Vec::new(),
            resources: offer::measured(),
            runtimes: Runtimes {
                docker: Some(PathBuf::from("docker")),
                allow: Allow::default(),
                process: false,
                fake: false,
            },
            on_term: OnTerm::default(),
            health_file: None,
        })
    }

    /// Checks that a worker can be started with these settings.
    ///
    /// # Errors
    /// The first invalid setting, and the valid values.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_name(&self.name)?;
        if !(1..=SLOTS_MAX).contains(&self.slots) {
            return Err(ConfigError::Slots(self.slots));
        }
        if self.backlog > SLOTS_MAX {
            return Err(ConfigError::Backlog(self.backlog));
        }
        if !(1..=PULL_SLOTS_MAX).contains(&self.pull_slots) {
            return Err(ConfigError::PullSlots(self.pull_slots));
        }
        if self.labels.len() > LABELS_MAX {
            return Err(ConfigError::Labels(self.labels.len()));
        }
        for (index, (key, value)) in self.labels.iter().enumerate() {
            if !is_label(key, value) {
                return Err(ConfigError::Label(format!("{key}={value}")));
            }
            if self.labels[..index].iter().any(|(other, _)| other == key) {
                return Err(ConfigError::LabelTwice(key.clone()));
            }
        }
        if self.image_gc.is_some() && self.runtimes.docker.is_none() {
            return Err(ConfigError::ImageGcWithoutDocker);
        }
        if self.runtimes.docker.is_none() && !self.runtimes.process && !self.runtimes.fake {
            return Err(ConfigError::NoRuntime);
        }
        Ok(())
    }
}

/// Reads `key=value`.
///
/// # Errors
/// There is no `=`, no key before it, a control character, or a key or value of more than 253 bytes.
pub fn parse_label(text: &str) -> Result<(String, String), ConfigError> {
    match text.split_once('=') {
        Some((key, value)) if is_label(key, value) => Ok((key.to_owned(), value.to_owned())),
        _ => Err(ConfigError::Label(text.to_owned())),
    }
}

/// Reads `high=85%,low=70%`, also with a space instead of the comma, in any order, and without the percent signs.
///
/// # Errors
/// A part is missing or given twice, or no percentage, or the low watermark is not below the high one.
pub fn parse_image_gc(text: &str) -> Result<Watermarks, ConfigError> {
    let wrong = || ConfigError::ImageGc(text.to_owned());
    let (mut high, mut low) = (None, None);
    for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(wrong)?;
        let percent: u8 = value.strip_suffix('%').unwrap_or(value).parse().map_err(|_| wrong())?;
        let watermark = match key {
            "high" => &mut high,
            "low" => &mut low,
            _ => return Err(wrong()),
        };
        if watermark.replace(percent).is_some() {
            return Err(wrong());
        }
    }
    high.zip(low).and_then(|(high, low)| Watermarks::new(high, low)).ok_or_else(wrong)
}

fn is_label(key: &str, value: &str) -> bool {
    let plain = |text: &str| text.len() <= LABEL_BYTES_MAX && !text.chars().any(char::is_control);
    !key.is_empty() && plain(key) && plain(value)
}

/// Checks the name of a worker.
///
/// # Errors
/// The name is invalid; the text says what is valid.
pub fn check_name(name: &str) -> Result<(), ConfigError> {
    if is_name(name) { Ok(()) } else { Err(ConfigError::Name(name.to_owned())) }
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(is_name_byte)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

/// The host's name in the form of a worker's name.
fn host_name() -> String {
    let name = rustix::system::uname();
    let fitting: String = name
        .nodename()
        .to_string_lossy()
        .bytes()
        .map(|byte| if is_name_byte(byte) { char::from(byte) } else { '-' })
        .skip_while(|first| !first.is_ascii_alphanumeric())
        .take(NAME_BYTES_MAX)
        .collect();
    if fitting.is_empty() { "worker".to_owned() } else { fitting }
}

fn default_state_dir() -> PathBuf {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    match home {
        Some(home) if !rustix::process::geteuid().is_root() => {
            PathBuf::from(home).join(".local/state/longshore-worker")
        }
        _ => PathBuf::from("/var/lib/longshore-worker"),
    }
}

/// Default number of pull slots. The network and the disk limit pulls, so more at once make each slower; with two, an image that cannot
/// be had does not hold up all others.
const PULL_SLOTS: u32 = 2;
/// Each pull is a process and a log of its progress.
pub const PULL_SLOTS_MAX: u32 = 64;
/// The length of a DNS label.
const NAME_BYTES_MAX: usize = 63;
/// The length of a DNS name.
const LABEL_BYTES_MAX: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new("localhost:8080").expect("an address")
    }

    #[test]
    fn the_defaults_can_be_started_with() {
        assert_eq!(config().check(), Ok(()));
    }

    #[test]
    fn each_invalid_setting_is_named() {
        let with = |change: fn(&mut Config)| {
            let mut config = config();
            change(&mut config);
            config.check().map_err(|error| error.to_string().split(':').next().unwrap_or_default().to_owned())
        };
        assert_eq!(with(|it| it.name = "a b".into()), Err("--name".into()));
        assert_eq!(with(|it| it.name = "-a".into()), Err("--name".into()));
        assert_eq!(with(|it| it.slots = 0), Err("--slots".into()));
        assert_eq!(with(|it| it.slots = 1_000_000), Err("--slots".into()));
        assert_eq!(with(|it| it.backlog = 1_000_000), Err("--backlog".into()));
        assert_eq!(with(|it| it.pull_slots = 0), Err("--pull-slots".into()));
        assert_eq!(with(|it| it.labels = vec![(String::new(), "x".into())]), Err("--label".into()));
        assert_eq!(with(|it| it.labels = vec![("a".into(), "x".into()); 2]), Err("--label".into()));
        assert_eq!(with(|it| it.runtimes.docker = None), Err("no runtime is left".into()));
        let without_docker = with(|it| {
            it.image_gc = Watermarks::new(85, 70);
            it.runtimes.docker = None;
            it.runtimes.process = true;
        });
        assert_eq!(without_docker, Err("--image-gc".into()));
    }

    #[test]
    fn watermarks_are_read_in_each_spelling() {
        for text in ["high=85%,low=70%", "high=85% low=70%", "low=70, high=85", "high=85,low=70%"] {
            assert_eq!(parse_image_gc(text).ok(), Watermarks::new(85, 70), "{text}");
        }
        for text in [
            "",
            "high=85%",
            "85,70",
            "high=70%,low=85%",
            "high=101,low=5",
            "high=9,high=8,low=5",
            "high=-1,low=5",
            "max=9,low=5",
        ] {
            assert_eq!(parse_image_gc(text), Err(ConfigError::ImageGc(text.to_owned())));
        }
    }

    #[test]
    fn a_label_has_a_key_and_may_have_an_empty_value() {
        assert_eq!(parse_label("gpu=a100"), Ok(("gpu".into(), "a100".into())));
        assert_eq!(parse_label("gpu="), Ok(("gpu".into(), String::new())));
        assert!(parse_label("gpu").is_err());
        assert!(parse_label("=a100").is_err());
    }

    #[test]
    fn a_refused_label_says_what_labels_are() {
        let long = format!("a={}", "x".repeat(254));
        for text in ["gpu", "a=x\ny", &long] {
            let error = parse_label(text).expect_err("refused").to_string();
            assert!(error.ends_with("must be KEY=VALUE in one line, each at most 253 bytes"), "{error}");
        }
    }
}
