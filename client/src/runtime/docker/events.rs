//! One `docker events` per worker: tells at once that a container has started. A hint, never the truth: the engine keeps few of them and
//! forgets them at a restart.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Nonce, Now, Uptime};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::Shared;
use super::cli::{Answer, CallError};
use super::container::Container;
use crate::runtime::Membership;
use crate::runtime::argv::LABEL_PREFIX;

/// Something happened to a container.
#[derive(Deserialize)]
pub(super) struct Event {
    #[serde(rename = "Action")]
    action: String,
    #[serde(rename = "Actor")]
    actor: Actor,
    /// When, by the engine's clock on the wall.
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

/// Listens as long as this worker is who it is, a while at a time: the program goes on when we are killed, and only notices that nobody reads any more when the
/// next event comes, which may be never. Each time begins where the one before it ended.
pub(super) async fn listen(shared: Arc<Shared>, membership: Membership) {
    let mut since = shared.engine_seconds();
    loop {
        shared.health.wait_until_up().await;
        if shared.membership() != Some(membership) {
            return;
        }
        let until = shared.engine_seconds() + LISTEN_SECONDS;
        // The clock may have stepped back.
        since = since.min(until);
        let listening = listen_once(&shared, membership, since, until);
        let limit = Duration::from_secs(LISTEN_SECONDS.unsigned_abs()) + OVERTIME;
        // An engine that hangs does not look at the time.
        let _ = tokio::time::timeout(limit, listening).await;
        if shared.engine_seconds() >= until {
            since = until;
            continue;
        }
        // Otherwise it ends when the daemon does: that is the first sign of it.
        if let Err(error) = shared.ping().await {
            tracing::warn!(%error, "the engine is gone");
        }
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

async fn listen_once(shared: &Shared, membership: Membership, since: i64, until: i64) {
    let cluster = format!("label=longshore.cluster={}", membership.cluster);
    let worker = format!("label=longshore.worker={}", membership.worker);
    let filters = [&cluster, &worker, "event=start", "event=oom"].map(|it| ["--filter", it]);
    let (since, until) = (since.to_string(), until.to_string());
    let options = ["events", "--format", "{{json .}}", "--since", &since, "--until", &until];
    let args = options.into_iter().chain(filters.into_iter().flatten());
    let Ok(mut child) = shared.cli.spawn(args) else { return };
    let Some(stdout) = child.stdout.take() else { return };
    // Nobody reads its complaints; a full pipe must not stop it.
    drop(child.stderr.take());
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(event) = serde_json::from_str::<Event>(&line) {
            heard(shared, &event);
        }
    }
}

impl Event {
    /// What the container is called.
    pub(super) fn name(&self) -> Option<&str> {
        self.actor.attributes.get("name").map(String::as_str)
    }

    /// What tells attempts of the same number apart.
    fn nonce(&self) -> Option<Nonce> {
        let label = self.actor.attributes.get(&format!("{LABEL_PREFIX}nonce"))?;
        u64::from_str_radix(label, 16).ok().map(Nonce)
    }

    /// When it happened, on our own clock: it may be told late.
    pub(super) fn at(&self, now: Now) -> Uptime {
        let nanos_ago = i128::from(now.utc.0) * 1_000_000 - i128::from(self.time_nanos);
        // One that does not say when is of now, and so is one of the future: its clock is not ours.
        let ago = u64::try_from(nanos_ago).ok().filter(|_| self.time_nanos > 0);
        now.up - Duration::from_nanos(ago.unwrap_or_default())
    }
}

impl Shared {
    /// Of the engine's clock on the wall.
    fn engine_seconds(&self) -> i64 {
        self.engine_now().utc.0 / 1000
    }

    /// Whether the engine was restarted after this container had ended: then it has forgotten the end, although it could remember more
    /// than it does. That is all there is to go by for a worker that was away, too. Where it cannot be told, it was not.
    pub(super) async fn was_restarted_after(&self, container: &Container) -> bool {
        let ended = container.finished_second();
        let is_told = ended.is_some_and(|ended| self.engine_seconds() >= ended + JUST_NOW_SECONDS);
        is_told && self.forgot_the_end_of(container).await.unwrap_or(false)
    }

    /// Whether the engine remembers the whole life of a container, and so was there all the while. Its end alone proves nothing: an engine
    /// that was killed stops, when it is back, what it finds running. And a beginning that it has no longer may be one that was pushed out.
    pub(super) async fn lived_through(&self, container: &Container) -> Result<bool, CallError> {
        let age = container.age(self.engine_now()).as_secs().cast_signed();
        let now = self.engine_seconds();
        let answer = self.remembered(now - age - 1, now + JUST_NOW_SECONDS).await?;
        Ok(answer.ok && tells_all_of(&answer.stdout, &container.id))
    }

    /// Whether this engine is one that makes successes up; also if it does not say which it is.
    pub(super) async fn may_forge_successes(&self) -> bool {
        let answer = self.call(["version", "--format", "{{.Server.Version}}"]).await;
        answer.ok().filter(|answer| answer.ok).is_none_or(|answer| forges_successes(&answer.stdout))
    }

    /// Whether the engine does not remember the end of a container, although it could.
    pub(super) async fn forgot_the_end_of(&self, container: &Container) -> Result<bool, CallError> {
        let ended = container.finished_second().unwrap_or_default();
        // By the engine's clock, too, if that is ahead of ours.
        let answer = self.remembered(ended - 1, self.engine_seconds().max(ended + JUST_NOW_SECONDS)).await?;
        Ok(answer.ok && has_forgotten(&answer.stdout, &container.id))
    }

    /// Whether the engine was started long after this container had ended: then the one before had noted the end. An engine makes its
    /// default network anew at each start, unless containers have outlived it: then there is no telling.
    pub(super) async fn began_long_after(&self, container: &Container) -> bool {
        let answer = self.call(["network", "inspect", "--format", "{{.Created.Unix}}", "bridge"]).await;
        let began = answer.ok().filter(|it| it.ok).and_then(|it| it.stdout.trim().parse::<i64>().ok());
        began.zip(container.finished_second()).is_some_and(|(began, ended)| began > ended + START_SECONDS)
    }

    /// What the engine remembers of a container that, as it says, was made and never started. An engine that dies while it starts one
    /// does not know of that any more when it is back.
    pub(super) async fn memory_of(&self, container: &Container) -> Result<Memory, CallError> {
        let now = self.engine_seconds();
        let age = container.age(self.engine_now()).as_secs().cast_signed();
        let answer = self.remembered(now - age - 1, now + JUST_NOW_SECONDS).await?;
        // Where there are no such questions, there is only its word.
        Ok(if answer.ok { memory_of(&answer.stdout, &container.id) } else { Memory::Unstarted })
    }

    /// All that the engine remembers from one second to another, a line each.
    async fn remembered(&self, since: i64, until: i64) -> Result<Answer, CallError> {
        let (since, until) = (since.to_string(), until.to_string());
        let format = "{{.Action}} {{.Actor.ID}}";
        self.call(["events", "--format", format, "--since", &since, "--until", &until]).await
    }
}

/// What an engine remembers of a container that it shows as never started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// It has made it, and not started it since.
    Unstarted,
    /// It has started it.
    Started,
    /// Nothing, not even that it has made it: what it did before it was restarted, if it was, nobody knows.
    Forgotten,
}

fn memory_of(events: &str, id: &str) -> Memory {
    match (tells(events, "start ", id), tells(events, "create ", id)) {
        (true, _) => Memory::Started,
        (false, true) => Memory::Unstarted,
        (false, false) => Memory::Forgotten,
    }
}

/// Whether an engine of this version shows a container as ended well whose end it had not noted when it died.
fn forges_successes(version: &str) -> bool {
    let mut numbers = version.trim().split(['.', '-', '+', '~']).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok);
    match (next(), next(), next()) {
        (Some(major), Some(minor), patch) => (major, minor, patch.unwrap_or(0)) < FORGES_NO_MORE,
        _ => true,
    }
}

/// The end of a container is noted in time from this version of Docker on (moby pull request 45801).
const FORGES_NO_MORE: (u32, u32, u32) = (24, 0, 3);

/// Whether these events tell of both ends of a container's life.
fn tells_all_of(events: &str, id: &str) -> bool {
    tells(events, "start ", id) && tells(events, "die ", id)
}

fn tells(events: &str, action: &str, id: &str) -> bool {
    events.lines().any(|line| line.strip_prefix(action) == Some(id))
}

/// Whether the end of a container is missing in all that an engine remembers since, and that is not for want of room.
fn has_forgotten(events: &str, id: &str) -> bool {
    events.lines().count() < REMEMBERED && !tells(events, "die ", id)
}

fn heard(shared: &Shared, event: &Event) {
    let Some(attempt) = event.name().and_then(|name| shared.attempt_named(name)) else { return };
    if event.nonce() != Some(attempt.token().nonce) {
        return; // The name is taken by a container of another attempt.
    }
    match event.action.as_str() {
        "start" => attempt.saw_start(shared, &event.actor.id, event.at(shared.engine_now())),
        "oom" => attempt.saw_oom(),
        _ => {}
    }
}

/// How long a worker that was killed is outlived. Starting anew costs some 20 ms of CPU.
const LISTEN_SECONDS: i64 = 30;

/// What has just happened need not be told yet, and two clocks need not agree so well.
pub(super) const JUST_NOW: Duration = Duration::from_secs(JUST_NOW_SECONDS.unsigned_abs());
const JUST_NOW_SECONDS: i64 = 2;

/// What an engine may take to start: what it makes up about ends, it makes up meanwhile.
const START_SECONDS: i64 = 300;

/// How many events an engine remembers (`eventsLimit` of the Docker daemon).
const REMEMBERED: usize = 256;

/// How long the engine may take to notice that it is time.
const OVERTIME: Duration = Duration::from_secs(10);

/// Before a new one is started.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use protocol::Timestamp;

    use super::*;

    #[test]
    fn an_engine_has_forgotten_what_it_had_room_for_and_does_not_tell() {
        let other = "start def\ndie def\n";
        assert!(has_forgotten("", "abc"));
        assert!(has_forgotten(other, "abc"));
        assert!(!has_forgotten(&format!("{other}die abc\n"), "abc"));
        assert!(!has_forgotten(&other.repeat(REMEMBERED / 2), "abc"), "it may have been pushed out");
    }

    #[test]
    fn only_an_engine_that_remembers_making_a_container_knows_that_it_has_not_started_it() {
        assert_eq!(memory_of("create abc\nattach abc\n", "abc"), Memory::Unstarted);
        assert_eq!(memory_of("create abc\nstart abc\ndie abc\n", "abc"), Memory::Started);
        assert_eq!(memory_of("create abcd\nstart abcd\n", "abc"), Memory::Forgotten);
        assert_eq!(memory_of("start abc\n", "abc"), Memory::Started, "the beginning was pushed out");
    }

    #[test]
    fn engines_that_are_mended_are_believed() {
        for version in ["20.10.24+dfsg1\n", "23.0.6", "24.0.2", "24.0", "4.9.3", "", "dev"] {
            assert!(forges_successes(version), "{version}");
        }
        for version in ["24.0.3\n", "24.0.7-1", "25.0.0-rc.1", "28.2.2"] {
            assert!(!forges_successes(version), "{version}");
        }
    }

    #[test]
    fn what_is_told_late_happened_when_it_happened() {
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
