//! The last lines of the output of a failed job, for targets with `output_lines`.
//!
//! The output has passed the worker's masks before it came here. The report of an end does not wait for the output, so the lines are read
//! when all that the report counts has been stored, or after [`ARRIVAL_MAX`]. They are read anew at each try, and stored nowhere else.

use std::sync::Arc;
use std::time::Duration;

use protocol::report::Stream;
use protocol::terminal::changes_direction;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::occasion::Occasion;
use crate::clock;
use crate::escape_sequence;
use crate::logs::{AttemptKey, Logs, LogsError, PieceData, Streams};
use crate::store::{AttemptRow, JobRow};

/// Reads the last lines of the last attempt of a job. `None` for other occasions than a failure, and if there is no text.
pub(super) async fn read(
    logs: &Arc<Logs>,
    occasion: Occasion,
    job: Option<&JobRow>,
    lines_max: u32,
) -> Option<String> {
    let job = job.filter(|_| matches!(occasion, Occasion::Failed | Occasion::Lost))?;
    let attempt = job.attempt.as_ref()?;
    let key = AttemptKey { job: job.job, fence: attempt.fence };
    wait_for_arrival(logs, key, attempt).await;
    let logs = Arc::clone(logs);
    match spawn_blocking(move || tail(&logs, key, lines_max)).await {
        Ok(Ok(text)) => Some(text).filter(|text| !text.is_empty()),
        Ok(Err(error)) => {
            tracing::warn!(%error, job = %job.job, "cannot read the output for a notification, which is sent without it");
            None
        }
        // A panic was logged when it happened.
        Err(_) => None,
    }
}

/// Waits until the output that the final report counts is stored. After a long time it is not waited for: it will not come.
async fn wait_for_arrival(logs: &Arc<Logs>, key: AttemptKey, attempt: &AttemptRow) {
    if attempt.ended_at.is_none_or(|ended| clock::now().utc.since(ended) > ARRIVAL_MAX) {
        return;
    }
    let until = Instant::now() + ARRIVAL_MAX;
    // Before the first look, so that no growth is missed.
    let mut growth = logs.follow(key);
    loop {
        let stored = Arc::clone(logs);
        let Ok(Ok(end)) = spawn_blocking(move || stored.end(key)).await else { return };
        let (stored, written) = (end.lengths, attempt.output);
        if end.is_cut || (stored.stdout >= written.stdout && stored.stderr >= written.stderr) {
            return;
        }
        if timeout_at(until, growth.grown()).await.is_err() {
            return;
        }
    }
}

/// The last lines of both streams in the order of their arrival, as [`clean`] leaves them. Blocks on the disk.
fn tail(logs: &Logs, key: AttemptKey, lines_max: u32) -> Result<String, LogsError> {
    let lengths = logs.lengths(key)?;
    let end = lengths.stdout.saturating_add(lengths.stderr);
    let by_lines = logs.tail(key, Streams::Both, lines_max.into())?;
    let start = by_lines.max(end.saturating_sub(READ_BYTES_MAX));
    let mut from = start;
    let mut read = Vec::new();
    let mut last: Option<Stream> = None;
    while from < end {
        let page = logs.read(key, Streams::Both, from, PAGE_BYTES)?;
        if page.pieces.is_empty() {
            break;
        }
        for piece in page.pieces {
            // A line of one stream continues neither in the other nor after a gap.
            if last.is_some_and(|last| last != piece.stream)
                || matches!(piece.data, PieceData::Gap(_) | PieceData::Cut(_))
            {
                end_line(&mut read);
            }
            last = Some(piece.stream);
            match piece.data {
                PieceData::Bytes(bytes) | PieceData::Replayed(bytes) => read.extend_from_slice(&bytes),
                PieceData::Gap(_) | PieceData::Cut(_) => read.extend_from_slice(GAP),
            }
        }
        from = page.next;
    }
    // The rest of a line, which may begin within a character or an escape sequence.
    let rest = (start > by_lines).then(|| read.iter().position(|byte| *byte == b'\n')).flatten();
    let read = rest.map_or(&read[..], |end| &read[end + 1..]);
    Ok(clean(&String::from_utf8_lossy(read), lines_max))
}

fn end_line(text: &mut Vec<u8>) {
    if text.last().is_some_and(|byte| *byte != b'\n') {
        text.push(b'\n');
    }
}

/// The last lines of a text, [`BYTES_MAX`] at most, as a terminal would show them at the end: without control characters, escape sequences, and
/// the part of a line that a carriage return overwrote. Tabs become spaces.
fn clean(text: &str, lines_max: u32) -> String {
    let lines: Vec<String> = text.lines().map(clean_line).collect();
    let lines_max = usize::try_from(lines_max).unwrap_or(usize::MAX);
    let joined = lines[lines.len().saturating_sub(lines_max)..].join("\n");
    let joined = joined.trim_end();
    if joined.len() <= BYTES_MAX {
        return joined.to_owned();
    }
    let cut = joined.ceil_char_boundary(joined.len() - (BYTES_MAX - ELLIPSIS.len()));
    format!("{ELLIPSIS}{}", &joined[cut..])
}

fn clean_line(line: &str) -> String {
    let line = line.trim_end_matches('\r');
    let line = line.rsplit('\r').next().unwrap_or(line);
    let mut clean = String::with_capacity(line.len());
    for char in escape_sequence::remove(line).chars() {
        match char {
            '\t' => clean.push_str("    "),
            _ if char.is_control() || changes_direction(char) => {}
            _ => clean.push(char),
        }
    }
    clean
}

/// Bytes of the text: services cut or refuse longer messages.
pub(super) const BYTES_MAX: usize = 8 << 10;
/// Bytes that are read for it: more than it has, because escape sequences are removed from them.
const READ_BYTES_MAX: u64 = 4 * BYTES_MAX as u64;
const PAGE_BYTES: usize = 64 << 10;
/// Before a text that was cut.
const ELLIPSIS: &str = "…";
/// In place of output that is missing.
const GAP: &[u8] = b"[output is missing here]\n";
/// How long after the end of an attempt its output is waited for. The log of a followed job waits as long.
const ARRIVAL_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use protocol::report::{Chunk, ChunkData, OutputLengths};
    use protocol::{Fence, JobId, Nonce, Token};

    use super::*;
    use crate::logs::Limits;
    use crate::notifications::details;

    #[test]
    fn what_drives_terminals_is_removed() {
        for (text, expected) in [
            ("one\r\ntwo\n", "one\ntwo"),
            ("\x1b[1;31merror\x1b[0m: \u{202e}no\x07\x00", "error: no"),
            (" 10%\r 50%\r100%\r\ndone", "100%\ndone"),
            ("\x1b]0;title\x07a \x1b]8;;https://x/\x1b\\link\x1b]8;;\x1b\\ \x1b(Bb\x1bM", "a link b"),
            ("\x1b[31", ""),
            ("\x1b]0;never ended", "0;never ended"),
            ("a\tb", "a    b"),
            ("größer 🚢", "größer 🚢"),
        ] {
            assert_eq!(clean(text, 10), expected, "{text:?}");
        }
    }

    #[test]
    fn the_last_lines_within_the_limit_are_kept() {
        assert_eq!(clean("a\nb\nc\n", 2), "b\nc");
        assert_eq!(clean("", 2), "");
        let long = clean(&"ä".repeat(BYTES_MAX), 1);
        assert!((BYTES_MAX - 2..=BYTES_MAX).contains(&long.len()) && long.starts_with('…'), "{}", long.len());
    }

    #[tokio::test]
    async fn output_on_its_way_is_waited_for_after_a_failure_only() {
        let directory = tempfile::tempdir().unwrap();
        let logs = Logs::open(directory.path(), Limits::default()).unwrap();
        let output = OutputLengths { stdout: 6, stderr: 0 };
        let attempt =
            AttemptRow { ended_at: Some(clock::now().utc), output, ..details::tests::attempt(true) };
        let token = Token { job: JobId(12), fence: attempt.fence, nonce: Nonce(1) };
        let data = ChunkData::Bytes(b"error\n".to_vec());
        let chunk = Chunk { token, stream: Stream::Stdout, offset: 0, data };
        let job = details::tests::job(1, Some(attempt));
        let (text, stored) =
            tokio::join!(read(&logs, Occasion::Failed, Some(&job), 5), logs.append(vec![chunk]));
        stored.unwrap();
        assert_eq!(text.as_deref(), Some("error"));
        for occasion in [Occasion::Succeeded, Occasion::Recovered, Occasion::Late, Occasion::Stale] {
            assert_eq!(read(&logs, occasion, Some(&job), 5).await, None);
        }
        assert_eq!(read(&logs, Occasion::Failed, None, 5).await, None);
        let unstarted = details::tests::job(0, None);
        assert_eq!(read(&logs, Occasion::Failed, Some(&unstarted), 5).await, None);
    }

    #[tokio::test]
    async fn the_lines_of_both_streams_stand_in_the_order_of_their_arrival() {
        let directory = tempfile::tempdir().unwrap();
        let logs = Logs::open(directory.path(), Limits::default()).unwrap();
        let key = AttemptKey { job: JobId(7), fence: Fence(70) };
        let token = Token { job: key.job, fence: key.fence, nonce: Nonce(1) };
        let chunk = |stream, offset, text: &str| {
            let data = ChunkData::Bytes(text.as_bytes().to_vec());
            Chunk { token, stream, offset, data }
        };
        let chunks = vec![
            chunk(Stream::Stdout, 0, "first\nsecond\nunended"),
            chunk(Stream::Stderr, 0, "error\n"),
            chunk(Stream::Stdout, 22, "after a gap\n"),
        ];
        logs.append(chunks).await.unwrap();
        let tail = |lines| tail(&logs, key, lines).unwrap();
        assert_eq!(tail(100), "first\nsecond\nunended\nerror\n[output is missing here]\nafter a gap");
        assert_eq!(tail(1), "after a gap");
        let long = [&"x".repeat(40_000), "\n", &"\x1b[31mred\x1b[0m\n".repeat(2_500)].concat();
        logs.append(vec![chunk(Stream::Stderr, 6, &long)]).await.unwrap();
        let (all, last) = (tail(200_000), tail(2));
        assert!(all.len() <= BYTES_MAX && all.ends_with("red\nred") && !all.contains("1m"), "{all}");
        assert_eq!(last, "red\nred");
        let unknown = AttemptKey { job: JobId(8), fence: Fence(80) };
        assert_eq!(super::tail(&logs, unknown, 5).unwrap(), "");
    }
}
