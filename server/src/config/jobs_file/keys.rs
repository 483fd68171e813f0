//! The one table of keys. The reader, the JSON Schema and the reference in the documentation follow from it.

mod choices;
mod container_only;
pub(super) mod limits;
mod misnomers;
pub(super) mod notify;
pub(super) mod params;
mod ranges;
pub(super) mod retention;
mod shape;
pub(super) mod time;

pub(super) use choices::{
    BACKOFF_KINDS, BackoffKind, ON_LOST, PROFILES, PULL_POLICIES, Profile, RETRY_ON, RUNTIMES,
    retry_outcomes, strategies,
};
pub(super) use container_only::{CONTAINER_ONLY, FORBIDDEN};
pub(super) use misnomers::{MISNOMERS, MISPLACED};
pub(super) use ranges::{
    AMOUNTS, BACKOFF_MIN, DELAYS_MAX, DURATION_MAX, DURATION_MIN, EXIT_CODES, EXPECT_MAX, FACTOR_MILLI_MAX,
    GPUS, HEARTBEAT_MIN, LOSSES, PIDS, PRIORITIES, RETRIES, Range, SUCCESS_EXIT_CODES, TIMEOUT, ULIMIT,
    WEIGHTS, range,
};
pub(super) use shape::{Key, Shape, key};

/// The keys of a job, in the order of the documentation.
pub(super) const JOB: &[Key] = &[
    key("image", Shape::Text, "The image to run: [registry[:port]/]name[:tag][@digest]."),
    key(
        "command",
        Shape::Words,
        "The words after the image: a list, or a string that is split into words; no shell runs.",
    ),
    key("entrypoint", Shape::Words, "Replaces the entrypoint of the image."),
    key("environment", Shape::Variables, "Variables for the container: a map, or a list of NAME=value."),
    key("env_file", Shape::Texts, "Files with NAME=value lines, read on the server with the jobs file."),
    key("secrets", Shape::Texts, "Secrets of the server that are files /run/secrets/NAME."),
    key("working_dir", Shape::Text, "The directory in which the program starts."),
    key("user", Shape::LooseText, "user[:group], by name or number."),
    key("volumes", Shape::Volumes, "Bind mounts and named volumes: source:target[:ro], or a map."),
    key("network", Shape::Text, "The network to join; bridge if absent."),
    key("hostname", Shape::Text, "The name of the container within itself; its own id if absent."),
    key(
        "extra_hosts",
        Shape::Hosts,
        "Names and their addresses: a map, or a list of NAME:ADDRESS; host-gateway is the worker's machine.",
    ),
    key("dns", Shape::Texts, "Addresses of name servers; those of the engine if absent."),
    key("dns_search", Shape::Texts, "Domains in which short names are looked up."),
    key("tmpfs", Shape::Texts, "Memory file systems: a path, with options after a colon."),
    key("shm_size", Shape::Size, "The size of /dev/shm; 64m if absent."),
    key("read_only", Shape::Bool, "Whether the root file system of the container is read-only."),
    key("cap_add", Shape::Texts, "Capabilities to add; the worker must allow them."),
    key(
        "profile",
        Shape::Choice(|| names(&PROFILES)),
        "restricted: no network, no capabilities, a read-only root and small limits, unless the job names others.",
    ),
    key("cap_drop", Shape::Texts, "Capabilities to drop; ALL drops every one."),
    key(
        "init",
        Shape::Bool,
        "Whether a small init is process 1, so that SIGTERM reaches the program; true if absent.",
    ),
    key(
        "ulimits",
        Shape::Ulimits,
        "Limits of each process: a map of names to numbers, or to {soft, hard}; -1 is none.",
    ),
    key("group_add", Shape::LooseTexts, "Further groups of the program, by name or number."),
    key("platform", Shape::Text, "os/arch[/variant]."),
    key("labels", Shape::Pairs, "Labels for the container: a map, or a list of name=value."),
    key(
        "pull_policy",
        Shape::Choice(|| names(&PULL_POLICIES)),
        "When the image is pulled; missing if absent.",
    ),
    key("pull_timeout", Shape::Duration, "How long one pull may take; 15m if absent."),
    key(
        "resources",
        Shape::Part(RESOURCES),
        "What the job reserves on its worker, and what its container may use.",
    ),
    key("stop_signal", Shape::LooseText, "The signal that asks the program to stop."),
    key(
        "stop_grace_period",
        Shape::Duration,
        "How long the program may take to stop before it is killed; 10s if absent.",
    ),
    key("runtime", Shape::Choice(|| names(&RUNTIMES)), "How the job is carried out; docker if absent."),
    key("timeout", Shape::DurationOrNone, "How long one attempt may run; 1h if absent, none for no limit."),
    key(
        "retry",
        Shape::PartOrInteger(RETRY, RETRIES),
        "What happens after a failure of the job's own; a number is max.",
    ),
    key(
        "success_exit_codes",
        Shape::Integers(SUCCESS_EXIT_CODES),
        "Exit codes beside 0 that are a success; not 125, 126, 127, 137, 143 and 255, with which engines fail.",
    ),
    key(
        "lost_limit",
        Shape::Integer(LOSSES),
        "Number of lost attempts within a day that puts the job into quarantine; 3 if absent.",
    ),
    key(
        "lost_after",
        Shape::Duration,
        "How long a silent worker keeps its job before a successor starts; 60s if absent.",
    ),
    key(
        "on_lost",
        Shape::Choice(|| names(&ON_LOST)),
        "What becomes of a job whose worker is lost; retry if absent.",
    ),
    key(
        "on_lost_timeout",
        Shape::DurationOrNone,
        "With on_lost: wait, how long the job waits for a silent worker before it ends as lost; none if absent.",
    ),
    key(
        "queue_timeout",
        Shape::DurationOrNone,
        "How long the job may wait for a start before it ends as expired; none if absent.",
    ),
    key(
        "quarantine_timeout",
        Shape::DurationOrNone,
        "How long the job may stay in quarantine before it ends as expired; none if absent.",
    ),
    key(
        "ping_interval",
        Shape::Duration,
        "How often a worker that has the job says at least that it lives; as the server asks of all, if absent.",
    ),
    key(
        "unexpected_retry_delay",
        Shape::Duration,
        "How long the next attempt waits after a failure that is not the job's own; up to 1s, doubling to 1m, if absent.",
    ),
    key(
        "self_fence",
        Shape::Bool,
        "Whether a worker without its server stops the container before a successor may start.",
    ),
    key(
        "schedule",
        Shape::Schedules,
        "When jobs are made without a request: a cron rule, a map with cron, every or at, or a list of these.",
    ),
    key(
        "overlap",
        Shape::Choice(|| names(&time::OVERLAPS)),
        "What happens to a slot while an earlier job of a schedule has not ended; skip if absent.",
    ),
    key(
        "catch_up",
        Shape::Choice(|| names(&time::CATCH_UPS)),
        "Which slots make jobs that passed while the server was away; latest if absent.",
    ),
    key(
        "catch_up_window",
        Shape::Duration,
        "How long ago a slot may have been due, its jitter included, and be caught up; 1d if absent.",
    ),
    key(
        "catch_up_limit",
        Shape::Integer(time::CATCH_UP_LIMITS),
        "How many slots are caught up at most with catch_up: all; 10 if absent.",
    ),
    key("hooks", Shape::Part(HOOKS), "Jobs of the file that get a job when one of its jobs starts or ends."),
    key(
        "notify",
        Shape::PartList(notify::TARGET),
        "Who is told when a job of it fails, and on other occasions.",
    ),
    key(
        "expect",
        Shape::Part(EXPECT),
        "What is expected of its jobs; a definition that does not meet it is shown as stale or slow.",
    ),
    key(
        "retention",
        Shape::Part(retention::RETENTION),
        "How long its ended jobs and their output are kept, within the limits of the server.",
    ),
    key(
        "requires",
        Shape::Conditions,
        "Labels that the worker must have: a map of labels to values, or a list such as gpu, zone in (a, b), cores >= 8.",
    ),
    key(
        "prefers",
        Shape::Weights(WEIGHTS),
        "Conditions on labels with weights: the worker with the highest sum is chosen first.",
    ),
    key("workers", Shape::LooseTexts, "The only workers that may run the job, by id or name."),
    key(
        "strategy",
        Shape::Choice(|| names(&strategies())),
        "Which of several workers gets the job: spread, the least loaded; pack, the most loaded; random. spread if absent.",
    ),
    key(
        "run_on",
        Shape::RunOn,
        "How many workers run the job, each once: one, all that are connected and eligible, or a number; one if absent.",
    ),
    key("log", Shape::Part(LOG), "What is kept of the output, and what is masked in it."),
    key(
        "params",
        Shape::Parts(params::PARAM),
        "Parameters by name: what a submission may give to the job, checked by type.",
    ),
    key(
        "allow",
        Shape::Choices(|| params::FIELDS.iter().map(|(name, _)| *name).collect()),
        "The fields that a submission may carry; all if absent, none with [].",
    ),
    key(
        "input",
        Shape::Json,
        "The input of a job that brings none: any value, at most 256 KiB as JSON; the program reads it in /longshore/input.json.",
    ),
    key("priority", Shape::Integer(PRIORITIES), "Higher goes first; 0 if absent."),
    key(
        "concurrency",
        Shape::PartOrInteger(limits::CONCURRENCY, limits::PERMITS),
        "How many jobs may run at once; a number is limit.",
    ),
    key("rate_limit", Shape::Part(limits::RATE_LIMIT), "How often a job may start."),
    key("max_queued", Shape::Integer(limits::QUEUED), "How many jobs may wait; more are refused."),
    key("unique", Shape::Part(limits::UNIQUE), "At most one job for each key has not ended."),
    key("description", Shape::Text, "For people."),
    key("owner", Shape::Text, "Whom to ask."),
    key("tags", Shape::Texts, "For people and filters."),
    key("enabled", Shape::Bool, "Whether the job may be submitted; true if absent."),
];

/// The keys of `resources`.
pub(super) const RESOURCES: &[Key] = &[
    key("cpus", Shape::Number, "Cores, with up to three decimals."),
    key("memory", Shape::Size, "Memory without swap; at least 6m."),
    key("pids", Shape::Integer(PIDS), "Processes and threads."),
    key("gpus", Shape::Integer(GPUS), "GPUs that are reserved for the job."),
    key(
        "custom",
        Shape::Weights(AMOUNTS),
        "Amounts of resources that workers offer by a name of your own, such as {license: 1}.",
    ),
];

/// The keys of `retry`; the first one is what a bare number means.
pub(super) const RETRY: &[Key] = &[
    key("max", Shape::Integer(RETRIES), "How many further attempts; 0 if absent."),
    key(
        "when",
        Shape::Choices(|| names(&retry_outcomes())),
        "After which outcomes; if absent, after every failure, or after `failed` alone where exit_codes are given.",
    ),
    key("exit_codes", Shape::Integers(EXIT_CODES), "After `failed` only with these exit codes."),
    key("on", Shape::Choice(|| names(&RETRY_ON)), "Where the next attempt may run; any if absent."),
    key("backoff", Shape::Part(BACKOFF), "How long to wait before the next attempt."),
    key(
        "memory_factor",
        Shape::Number,
        "What resources.memory is multiplied by after each attempt that was killed for it; 1 if absent.",
    ),
];

/// The keys of `retry.backoff`.
pub(super) const BACKOFF: &[Key] = &[
    key(
        "kind",
        Shape::Choice(|| names(&BACKOFF_KINDS)),
        "How the longest wait grows with the failures; exponential if absent.",
    ),
    key("initial", Shape::Duration, "The longest wait after the first failure, from 10ms; 10s if absent."),
    key("max", Shape::Duration, "The longest wait after any failure; 10m if absent."),
    key("factor", Shape::Number, "How much the longest wait grows with each failure; 2 if absent."),
    key(
        "delays",
        Shape::Durations,
        "With kind: list, the longest wait after each failure; the last repeats.",
    ),
    key(
        "jitter",
        Shape::Jitter,
        "The random part of the wait: full, none, or a number from 0 to 1; full if absent.",
    ),
];

/// The keys of `expect`.
pub(super) const EXPECT: &[Key] = &[
    key(
        "success_within",
        Shape::Duration,
        "The longest time between two successes; longer, and it is stale.",
    ),
    key(
        "max_duration",
        Shape::Duration,
        "The longest run of an attempt; longer, and it is slow. Nothing is stopped.",
    ),
];

/// The keys of `hooks`.
pub(super) const HOOKS: &[Key] = &[
    key("on_start", Shape::Texts, "Jobs of the file that get a job when a job starts for the first time."),
    key("on_success", Shape::Texts, "Likewise, when a job has succeeded."),
    key("on_failure", Shape::Texts, "Likewise, when a job has failed for good, expired, or is lost."),
    key("on_end", Shape::Texts, "Likewise, when a job has ended in any way, also cancelled."),
];

/// The keys of `log`.
pub(super) const LOG: &[Key] = &[
    key(
        "max_bytes",
        Shape::Size,
        "How much output of one attempt is kept; 64m if absent. The middle is left out.",
    ),
    key("mask", Shape::Texts, "Regular expressions; what they match within a line becomes asterisks."),
];

/// The keys of a volume in its long form.
pub(super) const VOLUME: &[Key] = &[
    key("type", Shape::Choice(|| vec!["bind", "volume"]), "bind or volume."),
    key("source", Shape::Text, "An absolute path of the worker's host, or the name of a volume."),
    key("target", Shape::Text, "An absolute path inside of the container."),
    key("read_only", Shape::Bool, "Whether the container may only read it; false if absent."),
];

/// The keys of a value of `environment` that is a secret.
pub(super) const SECRET_REFERENCE: &[Key] =
    &[key("secret", Shape::Text, "The name of a secret of the server.")];

/// The keys of a limit in its long form.
pub(super) const ULIMIT_BOUNDS: &[Key] = &[
    key("soft", Shape::Integer(ULIMIT), "The limit that holds."),
    key("hard", Shape::Integer(ULIMIT), "A process may raise its limit up to this."),
];

/// Other names of keys.
pub(super) const ALIASES: [(&str, &str); 4] = [
    ("max_unexpected_retries", "lost_limit"),
    ("worker_timeout", "lost_after"),
    ("specific_worker_ids", "workers"),
    ("concurrent_worker_cnt", "run_on"),
];

/// The words of a table of choices.
pub(super) fn names<T>(choices: &[(&'static str, T)]) -> Vec<&'static str> {
    choices.iter().map(|(name, _)| *name).collect()
}

/// The word for a value in a table of choices.
pub(super) fn name_of<T: PartialEq>(choices: &[(&'static str, T)], value: &T) -> &'static str {
    choices.iter().find(|(_, known)| known == value).map_or("", |(name, _)| name)
}

/// The canonical key for a word that may be an alias.
pub(super) fn canonical(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, key)| key)
}
