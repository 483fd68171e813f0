//! What `docker inspect` says about a container, and what that means. Pure.
//!
//! The CLI's exit code is never the verdict: 125, 126, 127, 137 and 143 may each be the program's own. A container whose `StartedAt` is
//! zero never started, whatever else it says; all others ran.

use std::collections::HashMap;
use std::time::Duration;

use protocol::{ClusterId, Fence, JobId, Nonce, Now, Timestamp, Token, Uptime, WorkerId};
use serde::Deserialize;
use worker::input::{Exit, Fault};

use super::blame;
pub(super) use super::blame::fault_of;
use super::skew::Skew;
use crate::runtime::argv::LABEL_PREFIX;

/// The format to ask for: one line of JSON per container.
pub(super) const FORMAT: &str = concat!(
    r#"{"Id":{{json .Id}},"Name":{{json .Name}},"Created":{{json .Created}},"#,
    r#""State":{{json .State}},"Labels":{{json .Config.Labels}},"Image":{{json .Config.Image}}}"#
);

/// One container.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Container {
    pub(super) id: String,
    name: String,
    created: String,
    pub(super) state: State,
    #[serde(default)]
    labels: Option<HashMap<String, String>>,
    #[serde(default)]
    pub(super) image: String,
}

/// Its state, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct State {
    pub(super) status: Status,
    exit_code: i32,
    #[serde(rename = "OOMKilled", default)]
    oom_killed: bool,
    #[serde(default)]
    error: String,
    started_at: String,
    finished_at: String,
}

/// Docker's words for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Created,
    Running,
    Paused,
    Restarting,
    Removing,
    Exited,
    Dead,
    #[serde(other)]
    Unknown,
}

/// What it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Made, and never started: whoever made it will start it, or is gone.
    Unstarted,
    /// It could not be started.
    Failed(Exit),
    /// It runs, or will go on running.
    Running,
    /// It changes: look again.
    Changing,
    /// It ran and ended.
    Ended,
}

impl Container {
    /// Reads what was asked for with [`FORMAT`].
    pub(super) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line)
            .inspect_err(|error| tracing::warn!(%error, "docker's answer cannot be understood"))
            .ok()
    }

    pub(super) fn name(&self) -> &str {
        self.name.trim_start_matches('/')
    }

    /// Whose it is, by its labels.
    pub(super) fn owner(&self) -> Option<(ClusterId, WorkerId, Token)> {
        // What the wire carries; another number is none of ours.
        let number = |key| self.label(key)?.parse::<u64>().ok().filter(|it| i64::try_from(*it).is_ok());
        let token = Token {
            job: JobId(number("job")?),
            fence: Fence(number("fence")?),
            nonce: Nonce(u64::from_str_radix(self.label("nonce")?, 16).ok()?),
        };
        let cluster = ClusterId(u32::from_str_radix(self.label("cluster")?, 16).ok()?);
        Some((cluster, WorkerId(number("worker")?), token))
    }

    /// A label of ours.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(&format!("{LABEL_PREFIX}{key}")).map(String::as_str)
    }

    /// How long it was to run when it was made; without limit if absent. The deadline is of our clock, and its making is told by the
    /// engine's.
    pub(super) fn time_left(&self, skew: &Skew) -> Option<Duration> {
        let deadline = skew.of_engine(Timestamp(self.deadline()?.saturating_mul(1_000))).0 / 1_000;
        let left = deadline.saturating_sub(instant(&self.created)?.as_second());
        Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)))
    }

    /// The second since 1970 after which nobody wants it to run any more.
    pub(super) fn deadline(&self) -> Option<i64> {
        self.label("deadline")?.parse().ok()
    }

    pub(super) fn meaning(&self) -> Meaning {
        let state = &self.state;
        match state.status {
            Status::Running | Status::Paused | Status::Restarting => Meaning::Running,
            Status::Removing | Status::Unknown => Meaning::Changing,
            // What the engine has half removed is not to be relied on, whatever it still says.
            Status::Dead => Meaning::Failed(not_started(state)),
            _ if self.started().is_some() => Meaning::Ended,
            Status::Created if state.error.is_empty() && state.exit_code == 0 => Meaning::Unstarted,
            Status::Created | Status::Exited => Meaning::Failed(not_started(state)),
        }
    }

    pub(super) fn exit_code(&self) -> i32 {
        self.state.exit_code
    }

    /// How it ended, if it ran.
    pub(super) fn exit(&self, oom_seen: bool) -> Exit {
        Exit::Ran {
            code: self.state.exit_code,
            oom: self.state.oom_killed || oom_seen,
            ran: self.ran(),
            result: None,
        }
    }

    /// Whether it ended as one does whose engine dies: by a signal that nobody of us sent.
    pub(super) fn looks_like_a_dead_engine(&self) -> bool {
        !self.state.oom_killed && [137, 143, 255].contains(&self.state.exit_code)
    }

    /// Whether its success may be made up. An engine that dies between the end of a container and its own note of it finds nothing where
    /// the container was, when it is back, and shows it as ended with 0, just now (Docker up to 24.0.2, moby pull request 45800). Then it
    /// ended after `since`, when whoever looked on, if anybody, saw no more of it; or, after a start of the machine, it ran on from before.
    pub(super) fn may_be_a_forged_success(&self, since: Uptime, now: Now) -> bool {
        let (Some(started), Some(finished)) = (self.started(), instant(&self.state.finished_at)) else {
            return false;
        };
        let booted = now.utc - Duration::from_nanos(now.up.0);
        let spans_boot = started.as_millisecond() < booted.0 && finished.as_millisecond() > booted.0;
        self.state.exit_code == 0 && (spans_boot || self.ended_at(now) > since)
    }

    /// Whether the engine itself lost track of it.
    pub(super) fn was_lost_by_the_engine(&self) -> bool {
        self.state.exit_code == 255 && !self.state.error.is_empty()
    }

    /// For how long it ran. Docker's `FinishedAt` can lie a millisecond before `StartedAt`.
    pub(super) fn ran(&self) -> Duration {
        let (Some(started), Some(finished)) = (self.started(), instant(&self.state.finished_at)) else {
            return Duration::ZERO;
        };
        Duration::try_from(finished.duration_since(started)).unwrap_or_default()
    }

    /// When it started, on our own clock; now if it says nothing.
    pub(super) fn started_at(&self, now: Now) -> Uptime {
        on_our_clock(self.started(), now)
    }

    /// When it ended, on our own clock; now if it says nothing.
    pub(super) fn ended_at(&self, now: Now) -> Uptime {
        on_our_clock(instant(&self.state.finished_at), now)
    }

    /// When it ended, by the clock on the wall of that time.
    pub(super) fn finished(&self) -> Option<Timestamp> {
        instant(&self.state.finished_at).map(|at| Timestamp(at.as_millisecond()))
    }

    /// When it ended, in seconds of the engine's own clock.
    pub(super) fn finished_second(&self) -> Option<i64> {
        instant(&self.state.finished_at).map(jiff::Timestamp::as_second)
    }

    /// How long ago it was made.
    pub(super) fn age(&self, now: Now) -> Duration {
        now.up.since(on_our_clock(instant(&self.created), now))
    }

    pub(super) fn started(&self) -> Option<jiff::Timestamp> {
        instant(&self.state.started_at)
    }
}

/// Why the init in a container could not start the program, if that is what its one line says: for Docker the container ran.
pub(super) fn init_failure(init: bool, code: i32, stderr: &str) -> Option<String> {
    let line = stderr.strip_suffix('\n').unwrap_or(stderr);
    let failed = init && matches!(code, 126 | 127) && !line.contains('\n');
    let said = line.strip_prefix("[FATAL tini (")?.split_once(")] exec ")?.1;
    (failed && said.contains(" failed: ")).then(|| format!("exec {said}"))
}

fn not_started(state: &State) -> Exit {
    let message = super::cli::one_line(&state.error);
    let is_dead = state.status == Status::Dead;
    let proven = !is_dead && (matches!(state.exit_code, 126 | 127) || blame::is_proven(&message));
    let unsaid =
        if is_dead { "the engine has half removed it" } else { "the container could not be started" };
    Exit::NotStarted {
        fault: if proven { Fault::Definition } else { Fault::Host },
        code: Some(state.exit_code).filter(|code| *code != 0),
        message: if message.is_empty() { unsaid.into() } else { message },
    }
}

fn on_our_clock(at: Option<jiff::Timestamp>, now: Now) -> Uptime {
    let Some(at) = at else { return now.up };
    let ago = i128::from(now.utc.0) * 1_000_000 - at.as_nanosecond();
    Uptime(now.up.0.saturating_sub(u64::try_from(ago).unwrap_or(0)))
}

/// Docker's zero time is the year 1.
fn instant(text: &str) -> Option<jiff::Timestamp> {
    text.parse::<jiff::Timestamp>().ok().filter(|at| at.as_second() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: &str = r#"{"longshore.cluster":"00c0ffee","longshore.worker":"4","longshore.job":"12","longshore.fence":"34",
        "longshore.nonce":"00000000000000ab","longshore.managed":"true"}"#;

    fn container(state: &str) -> Container {
        let json = format!(
            r#"{{"Id":"abc","Name":"/longshore-00c0ffee-12-34","Created":"2026-01-01T00:00:00.5Z","State":{state},"Labels":{LABELS},"Image":"app"}}"#
        );
        Container::parse(&json).expect("valid")
    }

    fn ended(code: i32, oom: bool) -> Container {
        container(&format!(
            r#"{{"Status":"exited","Running":false,"Paused":false,"Restarting":false,"OOMKilled":{oom},"Dead":false,"Pid":0,"ExitCode":{code},
            "Error":"","StartedAt":"2026-01-01T00:00:01.000000001Z","FinishedAt":"2026-01-01T00:00:03.5Z"}}"#
        ))
    }

    fn created(code: i32, error: &str) -> Container {
        container(&format!(
            r#"{{"Status":"created","ExitCode":{code},"Error":{error:?},"OOMKilled":false,
            "StartedAt":"0001-01-01T00:00:00Z","FinishedAt":"0001-01-01T00:00:00Z"}}"#
        ))
    }

    fn fault(container: &Container) -> Fault {
        match container.meaning() {
            Meaning::Failed(Exit::NotStarted { fault, .. }) => fault,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_success_may_be_made_up_if_it_came_later_than_anybody_looked() {
        // It ended 3.5 s into the year, when this machine had been up for 100 s.
        let now = Now { utc: Timestamp(1_767_225_605_000), up: Uptime(101_500_000_000) };
        let after = |millis: u64| Uptime(millis * 1_000_000);
        assert!(ended(0, false).may_be_a_forged_success(after(99_999), now));
        assert!(!ended(0, false).may_be_a_forged_success(after(100_001), now), "somebody looked on");
        assert!(!ended(1, false).may_be_a_forged_success(after(99_999), now));
        // And when it had been up for a second: it was started before.
        let booted = Now { up: Uptime(2_500_000_000), ..now };
        assert!(ended(0, false).may_be_a_forged_success(after(2_000), booted));
    }

    #[test]
    fn every_code_of_a_program_that_ran_is_its_own() {
        for code in [0, 1, 125, 126, 127, 137, 143, 255] {
            let container = ended(code, false);
            assert_eq!(container.meaning(), Meaning::Ended);
            let Exit::Ran { code: told, ran, oom: false, .. } = container.exit(false) else {
                panic!("{code}")
            };
            assert_eq!((told, ran), (code, Duration::from_nanos(2_499_999_999)));
        }
    }

    #[test]
    fn a_container_that_never_started_says_whose_fault_that_is() {
        let runc = "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: ";
        let not_found =
            created(127, &format!("{runc}exec: \"nosuch\": executable file not found in $PATH: unknown"));
        let not_executable = created(126, &format!("{runc}exec: \"/etc\": permission denied: unknown"));
        let no_user = created(128, "unable to find user nobody2: no matching entries in passwd file");
        for container in [&not_found, &not_executable, &no_user] {
            assert_eq!(fault(container), Fault::Definition);
        }
        let bridge = created(
            128,
            "failed to create endpoint x on network bridge: adding interface veth1 to bridge docker0 failed",
        );
        let limits =
            created(128, &format!("{runc}error setting rlimit type 7: operation not permitted: unknown"));
        for container in [&bridge, &limits] {
            assert_eq!(fault(container), Fault::Host);
        }
    }

    #[test]
    fn an_init_that_finds_no_program_is_told_from_a_program_that_exits_127() {
        let said = "[FATAL tini (7)] exec nosuch failed: No such file or directory\n";
        assert_eq!(
            init_failure(true, 127, said).as_deref(),
            Some("exec nosuch failed: No such file or directory")
        );
        assert_eq!(init_failure(true, 3, said), None);
        assert_eq!(init_failure(false, 127, said), None);
        assert_eq!(init_failure(true, 127, &format!("hello\n{said}")), None);
    }

    #[test]
    fn states_mean_what_they_mean() {
        assert_eq!(created(0, "").meaning(), Meaning::Unstarted);
        for (status, meaning) in [
            ("running", Meaning::Running),
            ("paused", Meaning::Running),
            ("removing", Meaning::Changing),
            ("strange", Meaning::Changing),
        ] {
            let mut container = ended(0, false);
            container.state.status = serde_json::from_str(&format!("{status:?}")).expect("any word");
            assert_eq!(container.meaning(), meaning, "{status}");
        }
        for mut dead in [created(0, ""), ended(0, false), ended(127, false)] {
            dead.state.status = Status::Dead;
            assert_eq!(fault(&dead), Fault::Host);
        }
    }

    #[test]
    fn the_memory_killer_is_no_dead_engine() {
        assert!(ended(137, false).looks_like_a_dead_engine());
        assert!(!ended(137, true).looks_like_a_dead_engine());
        assert!(!ended(1, false).looks_like_a_dead_engine());
        assert!(matches!(ended(0, true).exit(false), Exit::Ran { code: 0, oom: true, .. }));
    }

    #[test]
    fn labels_tell_the_owner_and_strange_ones_nothing() {
        let token = Token { job: JobId(12), fence: Fence(34), nonce: Nonce(0xab) };
        assert_eq!(ended(0, false).owner(), Some((ClusterId(0xc0ffee), WorkerId(4), token)));
        let mut strange = ended(0, false);
        strange.labels = None;
        assert_eq!(strange.owner(), None);
    }

    #[test]
    fn the_time_it_was_given_counts_from_when_it_was_made() {
        let mut container = ended(0, false);
        assert_eq!((container.deadline(), container.time_left(&Skew::default())), (None, None));
        let mut given = |deadline: &str| {
            let labels = container.labels.as_mut().expect("labels");
            labels.insert("longshore.deadline".into(), deadline.into());
            container.time_left(&Skew::default())
        };
        assert_eq!(given("1767225690"), Some(Duration::from_secs(90)));
        // By a clock that was wrong, or another hand.
        assert_eq!(given("5"), Some(Duration::ZERO));
        assert_eq!(given("soon"), None);
    }

    #[test]
    fn instants_land_on_our_own_clock() {
        let now = Now { utc: protocol::Timestamp(1_767_225_605_000), up: Uptime(100_000_000_000) };
        assert_eq!(ended(0, false).started_at(now), Uptime(96_000_000_001));
        assert_eq!(ended(0, false).ended_at(now), Uptime(98_500_000_000));
        assert_eq!(created(0, "").started_at(now), now.up);
    }
}
