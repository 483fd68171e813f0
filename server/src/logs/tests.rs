//! Tests of the logs on real files.

mod damage;
mod power;
mod stored;
mod times;
mod unreadable;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use protocol::report::{ChunkData, Stream};
use protocol::{Fence, Nonce, Token};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use super::*;

/// Small segments, so that little output needs many.
const SMALL: Limits = Limits {
    segment_bytes: 1_000,
    sync_interval: Duration::ZERO,
    waiting_bytes: 1 << 20,
    is_same_boot: false,
};

const OUT: Streams = Streams::Only(Stream::Stdout);

fn token(job: u64) -> Token {
    Token { job: JobId(job), fence: Fence(job + 100), nonce: Nonce(1) }
}

fn chunk(job: u64, stream: Stream, offset: u64, data: &[u8]) -> Chunk {
    Chunk { token: token(job), stream, offset, data: ChunkData::Bytes(data.to_vec()) }
}

fn out(job: u64, offset: u64, text: &str) -> Chunk {
    chunk(job, Stream::Stdout, offset, text.as_bytes())
}

fn err(job: u64, offset: u64, text: &str) -> Chunk {
    chunk(job, Stream::Stderr, offset, text.as_bytes())
}

/// All pages from a position on. Missing bytes are shown as `_`, as many as there are.
fn text_from(logs: &Logs, job: u64, streams: Streams, from: u64) -> String {
    let (mut text, mut next) = (Vec::new(), from);
    loop {
        let page = logs.read(token(job).into(), streams, next, 100).unwrap();
        if page.pieces.is_empty() {
            return String::from_utf8(text).unwrap();
        }
        for piece in page.pieces {
            assert_eq!(piece.at, next, "pieces follow one another without holes");
            next += piece.data.len();
            match piece.data {
                PieceData::Bytes(bytes) | PieceData::Replayed(bytes) => text.extend_from_slice(&bytes),
                PieceData::Gap(bytes) | PieceData::Cut(bytes) => {
                    text.resize(text.len() + usize::try_from(bytes).unwrap(), b'_')
                }
            }
        }
        assert_eq!(page.next, next);
    }
}

fn text(logs: &Logs, job: u64, streams: Streams) -> String {
    text_from(logs, job, streams, 0)
}

fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|it| it == extension)).collect();
    files.sort();
    files
}

fn copy(place: &TempDir) -> TempDir {
    let other = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(place.path()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, other.path().join(path.file_name().unwrap())).unwrap();
    }
    other
}

#[tokio::test]
async fn output_comes_back_by_stream_and_as_it_arrived() {
    let place = tempfile::tempdir().unwrap();
    let logs = Logs::open(place.path(), Limits::default()).unwrap();
    let chunks = vec![out(1, 0, "one "), out(2, 0, "other"), err(1, 0, "oops "), out(1, 4, "two ")];
    let marks = logs.append(chunks).await.unwrap();
    let told: Vec<_> = marks.iter().map(|mark| (mark.token.job.0, mark.stream, mark.offset)).collect();
    assert_eq!(told, [(1, Stream::Stdout, 8), (2, Stream::Stdout, 5), (1, Stream::Stderr, 5)]);
    logs.append(vec![err(1, 5, "again")]).await.unwrap();
    assert_eq!(text(&logs, 1, OUT), "one two ");
    assert_eq!(text(&logs, 1, Streams::Only(Stream::Stderr)), "oops again");
    assert_eq!(text(&logs, 1, Streams::Both), "one oops two again");
    assert_eq!(text_from(&logs, 1, Streams::Both, 6), "ps two again");
    assert_eq!(text(&logs, 2, Streams::Both), "other");
    assert_eq!(text(&logs, 3, Streams::Both), "");
    assert_eq!(logs.lengths(token(1).into()).unwrap(), OutputLengths { stdout: 8, stderr: 10 });
}

#[tokio::test]
async fn repeated_bytes_are_skipped_and_missing_bytes_are_gaps() {
    let place = tempfile::tempdir().unwrap();
    let logs = Logs::open(place.path(), Limits::default()).unwrap();
    logs.append(vec![out(1, 0, "abc"), out(1, 0, "abcd"), out(1, 6, "gh")]).await.unwrap();
    let gap = Chunk { data: ChunkData::Gap(3), ..out(1, 8, "") };
    let replayed = Chunk { data: ChunkData::Replayed(b"lm".to_vec()), ..out(1, 11, "") };
    let marks = logs.append(vec![out(1, 4, "efgh"), gap, replayed]).await.unwrap();
    assert_eq!(marks[0].offset, 13);
    assert_eq!(text(&logs, 1, OUT), "abcd__gh___lm");
    let last = logs.read(token(1).into(), OUT, 11, 100).unwrap().pieces.remove(0);
    assert_eq!(last.data, PieceData::Replayed(Bytes::from_static(b"lm")));
}

#[tokio::test]
async fn output_survives_restarts_over_many_segments() {
    let place = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(7);
    let mut expected: HashMap<(u64, Streams), Vec<u8>> = HashMap::new();
    for _ in 0..5 {
        let logs = Logs::open(place.path(), SMALL).unwrap();
        for _ in 0..40 {
            let mut chunks = Vec::new();
            for _ in 0..random.random_range(1..6) {
                let (job, stream) = (random.random_range(1..6), Stream::ALL[random.random_range(0..2)]);
                let data: Vec<u8> =
                    (0..random.random_range(1..90)).map(|_| random.random_range(b'a'..=b'z')).collect();
                let known = expected.entry((job, Streams::Only(stream))).or_default();
                // Now and then a part is sent again.
                let again = random.random_range(0..=known.len().min(10));
                let mut sent = known[known.len() - again..].to_vec();
                sent.extend_from_slice(&data);
                chunks.push(chunk(job, stream, (known.len() - again) as u64, &sent));
                known.extend_from_slice(&data);
                expected.entry((job, Streams::Both)).or_default().extend_from_slice(&data);
            }
            logs.append(chunks).await.unwrap();
        }
    }
    assert!(files(place.path(), "seg").len() > 10);
    let logs = Logs::open(place.path(), SMALL).unwrap();
    for ((job, streams), bytes) in &expected {
        let all = String::from_utf8(bytes.clone()).unwrap();
        assert_eq!(text(&logs, *job, *streams), all, "job {job} {streams:?}");
        for _ in 0..20 {
            let from = random.random_range(0..=all.len());
            assert_eq!(text_from(&logs, *job, *streams, from as u64), all[from..]);
        }
    }
}

#[tokio::test]
async fn stored_bytes_are_counted_without_gaps_over_all_segments() {
    let place = tempfile::tempdir().unwrap();
    assert_eq!(examine::output_totals(&place.path().join("none")).unwrap(), examine::OutputTotals::default());
    let logs = Logs::open(place.path(), SMALL).unwrap();
    for at in 0..20 {
        logs.append(vec![out(1, at * 10, "0123456789"), err(2, at * 12, "0123456789")]).await.unwrap();
    }
    assert!(logs.segments().len() > 1);
    let expected = examine::OutputTotals { attempts: 2, bytes: 400 };
    assert_eq!(examine::output_totals(place.path()).unwrap(), expected, "while it is open");
    drop(logs);
    assert_eq!(examine::output_totals(place.path()).unwrap(), expected);
}

#[tokio::test]
async fn a_torn_end_is_cut_off_and_written_anew() {
    let place = tempfile::tempdir().unwrap();
    let logs = Logs::open(place.path(), Limits::default()).unwrap();
    logs.append(vec![out(1, 0, "kept ")]).await.unwrap();
    let kept = fs::metadata(&files(place.path(), "seg")[0]).unwrap().len();
    logs.append(vec![out(1, 5, "torn "), out(1, 10, "off")]).await.unwrap();
    let whole = fs::metadata(&files(place.path(), "seg")[0]).unwrap().len();
    for length in (kept..=whole).step_by(7) {
        let after = copy(&place);
        fs::File::options()
            .write(true)
            .open(&files(after.path(), "seg")[0])
            .unwrap()
            .set_len(length)
            .unwrap();
        let logs = Logs::open(after.path(), Limits::default()).unwrap();
        let found = text(&logs, 1, OUT);
        assert!(["kept ", "kept torn ", "kept torn off"].contains(&&*found), "{length}: {found}");
        logs.append(vec![out(1, 5, "torn off")]).await.unwrap();
        assert_eq!(text(&logs, 1, OUT), "kept torn off");
    }
}

#[tokio::test]
async fn a_lost_index_is_made_again() {
    let place = tempfile::tempdir().unwrap();
    let logs = Logs::open(place.path(), SMALL).unwrap();
    let long = "line\n".repeat(50);
    for at in 0..20 {
        logs.append(vec![out(1, at * 250, &long)]).await.unwrap();
    }
    drop(logs);
    let indexes = files(place.path(), "idx");
    assert!(indexes.len() > 3);
    fs::remove_file(&indexes[0]).unwrap();
    fs::write(&indexes[1], "torn").unwrap();
    // The format of earlier versions: the same entries without a checksum.
    let mut earlier = fs::read(&indexes[2]).unwrap();
    earlier[7] = b'1';
    fs::write(&indexes[2], earlier).unwrap();
    let logs = Logs::open(place.path(), SMALL).unwrap();
    assert_eq!(text(&logs, 1, OUT), long.repeat(20));
    assert_eq!(files(place.path(), "idx"), indexes);
    assert!(fs::read(&indexes[2]).unwrap().starts_with(b"LSLOGIX3"));
}

#[tokio::test]
async fn damaged_or_deleted_output_is_a_gap() {
    let place = tempfile::tempdir().unwrap();
    let logs = Logs::open(place.path(), SMALL).unwrap();
    for at in 0..12 {
        logs.append(vec![out(1, at * 250, &"x".repeat(250))]).await.unwrap();
    }
    let segments = logs.segments();
    assert!(segments.len() >= 2 && segments[0].bytes >= 1_000);
    logs.remove(segments[0].number).unwrap();
    logs.remove(9_999).expect("nothing to delete");
    let second = fs::File::options().write(true).open(&files(place.path(), "seg")[0]).unwrap();
    second.write_all_at(b"?", 100).unwrap();
    let found = text(&logs, 1, OUT);
    assert_eq!(found.len(), 3_000);
    assert_eq!(found.find('x'), Some(1_250), "four chunks deleted, one damaged");
    assert!(found[1_250..].bytes().all(|byte| byte == b'x'));
    assert_eq!(text_from(&logs, 1, OUT, 500), found[500..]);
}

#[tokio::test]
async fn a_segment_tells_whose_output_it_has() {
    let place = tempfile::tempdir().unwrap();
    let logs = Logs::open(place.path(), SMALL).unwrap();
    for job in [5, 2, 9, 2, 7] {
        logs.append(vec![out(job, 0, &"x".repeat(100)), err(job, 0, "y")]).await.unwrap();
    }
    let again = Chunk { token: Token { fence: Fence(999), ..token(7) }, ..out(7, 0, &"x".repeat(500)) };
    logs.append(vec![again]).await.unwrap();
    // The next segment is begun before anything more is stored.
    logs.append(vec![out(20, 0, "z")]).await.unwrap();
    let segment = logs.segments()[0];
    let index = fs::metadata(&files(place.path(), "idx")[0]).unwrap().len();
    assert_eq!(segment.bytes, fs::metadata(&files(place.path(), "seg")[0]).unwrap().len() + index);
    let jobs = |highest, count| logs.jobs(segment.number, JobId(highest), count).unwrap();
    assert_eq!(jobs(u64::MAX, 100), [9, 7, 5, 2].map(JobId));
    assert_eq!(jobs(8, 3), [7, 5].map(JobId), "two attempts of one job");
    assert_eq!(jobs(5, 1), [JobId(5)]);
    assert_eq!(jobs(1, 100), []);
    assert_eq!(logs.jobs(99, JobId(9), 100).unwrap(), []);
    logs.remove(segment.number).unwrap();
    assert_eq!((files(place.path(), "idx").len(), logs.segments().len()), (0, 0));
    assert_eq!(jobs(9, 100), []);
}

#[tokio::test]
async fn a_tail_is_found_across_segments() {
    let place = tempfile::tempdir().unwrap();
    let logs = Logs::open(place.path(), SMALL).unwrap();
    let lines: Vec<String> = (0..90).map(|number| format!("line {number}\n")).collect();
    let mut offset = 0;
    for line in &lines {
        logs.append(vec![out(1, offset, line), err(1, offset, line), out(2, offset, line)]).await.unwrap();
        offset += line.len() as u64;
    }
    assert!(files(place.path(), "seg").len() > 10);
    for wanted in [0, 1, 7, 50, 90, 9_999] {
        let from = logs.tail(token(1).into(), OUT, wanted).unwrap();
        let count = usize::try_from(wanted).unwrap().min(lines.len());
        assert_eq!(text_from(&logs, 1, OUT, from), lines[lines.len() - count..].concat(), "{wanted}");
    }
    let from = logs.tail(token(1).into(), Streams::Both, 4).unwrap();
    assert_eq!(text_from(&logs, 1, Streams::Both, from), "line 88\nline 88\nline 89\nline 89\n");
    assert_eq!(logs.tail(token(3).into(), OUT, 5).unwrap(), 0);
}

#[tokio::test]
async fn followers_wake_when_their_attempt_grows() {
    let place = tempfile::tempdir().unwrap();
    let logs = Logs::open(place.path(), Limits::default()).unwrap();
    let mut follow = logs.follow(token(1).into());
    logs.append(vec![out(2, 0, "not mine")]).await.unwrap();
    let nothing = tokio::time::timeout(Duration::from_millis(20), follow.grown()).await;
    assert!(nothing.is_err());
    let grown = tokio::spawn(async move {
        follow.grown().await;
        follow
    });
    logs.append(vec![out(1, 0, "mine")]).await.unwrap();
    let mut follow = tokio::time::timeout(Duration::from_secs(10), grown).await.unwrap().unwrap();
    assert_eq!(text(&logs, 1, OUT), "mine", "what woke it can be read");
    logs.append(vec![out(1, 4, "more")]).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), follow.grown())
        .await
        .expect("growth before the call counts");
    drop(follow);
    assert!(logs.shared.followed.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sessions_write_at_once_within_a_small_window() {
    let place = tempfile::tempdir().unwrap();
    let limits = Limits { waiting_bytes: 500, segment_bytes: 20_000, ..Limits::default() };
    let logs = Logs::open(place.path(), limits).unwrap();
    let session = |job: u64| {
        let logs = Arc::clone(&logs);
        async move {
            for at in 0..20 {
                let marks = logs.append(vec![out(job, at * 200, &"y".repeat(200))]).await.unwrap();
                assert_eq!(marks[0].offset, (at + 1) * 200);
            }
        }
    };
    let sessions: Vec<_> = (0..12).map(|job| tokio::spawn(session(job))).collect();
    for session in sessions {
        tokio::time::timeout(Duration::from_secs(30), session).await.unwrap().unwrap();
    }
    for job in 0..12 {
        assert_eq!(text(&logs, job, Streams::Both), "y".repeat(4_000));
    }
}

fn device(path: &str) -> Arc<fs::File> {
    Arc::new(fs::File::options().read(true).write(true).open(path).unwrap())
}

#[tokio::test]
async fn a_full_disk_is_waited_for_and_nothing_is_acknowledged_meanwhile() {
    let place = tempfile::tempdir().unwrap();
    let logs = Logs::open(place.path(), SMALL).unwrap();
    logs.append(vec![out(1, 0, "one ")]).await.unwrap();
    let good = logs.shared.segments_mut().swap_file(device("/dev/full"));
    let mut first = std::pin::pin!(logs.append(vec![out(1, 4, "two ")]));
    let answer = tokio::time::timeout(Duration::from_millis(200), first.as_mut()).await;
    assert!(answer.is_err(), "there is no room: {answer:?}");
    let mut second = std::pin::pin!(logs.append(vec![out(1, 8, "three ")]));
    let answer = tokio::time::timeout(Duration::from_millis(200), second.as_mut()).await;
    assert!(answer.is_err(), "there is no room: {answer:?}");
    logs.shared.segments_mut().swap_file(good);
    first.await.unwrap();
    second.await.unwrap();
    assert_eq!(text(&logs, 1, OUT), "one two three ");
}

/// Runs again in a process of its own, because it ends it.
#[tokio::test]
async fn failed_sync_or_write_or_panic_of_the_writer_ends_the_process() {
    const ITSELF: &str = "logs::tests::failed_sync_or_write_or_panic_of_the_writer_ends_the_process";
    if let Some(what) = std::env::var_os("LONGSHORE_TEST_ABORT") {
        let place = tempfile::tempdir().unwrap();
        if what == "panic" {
            let panicking = || {
                let _guard = writer::AbortOnPanic;
                panic!("a bug of the writer");
            };
            let _ = std::thread::spawn(panicking).join();
            return;
        }
        let logs = Logs::open(place.path(), SMALL).unwrap();
        // The first takes writes and cannot be synced, the second takes none.
        let bad =
            if what == "sync" { device("/dev/null") } else { Arc::new(fs::File::open("/dev/null").unwrap()) };
        logs.shared.segments_mut().swap_file(bad);
        let _ = logs.append(vec![out(1, 0, "lost")]).await;
        return;
    }
    for what in ["sync", "write", "panic"] {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let output = again
            .args(["--exact", ITSELF])
            .env("LONGSHORE_TEST_ABORT", what)
            .output()
            .expect("it starts again");
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
        assert_eq!(signal, Some(6), "{what}: {output:?}");
    }
}
