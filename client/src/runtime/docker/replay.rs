//! Output that no CLI of ours has written down: read again from the engine's own log, and appended to the attempt's files.
//!
//! Needed where the CLI died and the container did not: a worker within a container, a daemon that was restarted under live-restore. The
//! log holds the same bytes for text; binary comes back changed, so what is read again is labelled as such. `docker logs -f` loses the
//! tail on old engines: after the end everything is read once more.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use protocol::report::{OutputLengths, Stream};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;

use super::Shared;
use super::attempt::Attempt;
use crate::attempt_dir::{AttemptDir, Error, describe};

/// Goes on writing down what a running container writes, until it has ended or the engine is gone.
pub(super) async fn follow(shared: &Shared, attempt: &Attempt) {
    let follower = shared.cli.spawn(["logs", "-f", "--", &attempt.name]);
    let waiter = shared.cli.spawn(["wait", "--", &attempt.name]);
    let (Ok(mut follower), Ok(mut waiter)) = (follower, waiter) else { return };
    let copying = copy(shared, attempt, &mut follower, Unequal::Count);
    tokio::pin!(copying);
    let copied = tokio::select! {
        // An old engine may end it while the container still runs.
        copied = &mut copying => {
            let _ = waiter.wait().await;
            copied
        }
        _ = waiter.wait() => tokio::time::timeout(LAST_BYTES, copying).await.unwrap_or(Ok(())),
    };
    report(attempt, copied);
}

/// Writes down what is missing of the output of a container that has ended.
pub(super) async fn complete(shared: &Shared, attempt: &Attempt) {
    let Ok(mut reader) = shared.cli.spawn(["logs", "--", &attempt.name]) else { return };
    // Where nothing is known to be missing, a log that differs is one that was changed by its encoding.
    let unequal =
        if attempt.dir.replayed().is_ok_and(|it| it.is_some()) { Unequal::Count } else { Unequal::Trust };
    let copied = tokio::time::timeout(COMPLETE_LIMIT, copy(shared, attempt, &mut reader, unequal)).await;
    report(attempt, copied.unwrap_or(Ok(())));
}

/// The end of an attempt's standard error, as text.
pub(super) fn last_bytes(dir: &AttemptDir, bytes: u64) -> Result<String, Error> {
    let file = dir.reader(Stream::Stderr)?;
    Ok(text_before(&file, dir.lengths().stderr, bytes).unwrap_or_default())
}

/// What to do with a log that does not begin with what the file holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unequal {
    /// Skip as many bytes as the file has.
    Count,
    /// Believe the file.
    Trust,
}

fn report(attempt: &Attempt, copied: io::Result<()>) {
    if let Err(error) = copied {
        tracing::warn!(attempt = %attempt.token(), %error, "output cannot be read again from the engine's log");
    }
}

async fn copy(shared: &Shared, attempt: &Attempt, logs: &mut Child, unequal: Unequal) -> io::Result<()> {
    let (Some(stdout), Some(stderr)) = (logs.stdout.take(), logs.stderr.take()) else { return Ok(()) };
    let stdout = append(shared, attempt, Stream::Stdout, stdout, unequal);
    let stderr = append(shared, attempt, Stream::Stderr, stderr, unequal);
    tokio::try_join!(stdout, stderr).map(drop)
}

/// Appends what comes after the bytes that the file holds already.
async fn append(
    shared: &Shared,
    attempt: &Attempt,
    stream: Stream,
    mut log: impl AsyncRead + Unpin,
    unequal: Unequal,
) -> io::Result<()> {
    let dir = &attempt.dir;
    let other = |error: Error| io::Error::other(describe(&error));
    let (known, mut file) = (dir.reader(stream).map_err(other)?, dir.output(stream).map_err(other)?);
    let length = of(dir.lengths(), stream);
    let first_time = dir.replayed().map_err(other)?.map_or(length, |from| of(from, stream));
    // The CLI's own last words about a daemon that died are in the file and not in the log.
    let foreign = if stream == Stream::Stderr { last_words(&known, first_time) } else { 0 };
    let skip = length - foreign;
    let freed = of(dir.progress().map_err(other)?.acknowledged, stream);
    let (mut at, mut marked) = (0, false);
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = log.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let skipped = usize::try_from(skip.saturating_sub(at)).unwrap_or(usize::MAX).min(read);
        let comparable = at >= freed && at + skipped as u64 <= first_time - foreign;
        if unequal == Unequal::Trust && comparable && !holds(&known, at, &buffer[..skipped])? {
            return Ok(());
        }
        at += read as u64;
        if skipped < read {
            if !marked {
                let from = dir.record_replayed(dir.lengths()).map_err(other)?;
                shared.logs.replaying(attempt.token(), from);
                marked = true;
            }
            file.write_all(&buffer[skipped..read])?;
        }
    }
}

fn holds(file: &File, at: u64, bytes: &[u8]) -> io::Result<bool> {
    let mut known = vec![0; bytes.len()];
    file.read_exact_at(&mut known, at)?;
    Ok(known == bytes)
}

/// How long the line is that the CLI leaves before `end` when the daemon dies under it.
fn last_words(file: &File, end: u64) -> u64 {
    let text = text_before(file, end, 512).unwrap_or_default();
    let line = text.trim_end_matches('\n').rsplit('\n').next().unwrap_or_default();
    if line.contains("error waiting for container") {
        let start = text.rfind(line).unwrap_or(text.len());
        (text.len() - start) as u64
    } else {
        0
    }
}

fn text_before(file: &File, end: u64, bytes: u64) -> io::Result<String> {
    let from = end.saturating_sub(bytes);
    let mut tail = vec![0; usize::try_from(end - from).unwrap_or(0)];
    file.read_exact_at(&mut tail, from)?;
    Ok(String::from_utf8_lossy(&tail).into_owned())
}

fn of(lengths: OutputLengths, stream: Stream) -> u64 {
    match stream {
        Stream::Stdout => lengths.stdout,
        Stream::Stderr => lengths.stderr,
    }
}

/// How long the last bytes may take to arrive after the container has ended.
const LAST_BYTES: Duration = Duration::from_secs(2);

/// A log of 128 MiB is read in a few seconds; what takes longer hangs.
const COMPLETE_LIMIT: Duration = Duration::from_secs(60);

const BUFFER_BYTES: usize = 64 * 1024;
