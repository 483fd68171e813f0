//! One `docker events` per worker reports starts at once. It is a hint only: the engine keeps few events and loses them at a restart.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Nonce, Now, Uptime};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::DockerState;
use super::cli::{CallError, CallOutput};
use super::container::Container;
use super::engine::EngineClient;
use crate::runtime::Membership;
use crate::runtime::argv::LABEL_PREFIX;

/// An event of a container.
#[derive(Deserialize)]
pub(super) struct Event {
    #[serde(rename = "Action")]
    action: String,
    #[serde(rename = "Actor")]
    actor: Actor,
    /// Time by the engine's wall clock, in nanoseconds since 1970.
    #[serde(rename = "timeNano", default)]
    time_nanos: i64,
}

#[derive(Deserialize)]
struct Actor {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Attributes", default)]
    attributes: HashMap<String, String>,
}

/// Listens as long as the membership holds, for a limited time at once. The program outlives a killed worker and would only end at its next
/// event, which may never come. Each time range begins at the end of the one before.
pub(super) async fn listen(docker: Arc<DockerState>, membership: Membership) {
    let mut since = docker.engine.now_seconds();
    loop {
        docker.engine.health.wait_until_up().await;
        if docker.registry.membership() != Some(membership) {
            return;
        }
        let until = docker.engine.now_seconds() + LISTEN_SECONDS;
        // The clock may have stepped back.
        since = since.min(until);
        let listening = listen_until(&docker, membership, since, until);
        let limit = Duration::from_secs(LISTEN_SECONDS.unsigned_abs()) + OVERTIME;
        // A stuck engine ignores the time range.
        let _ = tokio::time::timeout(limit, listening).await;
        if docker.engine.now_seconds() >= until {
            since = until;
            continue;
        }
        // The call ends when the daemon does: that is the first sign of it.
        if let Err(error) = docker.engine.ping().await {
            tracing::warn!(%error, "docker events ended and the engine does not answer");
        }
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

async fn listen_until(docker: &Arc<DockerState>, membership: Membership, since: i64, until: i64) {
    let cluster = format!("label=longshore.cluster={}", membership.cluster);
    let worker = format!("label=longshore.worker={}", membership.worker);
    let filters = [&cluster, &worker, "event=start", "event=oom"].map(|it| ["--filter", it]);
    let (since, until) = (since.to_string(), until.to_string());
    let options = ["events", "--format", "{{json .}}", "--since", &since, "--until", &until];
    let args = options.into_iter().chain(filters.into_iter().flatten());
    let Ok(mut child) = docker.engine.cli.spawn(args) else { return };
    let Some(stdout) = child.stdout.take() else { return };
    // Its standard error is not read; a closed pipe does not block it.
    drop(child.stderr.take());
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(event) = serde_json::from_str::<Event>(&line) {
            handle_event(docker, &event);
        }
    }
}

impl Event {
    /// Name of the container.
    pub(super) fn name(&self) -> Option<&str> {
        self.actor.attributes.get("name").map(String::as_str)
    }

    /// The nonce distinguishes attempts of the same number.
    fn nonce(&self) -> Option<Nonce> {
        let label = self.actor.attributes.get(&format!("{LABEL_PREFIX}nonce"))?;
        u64::from_str_radix(label, 16).ok().map(Nonce)
    }

    /// Time of the event by our monotonic clock. An event may arrive late.
    pub(super) fn at(&self, now: Now) -> Uptime {
        let nanos_ago = i128::from(now.utc.0) * 1_000_000 - i128::from(self.time_nanos);
        // An event without time, or from the future, counts as of now.
        let ago = u64::try_from(nanos_ago).ok().filter(|_| self.time_nanos > 0);
        now.up - Duration::from_nanos(ago.unwrap_or_default())
    }
}

impl EngineClient {
    /// Now by the engine's wall clock, in Unix seconds.
    fn now_seconds(&self) -> i64 {
        self.now().utc.0 / 1000
    }

    /// `true` if the engine was restarted after this container had ended: then it has forgotten the end although it could remember it. A
    /// worker that was away as well has no other evidence. In doubt, the answer is `false`.
    pub(super) async fn was_restarted_after(&self, container: &Container) -> bool {
        let ended = container.finished_second();
        let event_is_due = ended.is_some_and(|ended| self.now_seconds() >= ended + JUST_NOW_SECONDS);
        event_is_due && self.forgot_end_of(container).await.unwrap_or(false)
    }

    /// `true` if the engine remembers both start and end of a container, and so was running all the time. The end alone proves nothing: an
    /// engine that was killed stops, when it is back, the containers that it finds running. A missing start may have been pushed out.
    pub(super) async fn remembers_whole_life(&self, container: &Container) -> Result<bool, CallError> {
        let age = container.age(self.now()).as_secs().cast_signed();
        let now = self.now_seconds();
        let answer = self.remembered(now - age - 1, now + JUST_NOW_SECONDS).await?;
        Ok(answer.ok && has_start_and_end(&answer.stdout, &container.id))
    }

    /// `true` if this engine may invent successes, or does not say its version.
    pub(super) async fn may_forge_successes(&self) -> bool {
        let answer = self.call(["version", "--format", "{{.Server.Version}}"]).await;
        answer.ok().filter(|answer| answer.ok).is_none_or(|answer| forges_successes(&answer.stdout))
    }

    /// `true` if the engine does not remember the end of a container although it could.
    pub(super) async fn forgot_end_of(&self, container: &Container) -> Result<bool, CallError> {
        let ended = container.finished_second().unwrap_or_default();
        // The engine's clock may be ahead of ours.
        let answer = self.remembered(ended - 1, self.now_seconds().max(ended + JUST_NOW_SECONDS)).await?;
        Ok(answer.ok && lacks_end(&answer.stdout, &container.id))
    }

    /// `true` if the engine was started long after this container had ended: then its predecessor recorded the end. An engine makes its
    /// default network anew at each start, unless containers outlived it; then the answer is `false`.
    pub(super) async fn began_long_after(&self, container: &Container) -> bool {
        let answer = self.call(["network", "inspect", "--format", "{{.Created.Unix}}", "bridge"]).await;
        let began = answer.ok().filter(|it| it.ok).and_then(|it| it.stdout.trim().parse::<i64>().ok());
        began.zip(container.finished_second()).is_some_and(|(began, ended)| began > ended + START_SECONDS)
    }

    /// The engine's memory of a container that it shows as made and never started. An engine that dies while it starts a container has
    /// forgotten the start when it is back.
    pub(super) async fn engine_memory_of(&self, container: &Container) -> Result<EngineMemory, CallError> {
        let now = self.now_seconds();
        let age = container.age(self.now()).as_secs().cast_signed();
        let answer = self.remembered(now - age - 1, now + JUST_NOW_SECONDS).await?;
        // An engine without such queries has only its state.
        Ok(if answer.ok { engine_memory_of(&answer.stdout, &container.id) } else { EngineMemory::Unstarted })
    }

    /// All events that the engine remembers of a time range, one line each.
    async fn remembered(&self, since: i64, until: i64) -> Result<CallOutput, CallError> {
        let (since, until) = (since.to_string(), until.to_string());
        let format = "{{.Action}} {{.Actor.ID}}";
        self.call(["events", "--format", format, "--since", &since, "--until", &until]).await
    }
}

/// The engine's memory of a container that it shows as never started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineMemory {
    /// It made the container and has not started it since.
    Unstarted,
    /// It started the container.
    Started,
    /// Not even the creation: the engine may have been restarted, and its earlier actions are unknown.
    Forgotten,
    /// Not the creation, but as many later events as it can remember.
    PushedOut,
}

fn engine_memory_of(events: &str, id: &str) -> EngineMemory {
    match (has_event(events, "start ", id), has_event(events, "create ", id)) {
        (true, _) => EngineMemory::Started,
        (false, true) => EngineMemory::Unstarted,
        (false, false) if events.lines().count() >= REMEMBERED => EngineMemory::PushedOut,
        (false, false) => EngineMemory::Forgotten,
    }
}

/// `true` if an engine of this version shows a container as successful whose end it had not recorded when it died.
fn forges_successes(version: &str) -> bool {
    let mut numbers = version.trim().split(['.', '-', '+', '~']).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok);
    match (next(), next(), next()) {
        (Some(major), Some(minor), patch) => (major, minor, patch.unwrap_or(0)) < FORGES_NO_MORE,
        _ => true,
    }
}

/// The first version that records the end of a container in time (moby pull request 45801).
const FORGES_NO_MORE: (u32, u32, u32) = (24, 0, 3);

/// `true` if these events contain both start and end of a container.
fn has_start_and_end(events: &str, id: &str) -> bool {
    has_event(events, "start ", id) && has_event(events, "die ", id)
}

fn has_event(events: &str, action: &str, id: &str) -> bool {
    events.lines().any(|line| line.strip_prefix(action) == Some(id))
}

/// `true` if the end of a container is missing in these events although there was space for it.
fn lacks_end(events: &str, id: &str) -> bool {
    events.lines().count() < REMEMBERED && !has_event(events, "die ", id)
}

fn handle_event(docker: &Arc<DockerState>, event: &Event) {
    let Some(attempt) = event.name().and_then(|name| docker.registry.attempt_by_name(name)) else { return };
    if event.nonce() != Some(attempt.token().nonce) {
        return; // The name is taken by a container of another attempt.
    }
    match event.action.as_str() {
        "start" => {
            let (own, id, at) = (Arc::clone(docker), event.actor.id.clone(), event.at(docker.engine.now()));
            // The disk may be slow, and the events of other attempts do not wait for it.
            docker.spawn(async move { attempt.report_start(&own, &id, at).await });
        }
        "oom" => attempt.mark_oom(),
        _ => {}
    }
}

/// Longest time by which the program outlives a killed worker. A restart costs some 20 ms of CPU.
const LISTEN_SECONDS: i64 = 30;

/// Delay of events, and tolerance between two clocks.
pub(super) const JUST_NOW: Duration = Duration::from_secs(JUST_NOW_SECONDS.unsigned_abs());
const JUST_NOW_SECONDS: i64 = 2;

/// Longest time that an engine takes to start. It invents ends only meanwhile.
const START_SECONDS: i64 = 300;

/// Number of events that an engine remembers (`eventsLimit` of the Docker daemon).
const REMEMBERED: usize = 256;

/// Time that the engine may take to notice the end of the range.
const OVERTIME: Duration = Duration::from_secs(10);

/// Pause before the next call.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use protocol::Timestamp;

    use super::*;

    #[test]
    fn an_event_is_forgotten_if_it_is_missing_although_there_was_space() {
        let other = "start def\ndie def\n";
        assert!(lacks_end("", "abc"));
        assert!(lacks_end(other, "abc"));
        assert!(!lacks_end(&format!("{other}die abc\n"), "abc"));
        assert!(!lacks_end(&other.repeat(REMEMBERED / 2), "abc"), "it may have been pushed out");
    }

    #[test]
    fn an_engine_without_memory_of_a_creation_proves_nothing() {
        assert_eq!(engine_memory_of("create abc\nattach abc\n", "abc"), EngineMemory::Unstarted);
        assert_eq!(engine_memory_of("create abc\nstart abc\ndie abc\n", "abc"), EngineMemory::Started);
        assert_eq!(engine_memory_of("create abcd\nstart abcd\n", "abc"), EngineMemory::Forgotten);
        let others = "create abcd\nstart abcd\n".repeat(REMEMBERED / 2);
        assert_eq!(engine_memory_of(&others, "abc"), EngineMemory::PushedOut);
        assert_eq!(
            engine_memory_of("start abc\n", "abc"),
            EngineMemory::Started,
            "the beginning was pushed out"
        );
    }

    #[test]
    fn fixed_engine_versions_are_believed() {
        for version in ["20.10.24+dfsg1\n", "23.0.6", "24.0.2", "24.0", "4.9.3", "", "dev"] {
            assert!(forges_successes(version), "{version}");
        }
        for version in ["24.0.3\n", "24.0.7-1", "25.0.0-rc.1", "28.2.2"] {
            assert!(!forges_successes(version), "{version}");
        }
    }

    #[test]
    fn a_late_event_keeps_its_time() {
        let now = Now { utc: Timestamp(1_767_225_605_000), up: Uptime(100_000_000_000) };
        let event = |time: &str| -> Event {
            let line = format!(r#"{{"Action":"start","Actor":{{"ID":"abc"}}{time}}}"#);
            serde_json::from_str(&line).expect("an event")
        };
        assert_eq!(event(r#","timeNano":1767225602500000000"#).at(now), Uptime(97_500_000_000));
        assert_eq!(event(r#","timeNano":1767225609000000000"#).at(now), now.up);
        assert_eq!(event("").at(now), now.up);
    }
}
