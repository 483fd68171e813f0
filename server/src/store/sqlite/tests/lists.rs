//! Lists with any two filters are read by an index.

use protocol::report::Outcome;
use protocol::{JobId, Revision, Timestamp};

use super::*;

#[test]
fn every_pair_of_filters_is_answered_by_an_index() {
    let place = Place::new();
    let (mut store, _archive) = place.open();
    let loaded = store.load(&mut |_| {}).unwrap();
    store.commit(&group(&loaded, 1, vec![added(1)])).unwrap();
    let shell = place.sql();
    for (first, add_first) in FILTERS {
        for (second, add_second) in FILTERS {
            let mut filter = JobFilter::default();
            add_first(&mut filter);
            add_second(&mut filter);
            for plan in list::plans(&shell, &filter) {
                let plan = plan.join("; ");
                assert!(
                    !plan.contains("SCAN") && !plan.contains("CO-ROUTINE"),
                    "{first} and {second}: {plan}"
                );
            }
        }
    }
}

type AddFilter = fn(&mut JobFilter);

const FILTERS: &[(&str, AddFilter)] = &[
    ("state=scheduled", |it| it.states.push(State::Scheduled)),
    ("state=queued", |it| it.states.push(State::Queued)),
    ("state=running", |it| it.states.push(State::Running)),
    ("state=succeeded", |it| it.states.push(State::Succeeded)),
    ("state=failed", |it| it.states.push(State::Failed)),
    ("name", |it| it.name = Some("resize".to_owned())),
    ("revision", |it| it.revision = Some(Revision(1))),
    ("outcome=failed", |it| it.outcomes.push(Outcome::Failed)),
    ("outcome=succeeded", |it| it.outcomes.push(Outcome::Succeeded)),
    ("exit_code=0", |it| it.exit_code = Some(0)),
    ("exit_code=3", |it| it.exit_code = Some(3)),
    ("ended_since", |it| it.ended_since = Some(Timestamp(1))),
    ("ended_until", |it| it.ended_until = Some(Timestamp(1))),
    ("text", |it| it.text = Some("disk".to_owned())),
    ("worker", |it| it.worker = Some(WorkerId(1))),
    ("label", |it| it.label = Some(("team".to_owned(), "blue".to_owned()))),
    ("batch", |it| it.batch = Some(JobId(1))),
    ("accepted_since", |it| it.since = Some(Timestamp(1))),
    ("accepted_until", |it| it.until = Some(Timestamp(i64::MAX))),
    ("cursor", |it| it.before = Some(JobId(10))),
];
