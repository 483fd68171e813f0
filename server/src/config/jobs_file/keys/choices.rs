//! The words of the keys that take one of several.

use protocol::RuntimeKind;
use protocol::container::PullPolicy;
use protocol::report::Outcome;
use scheduler::definition::{OnLost, RetryOn, RetryPolicy};
use scheduler::placement::rules::PlacementStrategy;

/// The words of `profile`: defaults for the keys of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config::jobs_file) enum Profile {
    /// Docker's own defaults.
    Default,
    /// The few rights and resources that most jobs need.
    Restricted,
}

pub(in crate::config::jobs_file) const PROFILES: [(&str, Profile); 2] =
    [("default", Profile::Default), ("restricted", Profile::Restricted)];
pub(in crate::config::jobs_file) const PULL_POLICIES: [(&str, PullPolicy); 3] =
    [("always", PullPolicy::Always), ("missing", PullPolicy::Missing), ("never", PullPolicy::Never)];
pub(in crate::config::jobs_file) const RUNTIMES: [(&str, RuntimeKind); 3] = [
    (RuntimeKind::Docker.name(), RuntimeKind::Docker),
    (RuntimeKind::Process.name(), RuntimeKind::Process),
    (RuntimeKind::Fake.name(), RuntimeKind::Fake),
];
pub(in crate::config::jobs_file) const RETRY_ON: [(&str, RetryOn); 3] =
    [("any", RetryOn::Any), ("same", RetryOn::Same), ("other", RetryOn::Other)];

/// The words of `retry.backoff.kind`: how the longest wait before an attempt grows with the failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config::jobs_file) enum BackoffKind {
    Exponential,
    Linear,
    Fixed,
    List,
}

pub(in crate::config::jobs_file) const BACKOFF_KINDS: [(&str, BackoffKind); 4] = [
    ("exponential", BackoffKind::Exponential),
    ("linear", BackoffKind::Linear),
    ("fixed", BackoffKind::Fixed),
    ("list", BackoffKind::List),
];

pub(in crate::config::jobs_file) const ON_LOST: [(&str, OnLost); 3] =
    [("retry", OnLost::Retry), ("fail", OnLost::Fail), ("wait", OnLost::Wait)];

/// The words of `retry.when`: the outcomes that are failures of the job itself, which use `retry.max`.
pub(in crate::config::jobs_file) fn retry_outcomes() -> [(&'static str, Outcome); 5] {
    RetryPolicy::JOB_BUDGET.map(|outcome| (outcome.name(), outcome))
}

/// The words of `strategy`.
pub(in crate::config::jobs_file) fn strategies() -> [(&'static str, PlacementStrategy); 3] {
    PlacementStrategy::ALL.map(|strategy| (strategy.name(), strategy))
}
