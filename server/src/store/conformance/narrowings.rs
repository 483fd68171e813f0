//! Stories of the workers that jobs ask for.

use std::sync::Arc;

use protocol::{JobId, WorkerId};
use scheduler::details::JobDetails;
use scheduler::placement::narrowing::Narrowing;
use scheduler::placement::rules::{Comparison, Condition, LabelRule, WorkerSelector};
use scheduler::step::{AddedJob, Change};

use super::Backend;
use super::harness::*;
use crate::store::JobFilter;

pub(in crate::store) fn the_workers_that_a_job_asks_for_are_kept_with_it(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let rule = |label: &str, condition| LabelRule { label: label.into(), condition };
    let asked = [
        Narrowing::asked(
            vec![WorkerSelector::Name("web-3".into()), WorkerSelector::Id(WorkerId(7))],
            vec![
                rule("rack", Condition::In(vec!["7".into()])),
                rule("cores", Condition::Compare(Comparison::AtLeast, 8)),
                rule("spot", Condition::Absent),
            ],
        ),
        Narrowing::asked(vec![WorkerSelector::Name("web-4".into())], Vec::new()),
        None,
    ];
    let labels = vec![("team".to_owned(), "web".to_owned())];
    let added = (1..).zip(&asked).map(|(number, narrowing)| {
        // The second job has labels as well.
        let details = (number == 2).then(|| JobDetails { labels: labels.clone(), ..JobDetails::default() });
        Change::Added(AddedJob {
            narrowing: narrowing.clone(),
            details: details.map(Box::new),
            ..job(number)
        })
    });
    harness.commit(added.collect());
    let (_, live) = harness.restart();
    assert_eq!(live.iter().map(|job| job.narrowing.clone()).collect::<Vec<_>>(), asked);
    harness.commit(vec![assigned(1, 1), started(1, 1), succeeded(1, 1)]);
    let shown = |job: u64| harness.archive().job(JobId(job)).unwrap().expect("it is kept").row;
    assert_eq!(shown(1).narrowing, asked[0], "an ended job keeps it");
    assert_eq!((shown(2).narrowing, shown(2).labels), (asked[1].clone(), labels.clone()));
    assert!(harness.sent(&[JobId(1)]).is_empty(), "its worker gets nothing of it");
    let mut listed = harness.archive().jobs(&JobFilter { limit: 10, ..JobFilter::default() }).unwrap();
    listed.sort_by_key(|row| row.job);
    let narrowings: Vec<Option<Arc<Narrowing>>> = listed.into_iter().map(|row| row.narrowing).collect();
    assert_eq!(narrowings, asked);
}
