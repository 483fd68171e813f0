//! Rules of `overlap` and `catch_up`, checked for each slot that became a job. They are stated from the outside: by the rows of the
//! ledger, the jobs that had not ended then, and jobs.yaml.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::{JobId, Timestamp};
use scheduler::schedule::catch_up::{CatchUp, CatchUpMode, ON_TIME};
use scheduler::schedule::{Overlap, Schedule, ScheduleId, Timetable};
use scheduler::schedules::{FireRow, FireVerdict};

use crate::disk::row::Row;

/// The policies of one version of a definition.
type Policy = (Overlap, CatchUp);

#[derive(Clone, Debug, Default)]
pub(super) struct Policies {
    /// By the name of the definition: all policies that it has had since the server started. Definitions are stored before a reading of
    /// jobs.yaml takes effect, so nobody can tell which of them a decision rests on: each is good enough.
    known: BTreeMap<Arc<str>, Vec<Policy>>,
    /// By the name of the definition: jobs of its slots that may not have ended.
    live: BTreeMap<Arc<str>, BTreeSet<JobId>>,
    /// By definition and schedule: when slots were caught up last, and how many at that instant.
    caught_up: BTreeMap<(Arc<str>, ScheduleId), (Timestamp, u32)>,
}

impl Policies {
    /// A server has started. It knows the definitions that its first commit brings, and no others.
    pub(super) fn begin_life(&mut self) {
        self.known.clear();
    }

    pub(super) fn define(&mut self, definition: &str, timetable: &Timetable) {
        let known = self.known.entry(definition.into()).or_default();
        let policy = (timetable.overlap, timetable.catch_up);
        if !known.contains(&policy) {
            known.push(policy);
        }
    }

    /// A slot of a schedule with this rule has got its verdict. `jobs` are all rows, that of job 1 first.
    pub(super) fn check(
        &mut self,
        row: &FireRow,
        rule: Option<&Schedule>,
        jobs: &[Option<Row>],
    ) -> Result<(), String> {
        let Some(job) = row.verdict.job().filter(|_| row.verdict.has_fired()) else { return Ok(()) };
        let live = self.live.entry(row.definition.clone()).or_default();
        live.retain(|job| {
            let row = usize::try_from(job.0 - 1).ok().and_then(|index| jobs.get(index)?.as_ref());
            row.is_some_and(|row| !row.state.has_ended())
        });
        let earlier = live.first().copied();
        live.insert(job);
        let name = format!("slot {} of {}/{}", row.from.0, row.definition, row.schedule);
        let is_late = match row.verdict {
            FireVerdict::Fired(_) => false,
            FireVerdict::CaughtUp(_) => true,
            _ => return Ok(()),
        };
        let known = self.known.get(&row.definition).map_or(&[][..], Vec::as_slice);
        if let Some(earlier) = earlier
            && known.iter().all(|(overlap, _)| *overlap == Overlap::Skip)
        {
            return Err(format!(
                "{name} became job {job} while job {earlier} of an earlier slot has not ended"
            ));
        }
        let Some(rule) = rule else { return Ok(()) };
        let lateness = row.at.since(rule.due_at(row.from));
        if is_late == (lateness <= ON_TIME) {
            return Err(format!("{name} is decided {lateness:?} late, as {}", row.verdict.name()));
        }
        if !is_late {
            return Ok(());
        }
        let key = (row.definition.clone(), row.schedule.clone());
        let caught_up = self.caught_up.entry(key).or_insert((row.at, 0));
        *caught_up = (row.at, if caught_up.0 == row.at { caught_up.1 + 1 } else { 1 });
        let is_newest = rule.next_slot_after(row.from).is_none_or(|next| rule.due_at(next) > row.at);
        let obeys = |policy: &CatchUp| {
            let is_chosen = match policy.mode {
                CatchUpMode::None => false,
                CatchUpMode::Latest => is_newest,
                CatchUpMode::All => caught_up.1 <= policy.limit,
            };
            is_chosen && rule.due_at(row.from) >= row.at - policy.window
        };
        if known.iter().any(|(_, policy)| obeys(policy)) {
            return Ok(());
        }
        Err(format!("{name} is caught up at {}, number {} then, against {known:?}", row.at.0, caught_up.1))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::Revision;
    use scheduler::job::State;
    use scheduler::schedule::catch_up::SlotCount;
    use scheduler::schedule::{Rule, Zone};
    use scheduler::step::AddedJob;

    use super::*;

    fn rule() -> Schedule {
        Schedule::new("d", Some("first"), Rule::every("1m").expect("a good rule"), Zone::utc())
    }

    fn policies(overlap: Overlap, mode: CatchUpMode) -> Policies {
        let catch_up = CatchUp { mode, window: Duration::from_secs(600), limit: 2 };
        let mut policies = Policies::default();
        policies.define("d", &Timetable { schedules: vec![rule()], overlap, catch_up });
        policies
    }

    /// The verdict on a slot, given a second and a half late or half a minute late.
    fn row(minute: i64, verdict: FireVerdict) -> FireRow {
        let slot = Timestamp(minute * 60_000);
        FireRow {
            definition: "d".into(),
            schedule: ScheduleId::named("first"),
            from: slot,
            to: slot,
            count: SlotCount { count: 1, exact: true },
            verdict,
            at: Timestamp(if matches!(verdict, FireVerdict::Fired(_)) { slot.0 + 1_500 } else { NOW }),
        }
    }

    fn job(number: u64) -> Option<Row> {
        Some(Row::new(&AddedJob {
            job: JobId(number),
            revision: Revision(1),
            state: State::Queued,
            priority: 0,
            created_at: Timestamp(0),
            due_at: Timestamp(0),
            timeout: None,
            batch: None,
            retry_of: None,
            submitted_by: None,
            narrowing: None,
            keys: None,
            details: None,
        }))
    }

    #[test]
    fn a_slot_that_fires_beside_an_earlier_job_is_found_with_skip_only() {
        let fires = |overlap, jobs: &[Option<Row>]| {
            let mut policies = policies(overlap, CatchUpMode::None);
            let first = policies.check(&row(1, FireVerdict::Fired(JobId(1))), Some(&rule()), jobs);
            first.and_then(|()| policies.check(&row(2, FireVerdict::Fired(JobId(2))), Some(&rule()), jobs))
        };
        let jobs = [job(1), job(2)];
        assert!(fires(Overlap::Skip, &jobs).expect_err("job 1 has not ended").contains("job 1"));
        assert_eq!(fires(Overlap::Allow, &jobs), Ok(()));
        assert_eq!(fires(Overlap::Skip, &[None, job(2)]), Ok(()));
    }

    #[test]
    fn slots_that_are_caught_up_against_the_policy_are_found() {
        let caught_up = |mode, minutes: &[i64]| {
            let mut policies = policies(Overlap::Allow, mode);
            minutes.iter().try_for_each(|minute| {
                policies.check(&row(*minute, FireVerdict::CaughtUp(JobId(1))), Some(&rule()), &[])
            })
        };
        assert!(caught_up(CatchUpMode::None, &[20]).is_err());
        assert_eq!(caught_up(CatchUpMode::Latest, &[20]), Ok(()));
        assert!(caught_up(CatchUpMode::Latest, &[19]).is_err(), "20 is the latest");
        assert_eq!(caught_up(CatchUpMode::All, &[19, 20]), Ok(()));
        assert!(caught_up(CatchUpMode::All, &[18, 19, 20]).is_err(), "more than the limit");
        assert!(caught_up(CatchUpMode::All, &[10]).is_err(), "older than the window");
    }

    #[test]
    fn late_and_on_time_are_told_apart() {
        let mut policies = policies(Overlap::Allow, CatchUpMode::All);
        let late = FireRow { at: Timestamp(NOW), ..row(20, FireVerdict::Fired(JobId(1))) };
        assert!(policies.check(&late, Some(&rule()), &[]).is_err());
        let early = FireRow { at: Timestamp(1_201_000), ..row(20, FireVerdict::CaughtUp(JobId(1))) };
        assert!(policies.check(&early, Some(&rule()), &[]).is_err());
    }

    /// Half a minute after the slot of minute 20.
    const NOW: i64 = 20 * 60_000 + 30_000;
}
