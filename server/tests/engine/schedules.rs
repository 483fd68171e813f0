//! A schedule in a real engine and a real store: its jobs, its ledger, pauses, and a restart.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore_server::engine::Handle;
use longshore_server::store::{Archive, FireFilter, FireRecord};
use protocol::JobId;
use scheduler::origin::Origin;
use scheduler::pauses::PauseTarget;
use scheduler::schedule::ScheduleId;
use scheduler::schedules::{FireVerdict, SkipReason};
use scheduler::step::{Answer, Rejection};
use tokio::time::{Instant, sleep};

use crate::support::{RunningEngine, definitions};

const DEADLINE: Duration = Duration::from_secs(30);

const FILE: &str = "
jobs:
  tick:
    image: busybox
    overlap: allow
    schedule: { id: fast, every: 100ms, environment: { MODE: full }, args: [--all] }
";

/// Runs an engine on this directory until `done` says so.
async fn run(data: &Path, done: impl AsyncFnOnce(&Handle, Arc<dyn Archive>)) {
    let engine = RunningEngine::start(data, &definitions(FILE));
    done(&engine.handle, engine.archive.clone()).await;
    engine.stop().await;
}

/// All rows of the ledger that fit, oldest first, once there is this number of them.
async fn fires(archive: &dyn Archive, count: usize, fits: fn(&FireVerdict) -> bool) -> Vec<FireRecord> {
    let end = Instant::now() + DEADLINE;
    loop {
        let mut rows = archive.fires("tick", &FireFilter::default(), 100_000).unwrap();
        if rows.iter().filter(|row| fits(&row.row.verdict)).count() >= count {
            rows.reverse();
            return rows;
        }
        assert!(Instant::now() < end, "there are {} rows", rows.len());
        sleep(Duration::from_millis(20)).await;
    }
}

fn fired(verdict: &FireVerdict) -> bool {
    verdict.has_fired()
}

fn paused(verdict: &FireVerdict) -> bool {
    *verdict == FireVerdict::Skipped(SkipReason::Paused)
}

#[tokio::test]
async fn slots_become_jobs_once_and_a_pause_outlives_a_restart() {
    let data = tempfile::tempdir().unwrap();
    run(data.path(), async |engine, archive| {
        let rows = fires(&*archive, 3, fired).await;
        let job = rows[0].row.verdict.job().unwrap();
        let record = archive.job(job).unwrap().unwrap();
        let slot = record.row.slot.clone().unwrap();
        assert_eq!((slot.schedule.as_str(), slot.at), ("fast", rows[0].row.from));
        let variable = |name: &str| {
            record
                .overrides
                .environment
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.as_str())
        };
        assert_eq!(variable("MODE"), Some("full"));
        assert_eq!(variable("LONGSHORE_SCHEDULE_ID"), Some("fast"));
        assert!(variable("LONGSHORE_SCHEDULED_AT").is_some_and(|at| at.ends_with("00Z")), "{record:?}");
        assert_eq!(record.overrides.args, ["--all"]);
        let unknown = engine
            .pause(
                PauseTarget::Schedule("other".into(), ScheduleId::named("main")),
                true,
                None,
                Origin::default(),
            )
            .await
            .unwrap();
        assert_eq!(unknown, Answer::Rejected(Rejection::UnknownSchedule));
        let answer = engine.pause(PauseTarget::Server, true, None, Origin::default()).await.unwrap();
        assert!(
            matches!(&answer, Answer::Pause(it) if it.former.is_none() && it.in_force.is_some()),
            "{answer:?}"
        );
        fires(&*archive, 1, paused).await;
    })
    .await;
    run(data.path(), async |engine, archive| {
        let before = archive.fires("tick", &FireFilter::default(), 100_000).unwrap();
        let jobs = before.iter().filter(|row| row.row.verdict.has_fired()).count();
        // A row of this process: the pause has come back with it.
        let count = before.iter().filter(|row| paused(&row.row.verdict)).count();
        fires(&*archive, count + 1, paused).await;
        let answer = engine.pause(PauseTarget::Server, false, None, Origin::default()).await.unwrap();
        assert!(
            matches!(&answer, Answer::Pause(it) if it.former.is_some() && it.in_force.is_none()),
            "{answer:?}"
        );
        let rows = fires(&*archive, jobs + 2, fired).await;
        for pair in rows.windows(2) {
            assert_eq!(pair[1].row.from.0, pair[0].row.to.0 + 100, "each slot has one row: {pair:?}");
        }
        let mut made: Vec<JobId> = rows
            .iter()
            .filter(|row| fired(&row.row.verdict))
            .filter_map(|row| row.row.verdict.job())
            .collect();
        made.dedup();
        assert_eq!(made.len(), rows.iter().filter(|row| fired(&row.row.verdict)).count());
    })
    .await;
}
