//! Output that is in files.

use std::io::Write;
use std::os::unix::fs::MetadataExt;

use proptest::prelude::*;
use protocol::{ContainerSpec, Revision};
use worker::step::Launch;

use super::*;
use crate::attempt_dir::AttemptStore;

struct StoredOutput {
    _state: tempfile::TempDir,
    dir: AttemptDir,
    logs: Logs,
    done: mpsc::UnboundedReceiver<Token>,
}

fn stored_output() -> StoredOutput {
    let state = tempfile::tempdir().expect("a directory");
    let launch = Launch {
        token: token(1),
        revision: Revision(1),
        name: "job".into(),
        spec: ContainerSpec::default().into(),
        overrides: None,
        time_left: None,
        secrets: Default::default(),
    };
    let dir = AttemptStore::open(state.path()).and_then(|it| it.create(&launch)).expect("made");
    let (logs, done) = Logs::new();
    StoredOutput { _state: state, dir, logs, done }
}

impl StoredOutput {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        self.dir.output(stream).expect("open").write_all(bytes).expect("written");
    }

    /// Takes and acknowledges all frames. Returns the bytes of both streams with gaps as zeros, and the number of gap bytes.
    async fn drain(&mut self) -> ([Vec<u8>; 2], u64) {
        let (mut got, mut gaps) = ([Vec::new(), Vec::new()], 0);
        let all = async {
            loop {
                tokio::select! {
                    _ = self.done.recv() => return,
                    frame = self.logs.next() => for chunk in frame {
                        let stream = &mut got[chunk.stream as usize];
                        assert_eq!(stream.len() as u64, chunk.offset, "in order");
                        let (end, mark) = (chunk.end(), chunk.stream);
                        match chunk.data {
                            ChunkData::Bytes(bytes) | ChunkData::Replayed(bytes) => stream.extend(bytes),
                            ChunkData::Gap(bytes) => {
                                gaps += bytes;
                                stream.resize(end as usize, 0);
                            }
                        }
                        self.logs.acknowledge(&[OutputMark { token: chunk.token, stream: mark, offset: end }]);
                    }
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), all).await.expect("it ends");
        (got, gaps)
    }
}

#[tokio::test]
async fn growth_of_followed_files_is_sent_at_once() {
    let mut output = stored_output();
    output.write(Stream::Stdout, b"before ");
    output.logs.follow(token(1), &output.dir, 0, &[]).expect("followed");
    assert_eq!(output.logs.next().await[0].data, ChunkData::Bytes(b"before ".to_vec()));
    output.write(Stream::Stdout, b"after");
    let next = tokio::time::timeout(Duration::from_secs(10), output.logs.next()).await.expect("noticed");
    assert_eq!((next[0].offset, &next[0].data), (7, &ChunkData::Bytes(b"after".to_vec())));
    output.logs.reconnected();
    output.logs.finish(token(1), stdout(12));
    assert_eq!(output.drain().await.0[0], b"before after");
}

#[tokio::test]
async fn a_new_connection_gets_the_finished_lines_before_a_line_that_is_held_back() {
    let mut output = stored_output();
    output.write(Stream::Stdout, b"one\nkey=1");
    output.logs.follow(token(1), &output.dir, 0, &["key=[0-9]+".to_owned()]).expect("followed");
    let first = output.logs.next().await.remove(0);
    assert_eq!(first.data, ChunkData::Bytes(b"one\n".to_vec()));
    // The last line is held back until its end is known.
    let is_held = || output.logs.queue().holds_back(token(1));
    let held = async {
        while !is_held() {
            let rest = tokio::time::timeout(Duration::from_millis(20), output.logs.next()).await;
            assert!(rest.is_err(), "{rest:?}");
        }
    };
    tokio::time::timeout(Duration::from_secs(10), held).await.expect("it is read and held back");
    output.logs.reconnected();
    let again = tokio::time::timeout(Duration::from_secs(10), output.logs.next()).await.expect("sent again");
    assert_eq!(again[0].data, first.data);
    output.logs.reconnected();
    output.logs.finish(token(1), stdout(9));
    assert_eq!(output.drain().await.0[0], b"one\n*****");
}

#[tokio::test]
async fn a_restart_continues_at_the_last_recorded_mark() {
    let mut first = stored_output();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|it| it as u8).collect();
    first.write(Stream::Stderr, &bytes);
    first.logs.follow(token(1), &first.dir, 0, &[]).expect("followed");
    let mut sent = 0;
    while sent < 2_000_000 {
        for chunk in first.logs.next().await {
            sent = chunk.end();
            first.logs.acknowledge(&[OutputMark { token: token(1), stream: Stream::Stderr, offset: sent }]);
        }
    }
    let kept = async {
        while first.dir.progress().expect("read").acknowledged.stderr < 1_000_000 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), kept).await.expect("kept");
    let (logs, _done) = Logs::new();
    logs.follow(token(1), &first.dir, 0, &[]).expect("followed");
    let chunk = logs.next().await.remove(0);
    assert!(chunk.offset >= 1_000_000, "{}", chunk.offset);
    let ChunkData::Bytes(again) = &chunk.data else { panic!("{chunk:?}") };
    assert_eq!(again[..], bytes[chunk.offset as usize..chunk.end() as usize]);
    first.logs.finish(token(1), OutputLengths { stdout: 0, stderr: 3_000_000 });
    assert_eq!(first.done.try_recv(), Err(mpsc::error::TryRecvError::Empty));
}

#[tokio::test]
async fn ended_attempts_hold_no_file_open_and_are_sent() {
    let mut output = stored_output();
    output.write(Stream::Stdout, &vec![7; 3 << 20]);
    let is_in = |link: std::fs::DirEntry| {
        std::fs::read_link(link.path()).is_ok_and(|it| it.starts_with(output.dir.path()))
    };
    let open = || {
        let all = std::fs::read_dir("/proc/self/fd").expect("there");
        all.filter_map(Result::ok).map(is_in).filter(|it| *it).count()
    };
    output.logs.follow(token(1), &output.dir, 0, &[]).expect("followed");
    assert_eq!(open(), 2);
    output.logs.finish(token(1), stdout(3 << 20));
    assert_eq!(open(), 0);
    assert_eq!(output.drain().await.0[0], vec![7; 3 << 20]);
}

#[tokio::test]
async fn acknowledged_output_is_freed_on_disk() {
    let mut output = stored_output();
    output.write(Stream::Stdout, &vec![7; 8 << 20]);
    let blocks = || std::fs::metadata(output.dir.path().join("stdout")).expect("there").blocks();
    let before = blocks();
    output.logs.follow(token(1), &output.dir, 0, &[]).expect("followed");
    let mut end = 0;
    while end < 7 << 20 {
        let chunk = output.logs.next().await.remove(0);
        end = chunk.end();
        output.logs.acknowledge(&[mark(token(1), end)]);
    }
    let freed = async {
        while blocks() > before / 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), freed).await.expect("freed");
    output.logs.finish(token(1), stdout(8 << 20));
    let rest = tokio::time::timeout(Duration::from_secs(10), output.logs.next()).await.expect("the rest");
    assert_eq!(rest[0].offset, end);
    output.logs.acknowledge(&[mark(token(1), 8 << 20)]);
    assert_eq!(output.done.recv().await, Some(token(1)));
}

#[tokio::test]
async fn an_output_beyond_its_limit_keeps_head_and_tail_and_marks_the_gap() {
    let mut output = stored_output();
    let limit = 4 << 20;
    let bytes: Vec<u8> = (0..12_u32 << 20).map(|it| (it / 251) as u8 | 1).collect();
    output.logs.follow(token(1), &output.dir, limit, &[]).expect("followed");
    for part in bytes.chunks(1 << 20) {
        output.write(Stream::Stdout, part);
    }
    output.logs.finish(token(1), stdout(12 << 20));
    let (got, gaps) = output.drain().await;
    assert_eq!(got[0].len(), bytes.len());
    let kept = bytes.len() as u64 - gaps;
    assert!(kept <= limit && kept > limit / 2, "{kept} of {limit}");
    let lost = got[0].iter().filter(|it| **it == 0).count();
    assert_eq!(lost as u64, gaps, "a gap is where bytes are missing, and nowhere else");
    assert!(got[0].iter().zip(&bytes).all(|(got, was)| *got == 0 || got == was));
    assert!(got[0].starts_with(&bytes[..2 << 20]) && got[0].ends_with(&bytes[bytes.len() - (1 << 18)..]));
}

#[tokio::test]
async fn replayed_bytes_are_labelled_from_the_first_one() {
    let mut output = stored_output();
    output.write(Stream::Stdout, b"livereplayed");
    let from = OutputLengths { stdout: 4, stderr: 0 };
    output.dir.record_replayed(ReplayRange { from, ..ReplayRange::default() }).expect("kept");
    output.logs.follow(token(1), &output.dir, 0, &[]).expect("followed");
    let frames = [output.logs.next().await, output.logs.next().await].concat();
    assert_eq!(frames[0].data, ChunkData::Bytes(b"live".to_vec()));
    assert_eq!(frames[1].data, ChunkData::Replayed(b"replayed".to_vec()));
    output.logs.finish(token(1), stdout(12));
    output.logs.acknowledge(&[mark(token(1), 12)]);
    assert_eq!(output.done.recv().await, Some(token(1)));
}

#[tokio::test]
async fn bytes_missing_in_the_log_are_a_gap_before_the_replay() {
    for is_told_later in [false, true] {
        let output = stored_output();
        output.write(Stream::Stdout, b"live");
        let replayed = ReplayRange { from: stdout(4), missing: stdout(3) };
        if is_told_later {
            output.logs.follow(token(1), &output.dir, 0, &[]).expect("followed");
        }
        output.dir.record_replayed(replayed).expect("kept");
        output.logs.set_replayed(token(1), replayed);
        output.write(Stream::Stdout, b"\0\0\0replayed");
        output.logs.follow(token(1), &output.dir, 0, &[]).expect("followed");
        output.logs.finish(token(1), stdout(15));
        let mut told = Vec::new();
        while told.len() < 3 {
            told.extend(output.logs.next().await.into_iter().map(|chunk| chunk.data));
        }
        let expected = [
            ChunkData::Bytes(b"live".to_vec()),
            ChunkData::Gap(3),
            ChunkData::Replayed(b"replayed".to_vec()),
        ];
        assert_eq!(told, expected);
    }
}

/// The number of cases; `PROPTEST_CASES` overrides it.
fn cases(usual: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(usual),
    }
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn any_two_streams_arrive_exactly(out in proptest::collection::vec(any::<u8>(), 0..200_000), err in proptest::collection::vec(any::<u8>(), 0..200_000)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (got, gaps) = runtime.block_on(async {
            let mut output = stored_output();
            output.logs.follow(token(1), &output.dir, 0, &[]).expect("followed");
            output.write(Stream::Stdout, &out);
            output.write(Stream::Stderr, &err);
            output.logs.finish(token(1), OutputLengths { stdout: out.len() as u64, stderr: err.len() as u64 });
            output.drain().await
        });
        prop_assert_eq!(gaps, 0);
        prop_assert_eq!(got, [out, err]);
    }
}
