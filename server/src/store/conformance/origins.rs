//! Stories of who made a job, and of the slot that its retries and followers are told.

use std::sync::Arc;

use protocol::container::Overrides;
use protocol::{JobId, Timestamp};
use scheduler::batches::{BatchOptions, NewBatch};
use scheduler::details::JobDetails;
use scheduler::job::State;
use scheduler::schedule::catch_up::SlotCount;
use scheduler::schedules::{FireRow, FireVerdict};
use scheduler::step::{AddedJob, Change};

use super::Backend;
use super::harness::*;
use crate::store::{JobFilter, JobSlot, PARENT_SLOT_VARIABLE, RetentionCutoffs};

fn made_by(name: Option<&str>, added: AddedJob) -> Change {
    Change::Added(AddedJob { submitted_by: name.map(Arc::from), ..added })
}

fn by(name: &str) -> JobFilter {
    JobFilter { submitted_by: Some(name.to_owned()), ..JobFilter::default() }
}

pub(in crate::store) fn a_job_names_its_requester_as_long_as_it_is_kept(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let mail = |number| AddedJob { revision: protocol::Revision(2), ..job(number) };
    harness.commit(vec![
        made_by(Some("ann"), job(1)),
        made_by(Some("bob"), job(2)),
        made_by(None, job(3)),
        made_by(Some("ann"), mail(4)),
    ]);
    harness.commit(vec![made_by(Some("ann"), job(5)), assigned(1, 1), started(1, 1)]);
    harness.commit(vec![succeeded(1, 1), ended(4, State::Cancelled, None)]);
    for _ in 0..2 {
        let names = [1, 2, 3, 4, 5]
            .map(|number| harness.archive().job(JobId(number)).unwrap().unwrap().row.submitted_by);
        assert_eq!(
            names.each_ref().map(Option::as_deref),
            [Some("ann"), Some("bob"), None, Some("ann"), Some("ann")]
        );
        assert_eq!(harness.list(by("ann")), [5, 4, 1]);
        assert_eq!(harness.list(by("bob")), [2]);
        assert!(harness.list(by("an")).is_empty() && harness.list(by("ANN")).is_empty());
        let also = |name: &str| JobFilter { name: Some(name.to_owned()), ..by("ann") };
        assert_eq!((harness.list(also("mail")), harness.list(also("resize"))), (vec![4], vec![5, 1]));
        let states = |state| JobFilter { states: vec![state], ..by("ann") };
        assert_eq!(harness.list(states(State::Succeeded)), [1]);
        assert_eq!(harness.list(states(State::Cancelled)), [4]);
        assert_eq!(harness.list(states(State::Queued)), [5]);
        let page = JobFilter { before: Some(JobId(5)), limit: 1, ..by("ann") };
        assert_eq!(harness.list(page), [4]);
        harness.restart();
    }
}

pub(in crate::store) fn a_batch_has_the_requester_of_its_members(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let batch = |first| {
        let options = BatchOptions::default();
        Change::BatchAdded(NewBatch { first: JobId(first), count: 2, options, created_at: Timestamp(1_000) })
    };
    let member = |number, first, name| made_by(name, AddedJob { batch: Some(JobId(first)), ..job(number) });
    harness.commit(vec![batch(1), member(1, 1, Some("ann")), member(2, 1, Some("ann"))]);
    harness.commit(vec![batch(3), member(3, 3, None), member(4, 3, None)]);
    let name =
        |harness: &Harness<'_>, first| harness.archive().batch(JobId(first)).unwrap().unwrap().submitted_by;
    assert_eq!((name(&harness, 1).as_deref(), name(&harness, 3)), (Some("ann"), None));
    harness.commit(vec![ended(1, State::Cancelled, None)]);
    assert_eq!(name(&harness, 1).as_deref(), Some("ann"));
    harness.commit(vec![ended(2, State::Cancelled, None)]);
    assert_eq!(name(&harness, 1).as_deref(), Some("ann"));
}

pub(in crate::store) fn a_name_is_forgotten_with_the_last_block_that_has_it(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let (first, second) = (4_095, 4_096);
    harness.commit(vec![made_by(Some("ann"), job(first)), made_by(Some("bob"), job(second))]);
    harness.commit(vec![ended_at(first, State::Cancelled, 10), ended_at(second, State::Cancelled, 20)]);
    let everything = RetentionCutoffs { ended_since: Timestamp(15), ..KEEP };
    assert_eq!(harness.remove_all(everything), 1);
    assert!(harness.list(by("ann")).is_empty());
    // The next name may get the number of the one that is gone, and is not taken for it.
    harness.commit(vec![made_by(Some("eve"), job(5_000)), made_by(Some("ann"), job(9_000))]);
    assert_eq!(harness.list(by("bob")), [second]);
    assert_eq!(harness.list(by("eve")), [5_000]);
    assert_eq!(harness.list(by("ann")), [9_000]);
}

pub(in crate::store) fn a_retry_and_the_jobs_of_hooks_are_told_the_slot(backend: &mut dyn Backend) {
    const AT: &str = "2026-03-01T02:00:00.000Z";
    let slot = Some(JobSlot { schedule: "nightly".into(), at: Timestamp(1_772_330_400_000) });
    let mut harness = Harness::new(backend);
    let with = |variables: &[(&str, &str)], added: AddedJob| {
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let overrides = Overrides { environment: environment.collect(), ..Overrides::default() };
        let details = JobDetails { overrides, ..JobDetails::default() };
        Change::Added(AddedJob { details: Some(Box::new(details)), ..added })
    };
    let of_slot = [("LONGSHORE_SCHEDULED_AT", AT), ("LONGSHORE_SCHEDULE_ID", "nightly")];
    let instant = Timestamp(1_772_330_400_000);
    let fire = FireRow {
        definition: "resize".into(),
        schedule: scheduler::schedule::ScheduleId::named("nightly"),
        from: instant,
        to: instant,
        count: SlotCount { count: 1, exact: true },
        verdict: FireVerdict::Fired(JobId(1)),
        at: Timestamp(5),
    };
    let retry_of = |number, of| AddedJob { retry_of: Some(JobId(of)), ..job(number) };
    let hook = |number, parent| with(&[("LONGSHORE_PARENT_JOB", parent)], job(number));
    harness.commit(vec![with(&of_slot, job(1)), Change::Fire(fire)]);
    harness.commit(vec![with(&of_slot, retry_of(2, 1)), added(3), Change::Added(retry_of(4, 3))]);
    harness.commit(vec![hook(5, "1"), hook(6, "2"), hook(7, "3")]);
    harness.commit(vec![hook(8, "6"), hook(9, "77")]);
    let shown = |number| harness.archive().job(JobId(number)).unwrap().unwrap();
    assert_eq!([1, 2, 3, 4].map(|number| shown(number).row.slot), [slot.clone(), slot.clone(), None, None]);
    let nightly = JobFilter { schedule: Some("nightly".into()), ..JobFilter::default() };
    assert_eq!(harness.list(nightly), [2, 1], "the retry carries the slot on");
    let told = |number| {
        let environment = shown(number).overrides.environment;
        environment.into_iter().find(|(name, _)| name == PARENT_SLOT_VARIABLE).map(|(_, at)| at)
    };
    assert_eq!([5, 6, 8].map(|number| told(number).unwrap()), [AT; 3]);
    assert_eq!([7, 9].map(told), [None, None], "no slot, and a job that is gone");
    let sent = harness.sent(&[JobId(8)]);
    assert!(sent[0].1.environment.contains(&(PARENT_SLOT_VARIABLE.to_owned(), AT.to_owned())), "{sent:?}");
    let found = harness.archive().instants_for_followers(&[1, 3, 5, 7].map(JobId)).unwrap();
    assert_eq!(found, [1, 5].map(|number| (JobId(number), AT.to_owned())));
}
