//! Output is never lost silently, attempts do not delay each other, and a restart continues at the last mark.

mod in_files;

use protocol::report::ChunkData;
use protocol::wire::{CHUNK_WEIGHT, OUTPUT_BYTES_MAX, OUTPUT_WINDOW};
use protocol::{Fence, JobId, Nonce};
use tokio::time::Duration;

use super::*;

fn token(job: u64) -> Token {
    Token { job: JobId(job), fence: Fence(job), nonce: Nonce(7) }
}

fn mark(token: Token, offset: u64) -> OutputMark {
    OutputMark { token, stream: Stream::Stdout, offset }
}

fn stdout(bytes: u64) -> OutputLengths {
    OutputLengths { stdout: bytes, stderr: 0 }
}

fn size(chunks: &[Chunk]) -> usize {
    chunks.iter().map(|it| (it.end() - it.offset) as usize).sum()
}

#[tokio::test]
async fn output_is_done_only_when_it_is_finished_and_acknowledged() {
    let (logs, mut done) = Logs::new();
    logs.push(token(1), Stream::Stdout, b"hello");
    let frame = logs.next().await;
    assert_eq!(frame[0].data, ChunkData::Bytes(b"hello".to_vec()));
    logs.acknowledge(&[mark(token(1), 5)]);
    assert!(done.try_recv().is_err(), "it may still write");
    logs.finish(token(1), stdout(5));
    assert_eq!(done.recv().await, Some(token(1)));
}

#[tokio::test]
async fn an_attempt_that_wrote_nothing_is_done_at_once() {
    let (logs, mut done) = Logs::new();
    logs.finish(token(1), OutputLengths::default());
    assert_eq!(done.recv().await, Some(token(1)));
}

#[tokio::test]
async fn small_outputs_of_many_attempts_share_a_frame() {
    let (logs, _done) = Logs::new();
    for job in 0..1_000 {
        logs.push(token(job), Stream::Stderr, &[b'x'; 100]);
    }
    let frame = logs.next().await;
    assert!(frame.len() > 400 && size(&frame) <= OUTPUT_BYTES_MAX, "{} chunks", frame.len());
}

#[tokio::test(start_paused = true)]
async fn a_session_has_a_window_and_a_new_one_starts_at_the_last_mark() {
    let (logs, _done) = Logs::new();
    logs.push(token(1), Stream::Stdout, &vec![1; 1_000_000]);
    let mut sent = 0;
    while let Ok(frame) = tokio::time::timeout(Duration::from_secs(1), logs.next()).await {
        assert!(size(&frame) <= OUTPUT_BYTES_MAX);
        sent += size(&frame);
    }
    assert!(sent <= OUTPUT_WINDOW && sent > OUTPUT_WINDOW - 4096, "{sent}");
    logs.acknowledge(&[mark(token(1), 100_000)]);
    assert_eq!(logs.next().await[0].offset, sent as u64);
    logs.reconnected();
    assert_eq!(logs.next().await[0].offset, 100_000);
}

#[tokio::test]
async fn a_busy_attempt_does_not_delay_a_quiet_one() {
    let (logs, _done) = Logs::new();
    logs.push(token(1), Stream::Stdout, &vec![1; 200_000]);
    logs.push(token(2), Stream::Stdout, b"quiet");
    let two_frames = [logs.next().await, logs.next().await].concat();
    assert!(two_frames.iter().any(|it| it.token == token(2)));
}

#[tokio::test]
async fn lost_bytes_are_a_marked_gap() {
    let (logs, mut done) = Logs::new();
    logs.push(token(1), Stream::Stdout, b"abc");
    logs.finish(token(1), stdout(10));
    let frame = logs.next().await;
    assert_eq!(frame[1].data, ChunkData::Gap(7));
    logs.acknowledge(&[mark(token(1), 10)]);
    assert_eq!(done.recv().await, Some(token(1)));
}

#[tokio::test(start_paused = true)]
async fn output_without_acknowledgement_is_given_up_and_becomes_a_gap() {
    let (logs, mut done) = Logs::new();
    logs.push(token(1), Stream::Stdout, &vec![0; 300_000]);
    logs.finish(token(1), stdout(300_000));
    let mut sent = Vec::new();
    while done.try_recv().is_err() {
        if let Ok(frame) = tokio::time::timeout(ACKNOWLEDGE_TIMEOUT, logs.next()).await {
            sent.extend(frame);
        }
    }
    let more = tokio::time::timeout(ACKNOWLEDGE_TIMEOUT, logs.next()).await;
    assert!(more.is_err(), "the server keeps what was given up here, and has room for no more: {more:?}");
    logs.acknowledge(&[mark(token(1), sent[0].end())]);
    let last = logs.next().await.pop();
    assert!(last.is_some_and(|it| matches!(it.data, ChunkData::Gap(_)) && it.end() == 300_000));
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_an_acknowledgement_begins_with_the_last_one() {
    let (logs, mut done) = Logs::new();
    logs.push(token(1), Stream::Stdout, b"two parts");
    logs.finish(token(1), stdout(9));
    assert_eq!(logs.next().await.len(), 1);
    let ended = Instant::now();
    tokio::time::advance(Duration::from_secs(1)).await;
    logs.acknowledge(&[mark(token(1), 3)]);
    while done.try_recv().is_err() {
        drop(tokio::time::timeout(Duration::from_secs(1), logs.next()).await);
    }
    let waited = ended.elapsed().saturating_sub(ACKNOWLEDGE_TIMEOUT);
    assert!((1..=3).contains(&waited.as_secs()), "{waited:?}");
}

/// Chunks that a worker sends to a server that acknowledges nothing.
#[tokio::test(start_paused = true)]
async fn short_lines_fill_the_window_by_their_weight() {
    let (logs, _done) = Logs::new();
    let (mut weight, mut chunks) = (0, 0);
    loop {
        logs.push(token(1), Stream::Stdout, b"a line of 20 bytes.\n");
        match tokio::time::timeout(Duration::from_secs(1), logs.next()).await {
            Ok(frame) => {
                weight += frame.iter().map(Chunk::weight).sum::<usize>();
                chunks += frame.len();
            }
            Err(_) => break,
        }
    }
    assert!(weight <= OUTPUT_WINDOW, "{weight}");
    assert!(chunks >= OUTPUT_WINDOW / (20 + CHUNK_WEIGHT), "{chunks}");
}

#[tokio::test]
async fn marks_of_unknown_attempts_are_ignored_and_those_beyond_the_end_count_as_the_end() {
    let (logs, mut done) = Logs::new();
    logs.acknowledge(&[mark(token(9), u64::MAX)]);
    logs.push(token(1), Stream::Stdout, b"abc");
    logs.acknowledge(&[mark(token(1), u64::MAX), mark(token(1), 1)]);
    logs.finish(token(1), stdout(3));
    assert_eq!(done.recv().await, Some(token(1)));
}

#[tokio::test]
async fn giving_up_frees_memory() {
    let (logs, mut done) = Logs::new();
    logs.push(token(1), Stream::Stdout, &vec![0; MEMORY_BYTES_MAX]);
    logs.push(token(2), Stream::Stdout, b"too much");
    logs.give_up(token(1));
    assert_eq!(done.recv().await, Some(token(1)));
    logs.push(token(3), Stream::Stdout, b"fits");
    let frame = logs.next().await;
    assert!(
        frame.iter().any(|it| it.token == token(1) && it.data == ChunkData::Gap(MEMORY_BYTES_MAX as u64))
    );
    assert!(frame.iter().any(|it| it.token == token(2) && it.data == ChunkData::Gap(8)));
    assert!(frame.iter().any(|it| it.token == token(3) && it.data == ChunkData::Bytes(b"fits".to_vec())));
}
