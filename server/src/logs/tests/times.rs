//! Times of receipt, and segments of versions that did not store them.

use proptest::prelude::*;

use super::super::index::SegmentIndex;
use super::super::scan::Scan;
use super::*;
use crate::clock;

/// A piece of output: its stream, when it was received, and its text.
type Stretch = (Stream, Option<Timestamp>, String);

/// An append of one piece. Pieces without a time are records of earlier versions.
fn append() -> impl Strategy<Value = (u64, Stretch)> {
    let time = prop::option::of((0..2_000_000_000_000_i64).prop_map(Timestamp));
    (1..4_u64, (prop::sample::select(&Stream::ALL[..]), time, "[a-z\n]{1,120}"))
}

async fn store(logs: &Logs, appends: &[(u64, Stretch)]) {
    for (at, (job, (stream, time, text))) in appends.iter().enumerate() {
        let earlier = appends[..at].iter().filter(|(other, stretch)| other == job && stretch.0 == *stream);
        let offset = earlier.map(|(_, (_, _, text))| text.len() as u64).sum();
        logs.append_received(
            super::super::unbounded(vec![chunk(*job, *stream, offset, text.as_bytes())]),
            *time,
        )
        .await
        .unwrap();
    }
}

fn stretches(logs: &Logs, job: u64) -> Vec<Option<Stretch>> {
    let (mut found, mut next) = (Vec::new(), 0);
    loop {
        let page = logs.read(token(job).into(), Streams::Both, next, 200).unwrap();
        if page.pieces.is_empty() {
            return found;
        }
        next = page.next;
        found.extend(page.pieces.into_iter().map(|piece| match piece.data {
            PieceData::Bytes(bytes) => {
                Some((piece.stream, piece.received_at, String::from_utf8(bytes.to_vec()).unwrap()))
            }
            PieceData::Replayed(_) | PieceData::Gap(_) | PieceData::Cut(_) => None,
        }));
    }
}

fn of_job(appends: &[(u64, Stretch)], wanted: u64) -> Vec<Option<Stretch>> {
    appends.iter().filter(|(job, _)| *job == wanted).map(|(_, stretch)| Some(stretch.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn old_and_new_records_are_read_alike(
        appends in prop::collection::vec(append(), 1..40),
        damaged in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let place = tempfile::tempdir()?;
        let logs = Logs::open(place.path(), SMALL)?;
        runtime.block_on(store(&logs, &appends));
        for job in 1..4 {
            prop_assert_eq!(stretches(&logs, job), of_job(&appends, job));
        }
        drop(logs);
        prop_assert!(examine::examine(place.path(), true)?.damaged.is_empty());
        for index in files(place.path(), "idx") {
            fs::remove_file(index)?;
        }
        let logs = Logs::open(place.path(), SMALL)?;
        for job in 1..4 {
            prop_assert_eq!(stretches(&logs, job), of_job(&appends, job), "without indexes");
        }
        // A flipped bit in a segment hides one piece and changes none.
        let first = &files(place.path(), "seg")[0];
        let mut bytes = fs::read(first)?;
        let at = damaged.index(bytes.len());
        bytes[at] ^= 1 << bit;
        fs::write(first, &bytes)?;
        let mut hidden = 0;
        for job in 1..4 {
            let (found, expected) = (stretches(&logs, job), of_job(&appends, job));
            prop_assert_eq!(found.len(), expected.len());
            prop_assert!(found.iter().zip(&expected).all(|(found, sent)| found.is_none() || found == sent));
            hidden += found.iter().filter(|found| found.is_none()).count();
        }
        prop_assert_eq!(hidden, 1);
    }
}

#[tokio::test]
async fn output_has_the_time_at_which_it_was_appended() {
    let place = tempfile::tempdir().unwrap();
    let logs = Logs::open(place.path(), Limits::default()).unwrap();
    let before = clock::now().utc;
    let replayed = Chunk { data: ChunkData::Replayed(b"again".to_vec()), ..out(1, 5, "") };
    // Three bytes are missing in front of the first.
    logs.append(vec![out(1, 3, "ab"), replayed]).await.unwrap();
    let after = clock::now().utc;
    let pieces = logs.read(token(1).into(), OUT, 1, 100).unwrap().pieces;
    assert_eq!(pieces.len(), 3);
    assert!(pieces.iter().all(|piece| piece.received_at.is_some_and(|at| at >= before && at <= after)));
}

#[tokio::test]
async fn output_since_a_time_begins_after_the_last_that_is_older() {
    let place = tempfile::tempdir().unwrap();
    let logs = Logs::open(place.path(), SMALL).unwrap();
    // Of an earlier version; then the clock is set back by a second; the last two lie in other segments.
    let times = [None, Some(1_000), Some(2_000), Some(1_500), Some(3_000), Some(4_000)];
    let text = |at: usize| format!("{at}{}", "x".repeat(if at > 3 { 600 } else { 3 }));
    let stream = |at: usize| if at == 2 { Stream::Stderr } else { Stream::Stdout };
    let appends: Vec<(u64, Stretch)> =
        times.iter().enumerate().map(|(at, time)| (1, (stream(at), time.map(Timestamp), text(at)))).collect();
    store(&logs, &appends).await;
    let since = |streams, time| logs.since(token(1).into(), streams, Timestamp(time)).unwrap();
    for (time, position) in
        [(0, 4), (1_000, 4), (1_001, 8), (1_500, 8), (1_501, 16), (3_000, 16), (3_001, 617)]
    {
        assert_eq!(since(Streams::Both, time), position, "{time}");
    }
    assert_eq!(since(Streams::Both, 4_001), 1_218);
    assert_eq!((since(OUT, 1_001), since(OUT, 2_000)), (8, 12));
    assert_eq!(
        (since(Streams::Only(Stream::Stderr), 0), since(Streams::Only(Stream::Stderr), 2_001)),
        (0, 4)
    );
    assert_eq!(logs.since(token(2).into(), Streams::Both, Timestamp(0)).unwrap(), 0);
}

#[tokio::test]
async fn a_damaged_time_does_not_hide_output() {
    let place = tempfile::tempdir().unwrap();
    let logs = Logs::open(place.path(), SMALL).unwrap();
    let appends = [1_000, 2_000, 3_000].map(|at| (1, (Stream::Stdout, Some(Timestamp(at)), at.to_string())));
    store(&logs, &appends).await;
    let segment = &files(place.path(), "seg")[0];
    let bytes = fs::read(segment).unwrap();
    let at = bytes.windows(12).position(|it| it == b"\xb8\x0b\0\0\0\0\0\x003000").unwrap() as u64;
    let since = || logs.since(token(1).into(), Streams::Both, Timestamp(1_500)).unwrap();
    assert_eq!(since(), 4);
    fs::File::options().write(true).open(segment).unwrap().write_all_at(&[0, 0], at).unwrap();
    assert_eq!(since(), 4);
}

/// Stores three pieces in a segment, the last with a time or not, and gives it an index of version 2 with the first two only.
async fn store_under_an_earlier_index(place: &Path, has_times: bool) -> Vec<(u64, Stretch)> {
    let logs = Logs::open(place, SMALL).unwrap();
    let time = |at| (has_times && at > 1).then_some(Timestamp(at));
    let text = |at| format!("{at}{}", "x".repeat(300));
    let appends: Vec<(u64, Stretch)> = (0..3).map(|at| (1, (Stream::Stdout, time(at), text(at)))).collect();
    store(&logs, &appends).await;
    drop(logs);
    let (segment, index) = (&files(place, "seg")[0], &files(place, "idx")[0]);
    let all = Scan::of(&fs::File::open(segment).unwrap()).unwrap().all();
    let mut known = SegmentIndex::default();
    for (attempt, position) in all.all().take(2) {
        known.add(attempt, *position);
    }
    known.write(index).unwrap();
    fs::File::options().write(true).open(index).unwrap().write_all_at(b"LSLOGIX2", 0).unwrap();
    appends
}

/// A server of an earlier version has made the index again, and has left out the records that it did not know.
#[tokio::test]
async fn an_index_that_lacks_records_with_times_is_made_again() {
    let place = tempfile::tempdir().unwrap();
    let appends = store_under_an_earlier_index(place.path(), true).await;
    assert_eq!(examine::examine(place.path(), false).unwrap().without_index, [1]);
    let logs = Logs::open(place.path(), SMALL).unwrap();
    assert_eq!(stretches(&logs, 1), of_job(&appends, 1));
}

/// A recovery of an earlier version has not accepted the last records: their worker has sent them again.
#[tokio::test]
async fn an_earlier_index_without_refused_records_stays_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let appends = store_under_an_earlier_index(place.path(), false).await;
    let logs = Logs::open(place.path(), SMALL).unwrap();
    assert_eq!(stretches(&logs, 1), of_job(&appends[..2], 1));
}
