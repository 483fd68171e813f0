//! Stories of the keys of limits and of the state of rates.

use protocol::Timestamp;
use scheduler::limits::keys::JobKeys;
use scheduler::limits::{LimitId, LimitKind, RateRow};
use scheduler::step::{AddedJob, Change};

use super::Backend;
use super::harness::*;

fn keys(concurrency: Option<&str>, rate: Option<&str>) -> Option<Box<JobKeys>> {
    Some(Box::new(JobKeys {
        concurrency: concurrency.map(Into::into),
        rate: rate.map(Into::into),
        batch: None,
    }))
}

pub(in crate::store) fn keys_of_limits_live_as_long_as_their_job(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let kept = [keys(Some("acme"), None), keys(Some(""), Some("acme")), None];
    let jobs =
        (1..).zip(&kept).map(|(number, keys)| Change::Added(AddedJob { keys: keys.clone(), ..job(number) }));
    harness.commit(jobs.collect());
    harness.commit(vec![assigned(1, 1), started(1, 1)]);
    let (_, live) = harness.restart();
    assert_eq!(live.iter().map(|job| job.keys.clone()).collect::<Vec<_>>(), kept);
    harness.commit(vec![succeeded(1, 1)]);
    let (_, live) = harness.restart();
    assert_eq!(live.iter().map(|job| job.keys.clone()).collect::<Vec<_>>(), kept[1..]);
}

pub(in crate::store) fn rates_are_kept_until_they_have_recovered(backend: &mut dyn Backend) {
    let mut harness = Harness::new(backend);
    let id = |key: Option<&str>| LimitId {
        kind: LimitKind::Rate,
        name: "resize".into(),
        key: key.map(Into::into),
    };
    let used = |key, recovered| Change::RateUsed(RateRow { id: id(key), recovered: Timestamp(recovered) });
    let far = i64::MAX / 2;
    harness.commit(vec![used(None, far), used(Some(""), far + 1), used(Some("acme"), 7)]);
    harness.commit(vec![used(None, far + 2), used(None, far + 3)]);
    let (loaded, _) = harness.restart();
    let kept: Vec<_> = loaded.rates.into_iter().filter(|row| row.recovered.0 >= far).collect();
    let row = |key, recovered| RateRow { id: id(key), recovered: Timestamp(recovered) };
    assert_eq!(kept, [row(None, far + 3), row(Some(""), far + 1)]);
}
