//! Definitions, resolved. Values of variables stay hidden: nobody can tell a secret from a setting.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use protocol::container::{PullPolicy, Volume};
use scheduler::definition::{OnLost, RetryOn, RetryPolicy};
use scheduler::snapshot::Snapshot;
use scheduler::step::PendingReason;

use super::code::Code;
use super::desk::Desk;
use super::path::Name;
use super::problem::{Problem, shown};
use super::query::{Query, nearest};
use super::show;
use super::view;
use crate::catalogue::{Definitions, Entry};

pub(super) async fn list(
    State(desk): State<Arc<Desk>>,
    uri: Uri,
) -> Result<Json<Vec<view::Definition>>, Problem> {
    let mut query = Query::of(&uri)?;
    let tag = query.text("tag")?;
    query.finish()?;
    let snapshot = desk.app.engine.snapshot();
    let waiting = count_waiting(&snapshot);
    let definitions = desk.app.catalogue.current();
    let fitting = definitions.iter().filter(|entry| tag.as_ref().is_none_or(|tag| entry.tags.contains(tag)));
    Ok(Json(fitting.map(|entry| definition(entry, &waiting)).collect()))
}

pub(super) async fn one(
    State(desk): State<Arc<Desk>>,
    Name(name): Name,
) -> Result<Json<view::Definition>, Problem> {
    let definitions = desk.app.catalogue.current();
    let entry = find(&definitions, &name)?;
    let snapshot = desk.app.engine.snapshot();
    let mut shown = definition(entry, &count_waiting(&snapshot));
    let last = desk.read(move |archive| archive.last_ended(&name)).await?;
    shown.last_ended = last.map(|row| desk.show().job(row));
    Ok(Json(shown))
}

/// The entry with this name.
///
/// # Errors
/// `unknown_job`, with names that are near.
pub(super) fn find<'d>(definitions: &'d Definitions, name: &str) -> Result<&'d Arc<Entry>, Problem> {
    definitions.find(name).ok_or_else(|| {
        let near = nearest(name, definitions.iter().map(|entry| entry.definition.name.as_str()));
        let problem = Problem::new(Code::UnknownJob, format!("there is no definition \"{}\"", shown(name)));
        match near.is_empty() {
            true => problem.hint("GET /api/definitions lists the definitions"),
            false => problem.near(near),
        }
    })
}

/// How many jobs wait for what, by the name of their definition.
type Waiting<'s> = BTreeMap<&'s str, BTreeMap<PendingReason, u64>>;

/// Also those count that were made with what jobs.yaml said before.
fn count_waiting(snapshot: &Snapshot) -> Waiting<'_> {
    let mut all = Waiting::new();
    for waiting in &snapshot.waiting {
        let Some(definition) = snapshot.definitions.get(&waiting.revision) else { continue };
        let counts = all.entry(definition.name.as_str()).or_default();
        *counts.entry(waiting.reason).or_default() += waiting.count;
    }
    all
}

fn definition(entry: &Entry, waiting: &Waiting<'_>) -> view::Definition {
    let definition = &entry.definition;
    let (container, loss) = (&definition.container, &definition.loss);
    view::Definition {
        name: definition.name.clone(),
        revision: definition.revision.to_string(),
        enabled: definition.enabled,
        description: entry.description.clone(),
        owner: entry.owner.clone(),
        tags: entry.tags.clone(),
        runtime: definition.runtime().name().into(),
        image: container.image.clone(),
        entrypoint: container.entrypoint.clone(),
        command: container.command.clone(),
        environment: container.environment.iter().map(|(name, _)| name.clone()).collect(),
        working_dir: container.working_dir.clone(),
        user: container.user.clone(),
        volumes: container.volumes.iter().map(volume).collect(),
        network: container.network.clone(),
        tmpfs: container.tmpfs.clone(),
        read_only: container.read_only,
        cap_add: container.cap_add.clone(),
        cap_drop: container.cap_drop.clone(),
        init: container.init,
        platform: container.platform.clone(),
        labels: container.labels.iter().cloned().collect(),
        pull_policy: pull_policy(container.pull_policy).into(),
        pull_timeout_ms: view::millis(container.pull_timeout),
        cpus_milli: container.resources.cpus_milli,
        memory_bytes: container.resources.memory_bytes,
        pids: container.resources.pids,
        priority: definition.priority,
        timeout_ms: definition.timeout.map(view::millis),
        stop_signal: container.stop_signal.clone(),
        stop_grace_ms: view::millis(container.stop_grace),
        retry: retry(&definition.retry),
        lost_limit: loss.limit,
        lost_after_ms: view::millis(loss.after),
        on_lost: on_lost(loss.on_lost).into(),
        self_fence_ms: container.self_fence.map(view::millis),
        ping_interval_ms: loss.ping.map(view::millis),
        unexpected_retry_delay_ms: loss.delay.map(view::millis),
        log_max_bytes: container.log_bytes_max,
        waiting: waiting.get(definition.name.as_str()).map(counted).unwrap_or_default(),
        last_ended: None,
    }
}

fn volume(volume: &Volume) -> String {
    let suffix = if volume.read_only { ":ro" } else { "" };
    format!("{}:{}{suffix}", volume.source, volume.target)
}

const fn pull_policy(policy: PullPolicy) -> &'static str {
    match policy {
        PullPolicy::Always => "always",
        PullPolicy::Missing => "missing",
        PullPolicy::Never => "never",
    }
}

const fn on_lost(on_lost: OnLost) -> &'static str {
    match on_lost {
        OnLost::Retry => "retry",
        OnLost::Fail => "fail",
        OnLost::Wait => "wait",
    }
}

fn retry(policy: &RetryPolicy) -> view::Retry {
    view::Retry {
        max: policy.max,
        when: policy.when.iter().map(|outcome| outcome.name().into()).collect(),
        exit_codes: policy.exit_codes.clone(),
        on: match policy.on {
            RetryOn::Any => "any",
            RetryOn::Same => "same",
            RetryOn::Other => "other",
        }
        .into(),
        backoff_initial_ms: view::millis(policy.backoff.initial),
        backoff_max_ms: view::millis(policy.backoff.max),
        backoff_factor_milli: policy.backoff.factor_milli,
        memory_factor_milli: policy.memory_factor_milli,
    }
}

fn counted(counts: &BTreeMap<PendingReason, u64>) -> Vec<view::Waiting> {
    let counts = counts.iter();
    counts.map(|(reason, count)| view::Waiting { reason: show::pending(*reason), count: *count }).collect()
}
