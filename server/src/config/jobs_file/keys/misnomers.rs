//! Words of other systems for keys.

/// Keys of other systems, and the key of Longshore that is meant.
pub(in crate::config::jobs_file) const MISNOMERS: &[(&str, &str)] = &[
    ("env", "environment"),
    ("cmd", "command"),
    ("args", "command"),
    ("cwd", "working_dir"),
    ("workdir", "working_dir"),
    ("mounts", "volumes"),
    ("networks", "network"),
    ("retries", "retry"),
    ("max_retries", "retry"),
    ("attempts", "retry"),
    ("cpus", "resources.cpus"),
    ("mem_limit", "resources.memory"),
    ("memory", "resources.memory"),
    ("pids_limit", "resources.pids"),
    ("deploy", "resources"),
    ("restart", "retry"),
    ("grace_period", "stop_grace_period"),
    ("executor", "runtime"),
    ("attempts", "max"),
    ("retries", "max"),
    ("limit", "max"),
    ("delay", "backoff.initial"),
    ("delay", "initial"),
    ("cpu", "cpus"),
    ("mem", "memory"),
    ("mem_limit", "memory"),
    ("pids_limit", "pids"),
    ("max_size", "max_bytes"),
    ("tz", "timezone"),
    ("time_zone", "timezone"),
    ("interval", "every"),
    ("schedules", "schedule"),
    ("cron", "schedule"),
    ("concurrency_policy", "overlap"),
    ("catchup", "catch_up"),
    ("command", "args"),
    ("env", "environment"),
    ("src", "source"),
    ("dst", "target"),
    ("destination", "target"),
];

/// Planned keys: the reader tells them apart from typing mistakes.
pub(in crate::config::jobs_file) const PLANNED: &[&str] =
    &["shm_size", "input", "run_on", "concurrent_worker_cnt", "retention", "gpus", "mask"];
