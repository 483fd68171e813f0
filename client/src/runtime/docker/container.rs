//! The answer of `docker inspect` about a container, and its meaning. Pure.
//!
//! The CLI's exit code decides nothing: 125, 126, 127, 137 and 143 may each be the program's own. A container whose `StartedAt` is zero
//! never started; all others ran.

use std::collections::HashMap;
use std::time::Duration;

use protocol::{ClusterId, Fence, JobId, Nonce, Now, Timestamp, Token, Uptime, WorkerId};
use serde::Deserialize;
use worker::input::{Exit, ResultFile, StartFailure};

use super::skew::Skew;
pub(super) use super::start_failure::{fault_of, is_memory_kill};
use crate::runtime::argv::LABEL_PREFIX;

/// The format of the query: one line of JSON per container.
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

/// The part of its state that is used here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct State {
    pub(super) status: Status,
    exit_code: i32,
    #[serde(rename = "OOMKilled", default)]
    pub(super) oom_killed: bool,
    #[serde(default)]
    error: String,
    started_at: String,
    finished_at: String,
}

/// Docker's status values.
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

/// The meaning of a container's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lifecycle {
    /// It was made and not started. Its maker will start it, or is gone.
    Unstarted,
    /// It could not be started.
    Failed(Exit),
    /// It runs, or will go on running.
    Running,
    /// It is changing: look again.
    Changing,
    /// It ran and ended.
    Ended,
}

impl Container {
    /// Parses a line of [`FORMAT`].
    pub(super) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line)
            .inspect_err(|error| tracing::warn!(%error, "cannot parse the answer of docker inspect"))
            .ok()
    }

    pub(super) fn name(&self) -> &str {
        self.name.trim_start_matches('/')
    }

    /// Cluster, worker and attempt by its labels.
    pub(super) fn owner(&self) -> Option<(ClusterId, WorkerId, Token)> {
        // Numbers that the wire can carry; others are not ours.
        let number = |key| self.label(key)?.parse::<u64>().ok().filter(|it| i64::try_from(*it).is_ok());
        let token = Token {
            job: JobId(number("job")?),
            fence: Fence(number("fence")?),
            nonce: Nonce(u64::from_str_radix(self.label("nonce")?, 16).ok()?),
        };
        let cluster = ClusterId(u32::from_str_radix(self.label("cluster")?, 16).ok()?);
        Some((cluster, WorkerId(number("worker")?), token))
    }

    /// One of the worker's own labels.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(&format!("{LABEL_PREFIX}{key}")).map(String::as_str)
    }

    /// The run time that it had left when it was made; `None` without limit. The deadline is of our clock, its creation of the engine's.
    pub(super) fn time_left(&self, skew: &Skew) -> Option<Duration> {
        let deadline = skew.of_engine(Timestamp(self.deadline()?.saturating_mul(1_000))).0 / 1_000;
        let left = deadline.saturating_sub(instant(&self.created)?.as_second());
        Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)))
    }

    /// Unix time in seconds after which it must not run.
    pub(super) fn deadline(&self) -> Option<i64> {
        self.label("deadline")?.parse().ok()
    }

    pub(super) fn lifecycle(&self) -> Lifecycle {
        let state = &self.state;
        match state.status {
            Status::Running | Status::Paused | Status::Restarting => Lifecycle::Running,
            Status::Removing | Status::Unknown => Lifecycle::Changing,
            // A half-removed container is not reliable, whatever it says. One that has run counts as lost, so that `on_lost` decides.
            Status::Dead if self.started().is_some() => Lifecycle::Failed(Exit::Vanished),
            Status::Dead => Lifecycle::Failed(not_started(state)),
            _ if self.started().is_some() => Lifecycle::Ended,
            Status::Created if state.error.is_empty() && state.exit_code == 0 => Lifecycle::Unstarted,
            Status::Created | Status::Exited => Lifecycle::Failed(not_started(state)),
        }
    }

    pub(super) fn exit_code(&self) -> i32 {
        self.state.exit_code
    }

    /// The exit, if it ran.
    pub(super) fn exit(&self, oom_seen: bool) -> Exit {
        Exit::Ran {
            code: self.state.exit_code,
            oom: self.state.oom_killed || oom_seen,
            run_time: self.run_time(),
            result: ResultFile::Absent,
        }
    }

    /// `true` if its success may be invented. An engine that dies before it records the end of a container shows that container as ended
    /// with 0, just now, when it is back (Docker up to 24.0.2, moby pull request 45800). Then the end lies after `since`, the last time the
    /// container was observed; or it seems to have run across a boot of the machine.
    pub(super) fn may_be_a_forged_success(&self, since: Uptime, now: Now) -> bool {
        let (Some(started), Some(finished)) = (self.started(), instant(&self.state.finished_at)) else {
            return false;
        };
        let booted = now.utc - Duration::from_nanos(now.up.0);
        let spans_boot = started.as_millisecond() < booted.0 && finished.as_millisecond() > booted.0;
        self.state.exit_code == 0 && (spans_boot || self.ended_at(now) > since)
    }

    /// `true` if the engine says that it lost track of it.
    pub(super) fn was_lost_by_the_engine(&self) -> bool {
        self.state.exit_code == 255 && !self.state.error.is_empty()
    }

    /// Its run time. Docker's `FinishedAt` can lie a millisecond before `StartedAt`; what ran, ran for a millisecond at least.
    pub(super) fn run_time(&self) -> Duration {
        let (Some(started), Some(finished)) = (self.started(), instant(&self.state.finished_at)) else {
            return Duration::ZERO;
        };
        Duration::try_from(finished.duration_since(started)).unwrap_or_default().max(Duration::from_millis(1))
    }

    /// Its start by our monotonic clock; now if it is unknown.
    pub(super) fn started_at(&self, now: Now) -> Uptime {
        on_our_clock(self.started(), now)
    }

    /// Its end by our monotonic clock; now if it is unknown.
    pub(super) fn ended_at(&self, now: Now) -> Uptime {
        on_our_clock(instant(&self.state.finished_at), now)
    }

    /// Its end by the engine's wall clock.
    pub(super) fn finished(&self) -> Option<Timestamp> {
        instant(&self.state.finished_at).map(|at| Timestamp(at.as_millisecond()))
    }

    /// Its end by the engine's wall clock, in Unix seconds.
    pub(super) fn finished_second(&self) -> Option<i64> {
        instant(&self.state.finished_at).map(jiff::Timestamp::as_second)
    }

    /// Time since it was made.
    pub(super) fn age(&self, now: Now) -> Duration {
        now.up.since(on_our_clock(instant(&self.created), now))
    }

    pub(super) fn started(&self) -> Option<jiff::Timestamp> {
        instant(&self.state.started_at)
    }
}

/// `true` if a container ended like one whose engine died: by a signal that the worker did not send.
pub(super) const fn looks_like_a_dead_engine(exit: &Exit) -> bool {
    matches!(exit, Exit::Ran { oom: false, code: 137 | 143 | 255, .. })
}

/// The message of a container's init that could not start the program. For Docker such a container ran.
pub(super) fn init_failure(init: bool, code: i32, stderr: &str) -> Option<String> {
    let line = stderr.strip_suffix('\n').unwrap_or(stderr);
    let failed = init && matches!(code, 126 | 127) && !line.contains('\n');
    let said = line.strip_prefix("[FATAL tini (")?.split_once(")] exec ")?.1;
    (failed && said.contains(" failed: ")).then(|| format!("exec {said}"))
}

fn not_started(state: &State) -> Exit {
    let message = super::cli::one_line(&state.error);
    let is_dead = state.status == Status::Dead;
    let unsaid =
        if is_dead { "the engine has half removed it" } else { "the container could not be started" };
    Exit::NotStarted {
        fault: if is_dead { StartFailure::Host } else { fault_of(&message) },
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
            r#"{{"Status":"exited","Running":false,"Paused":false,"Restarting":false,"OOMKilled":{oom},"Dead":false,"ProcessId":0,"ExitCode":{code},
            "Error":"","StartedAt":"2026-01-01T00:00:01.000000001Z","FinishedAt":"2026-01-01T00:00:03.5Z"}}"#
        ))
    }

    fn created(code: i32, error: &str) -> Container {
        container(&format!(
            r#"{{"Status":"created","ExitCode":{code},"Error":{error:?},"OOMKilled":false,
            "StartedAt":"0001-01-01T00:00:00Z","FinishedAt":"0001-01-01T00:00:00Z"}}"#
        ))
    }

    fn fault(container: &Container) -> StartFailure {
        match container.lifecycle() {
            Lifecycle::Failed(Exit::NotStarted { fault, .. }) => fault,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_success_may_be_forged_if_it_came_after_the_last_observation() {
        // It ended 3.5 s into the year, when this machine had been up for 100 s.
        let now = Now { utc: Timestamp(1_767_225_605_000), up: Uptime(101_500_000_000) };
        let after = |millis: u64| Uptime(millis * 1_000_000);
        assert!(ended(0, false).may_be_a_forged_success(after(99_999), now));
        assert!(!ended(0, false).may_be_a_forged_success(after(100_001), now), "the container was observed");
        assert!(!ended(1, false).may_be_a_forged_success(after(99_999), now));
        // Now the machine had been up for one second only: the container was started before.
        let booted = Now { up: Uptime(2_500_000_000), ..now };
        assert!(ended(0, false).may_be_a_forged_success(after(2_000), booted));
    }

    #[test]
    fn every_code_of_a_program_that_ran_is_its_own() {
        for code in [0, 1, 125, 126, 127, 137, 143, 255] {
            let container = ended(code, false);
            assert_eq!(container.lifecycle(), Lifecycle::Ended);
            let Exit::Ran { code: told, run_time, oom: false, .. } = container.exit(false) else {
                panic!("{code}")
            };
            assert_eq!((told, run_time), (code, Duration::from_nanos(2_499_999_999)));
        }
        let mut short = ended(0, false);
        short.state.finished_at = "2026-01-01T00:00:01Z".into();
        assert_eq!(short.run_time(), Duration::from_millis(1), "it ended before it began by Docker's times");
    }

    #[test]
    fn a_failed_start_names_the_definition_or_the_host() {
        let runc = "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: ";
        let not_found =
            created(127, &format!("{runc}exec: \"nosuch\": executable file not found in $PATH: unknown"));
        let not_executable = created(126, &format!("{runc}exec: \"/etc\": permission denied: unknown"));
        let no_user = created(128, "unable to find user nobody2: no matching entries in passwd file");
        for container in [&not_found, &not_executable, &no_user] {
            assert_eq!(fault(container), StartFailure::Definition);
        }
        let bridge = created(
            128,
            "failed to create endpoint x on network bridge: adding interface veth1 to bridge docker0 failed",
        );
        let limits =
            created(128, &format!("{runc}error setting rlimit type 7: operation not permitted: unknown"));
        let hook = created(127, "error running hook #0: fork/exec /x: no such file or directory: unknown");
        let store = created(127, "lstat /var/lib/docker/overlay2/x: no such file or directory: unknown");
        for container in [&bridge, &limits, &hook, &store] {
            assert_eq!(fault(container), StartFailure::Host);
        }
    }

    #[test]
    fn a_missing_program_under_init_differs_from_exit_code_127() {
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
    fn docker_states_map_to_the_lifecycle() {
        assert_eq!(created(0, "").lifecycle(), Lifecycle::Unstarted);
        for (status, lifecycle) in [
            ("running", Lifecycle::Running),
            ("paused", Lifecycle::Running),
            ("removing", Lifecycle::Changing),
            ("strange", Lifecycle::Changing),
        ] {
            let mut container = ended(0, false);
            container.state.status = serde_json::from_str(&format!("{status:?}")).expect("any word");
            assert_eq!(container.lifecycle(), lifecycle, "{status}");
        }
        let [mut unstarted, mut has_run] = [created(0, ""), ended(0, false)];
        (unstarted.state.status, has_run.state.status) = (Status::Dead, Status::Dead);
        assert_eq!(fault(&unstarted), StartFailure::Host);
        assert_eq!(has_run.lifecycle(), Lifecycle::Failed(Exit::Vanished));
    }

    #[test]
    fn an_oom_kill_does_not_look_like_a_dead_engine() {
        let dead = |code, reported, seen| looks_like_a_dead_engine(&ended(code, reported).exit(seen));
        assert!(dead(137, false, false));
        assert!(!dead(137, false, true) && !dead(137, true, false) && !dead(1, false, false));
        assert!(matches!(ended(0, true).exit(false), Exit::Ran { code: 0, oom: true, .. }));
    }

    #[test]
    fn labels_identify_the_owner_and_unknown_ones_do_not() {
        let token = Token { job: JobId(12), fence: Fence(34), nonce: Nonce(0xab) };
        assert_eq!(ended(0, false).owner(), Some((ClusterId(0xc0ffee), WorkerId(4), token)));
        let mut strange = ended(0, false);
        strange.labels = None;
        assert_eq!(strange.owner(), None);
    }

    #[test]
    fn time_left_counts_from_the_creation() {
        let mut container = ended(0, false);
        assert_eq!((container.deadline(), container.time_left(&Skew::default())), (None, None));
        let mut given = |deadline: &str| {
            let labels = container.labels.as_mut().expect("labels");
            labels.insert("longshore.deadline".into(), deadline.into());
            container.time_left(&Skew::default())
        };
        assert_eq!(given("1767225690"), Some(Duration::from_secs(90)));
        // The label of a wrong clock, or of a person.
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
