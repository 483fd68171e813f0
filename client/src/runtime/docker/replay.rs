//! Reads output again from the engine's log and appends it to the attempt's files, where the CLI has not written it.
//!
//! It is needed if the CLI died and the container did not: with a worker in a container, or after a restart of a daemon with live-restore.
//! The log returns text unchanged and alters binary output, so replayed bytes are labelled. `docker logs -f` loses the tail on old engines,
//! so the log is read once more after the end. Bytes that cannot be read or written are reported as a gap at the end; bytes that the log
//! has dropped (`position`) as a gap before the rest.

pub(super) mod append;
mod cli_messages;
mod position;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::Token;
use protocol::report::{ChunkData, OutputLengths, Stream};
use tokio::process::{Child, ChildStderr, ChildStdout};

use self::append::{DiskTurn, Replay, ReplayWriter, append};
use self::cli_messages::cli_death_message_len;
use self::position::{FileSamples, LogPosition};
use super::DockerState;
use crate::attempt_dir::{AttemptDir, Error};
use crate::error_chain::error_chain;
use crate::runtime::argv;
use crate::runtime::blocking::try_blocking;

/// The attempt whose output is read again.
pub(super) struct ReplayedAttempt<'a> {
    pub(super) token: Token,
    /// The name of its container.
    pub(super) name: &'a str,
    pub(super) dir: &'a AttemptDir,
    pub(super) log_bytes_max: u64,
    /// Orders the file work of replays of its output.
    pub(super) turn: &'a DiskTurn,
    /// Number of bytes that are known to be missing at the end of its output.
    pub(super) missing: &'a Mutex<OutputLengths>,
}

impl ReplayedAttempt<'_> {
    fn missing(&self) -> MutexGuard<'_, OutputLengths> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes down the output of a running container until it has ended or the engine is gone.
pub(super) async fn follow(docker: &DockerState, attempt: &ReplayedAttempt<'_>) {
    let Ok(mut waiter) = docker.engine.cli.spawn(["wait", "--", attempt.name]) else { return };
    let args = ["logs", "-f", "--", attempt.name];
    let copying = copy(docker, attempt, &args, OnMismatch::SkipByCount);
    tokio::pin!(copying);
    let copied = tokio::select! {
        // An old engine may end the log while the container still runs.
        copied = &mut copying => {
            let _ = waiter.wait().await;
            copied
        }
        _ = waiter.wait() => match tokio::time::timeout(LAST_BYTES, copying).await {
            Ok(copied) => copied,
            // The whole log is read once more later.
            Err(_) => return,
        },
    };
    if let Err(error) = copied {
        tracing::warn!(attempt = %attempt.token, %error, "cannot follow the log of the engine; it is read once more after the end");
    }
}

/// Writes down the missing output of an ended container. It waits for an engine that becomes unreachable meanwhile. After
/// [`FAILURES_MAX`] failures of an engine that answers, or [`OUTAGES_MAX`] outages, the rest counts as missing.
pub(super) async fn complete(docker: &DockerState, attempt: &ReplayedAttempt<'_>) {
    let limit = complete_limit(attempt.log_bytes_max);
    let (mut failures, mut outages) = (0, 0);
    loop {
        // If no bytes are known to be missing, a difference comes from the encoding of the log.
        let dir = attempt.dir.clone();
        let replayed = try_blocking(move || dir.replayed()).await;
        let on_mismatch = if replayed.is_ok_and(|it| it.is_some()) {
            OnMismatch::SkipByCount
        } else {
            OnMismatch::KeepFile
        };
        let reading = async {
            copy(docker, attempt, &["logs", "--", attempt.name], on_mismatch).await?;
            // A daemon that shuts down may end a log without an error before its end.
            docker.engine.ping().await.map_err(io::Error::other)
        };
        let read = tokio::time::timeout(limit, reading).await;
        match read.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(attempt = %attempt.token, %error, "cannot read the log of the engine")
            }
        }
        tokio::time::sleep(TRY_AGAIN).await;
        // The call also updates the state of the engine. An unreachable engine says nothing about the log.
        match docker.engine.ping().await {
            Ok(()) => failures += 1,
            Err(_) => outages += 1,
        }
        if failures == FAILURES_MAX || outages == OUTAGES_MAX {
            break;
        }
        docker.engine.health.wait_until_up().await;
    }
    // A write that was under way when the time was up belongs to the output.
    drop(attempt.turn.lock().await);
    let mut missing = attempt.missing();
    missing.stdout = missing.stdout.max(ChunkData::UNKNOWN_GAP);
    missing.stderr = missing.stderr.max(ChunkData::UNKNOWN_GAP);
}

/// The end of an attempt's standard error, as text.
pub(super) fn last_bytes(dir: &AttemptDir, bytes: u64) -> Result<String, Error> {
    let file = dir.reader(Stream::Stderr)?;
    let tail = bytes_before(&file, dir.lengths().stderr, bytes).unwrap_or_default();
    Ok(String::from_utf8_lossy(&tail).into_owned())
}

/// The way to handle a log that does not begin with the content of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnMismatch {
    /// Skip as many bytes as the file has.
    SkipByCount,
    /// Keep the file and drop the log.
    KeepFile,
}

/// The result for one stream of the log.
struct Copied {
    /// Number of bytes that could not be written.
    lost: u64,
    /// Bytes that may be the program's or the CLI's own; the CLI's exit code decides.
    held: Vec<u8>,
}

/// The output file of one stream, and the position at which its log continues.
struct OutputFile {
    stream: Stream,
    file: File,
    /// Samples of the part that came before any loss.
    known: FileSamples,
    /// Up to this offset the file holds original output, without the CLI's own message.
    original_until: u64,
    place: LogPosition,
}

impl OutputFile {
    fn open(dir: &AttemptDir, stream: Stream) -> io::Result<Self> {
        let (file, replayed) = (dir.reader(stream).map_err(other)?, dir.replayed().map_err(other)?);
        let length = of(dir.lengths(), stream);
        let from = replayed.map_or(length, |it| of(it.from, stream));
        let base = replayed.map_or(0, |it| of(it.from, stream) + of(it.missing, stream));
        let is_cut = replayed.is_some_and(|it| of(it.missing, stream) > 0);
        // The CLI's message about a dead daemon is in the file and not in the log.
        let stderr_tail = if stream == Stream::Stderr {
            bytes_before(&file, from, CLI_DEATH_MESSAGE_BYTES_MAX)
        } else {
            Ok(Vec::new())
        };
        let cli_message_length = cli_death_message_len(&stderr_tail.unwrap_or_default());
        let original_until = from.saturating_sub(cli_message_length);
        let acknowledged = of(dir.progress().map_err(other)?.acknowledged, stream);
        let kept = acknowledged - acknowledged % FREED_BYTES;
        let known = if is_cut && length > base {
            FileSamples::read(&file, kept.max(base), length, length - base)
        } else if is_cut || length == from {
            FileSamples::read(&file, kept, original_until, original_until)
        } else if cli_message_length > 0 {
            FileSamples::read(&file, kept.max(from), length, length.saturating_sub(cli_message_length))
        } else {
            FileSamples::read(&file, kept, length, length)
        };
        Ok(Self { stream, file, known: known?, original_until, place: LogPosition::After(0) })
    }

    /// `true` if the file holds these bytes of the log at this offset.
    fn holds(&self, at: u64, bytes: &[u8]) -> io::Result<bool> {
        if at + bytes.len() as u64 > self.original_until {
            return Ok(true);
        }
        let mut known = vec![0; bytes.len()];
        self.file.read_exact_at(&mut known, at)?;
        Ok(known == bytes)
    }
}

/// Copies both streams from the ends of their files to the end of the log.
///
/// # Errors
/// The CLI reports a failure, or the files cannot be read.
async fn copy(
    docker: &DockerState,
    attempt: &ReplayedAttempt<'_>,
    args: &[&str],
    on_mismatch: OnMismatch,
) -> io::Result<()> {
    let replay = Replay {
        attempt: attempt.token,
        dir: attempt.dir.clone(),
        logs: docker.logs.clone(),
        turn: attempt.turn.clone(),
    };
    let found = locate(docker, attempt, &replay).await?;
    let gaps = replay.clone();
    let open_gaps = move || gaps.open_gaps(&found).map(|unplaceable| (found, unplaceable));
    let ([stdout, stderr], unplaceable) = replay.on_disk(open_gaps).await?;
    let mut logs = docker.engine.cli.spawn(args).map_err(io::Error::other)?;
    let (out, err) = outputs(&mut logs)?;
    let follows = args.contains(&"-f");
    let stdout = append(replay.clone(), stdout, out, (on_mismatch, follows));
    let stderr = append(replay.clone(), stderr, err, (on_mismatch, follows));
    let (stdout, mut stderr) = tokio::try_join!(stdout, stderr)?;
    let status = logs.wait().await?;
    if status.success() && !stderr.held.is_empty() {
        let own = replay.clone();
        let write = move || {
            let mut writer = ReplayWriter::new(own, Stream::Stderr)?;
            writer.lost = stderr.lost;
            writer.take(&stderr.held);
            Ok(Copied { lost: writer.lost, ..stderr })
        };
        stderr = replay.on_disk(write).await?;
    }
    let missing =
        OutputLengths { stdout: stdout.lost + unplaceable.stdout, stderr: stderr.lost + unplaceable.stderr };
    *attempt.missing() = missing;
    if !status.success() {
        let words = String::from_utf8_lossy(&stderr.held);
        return Err(io::Error::other(format!("`docker logs` ended with {status}: {}", words.trim())));
    }
    Ok(())
}

/// Reads the log up to now to find the positions at which it continues.
async fn locate(
    docker: &DockerState,
    attempt: &ReplayedAttempt<'_>,
    replay: &Replay,
) -> io::Result<[OutputFile; 2]> {
    let dir = attempt.dir.clone();
    let open = move || Ok([OutputFile::open(&dir, Stream::Stdout)?, OutputFile::open(&dir, Stream::Stderr)?]);
    // It reads samples of all of the files.
    let mut found: [OutputFile; 2] = replay.on_disk(open).await?;
    if found.iter().any(|it| it.known.bytes > 0) {
        let mut logs = docker.engine.cli.spawn(["logs", "--", attempt.name]).map_err(io::Error::other)?;
        let (stdout, stderr) = outputs(&mut logs)?;
        let places = tokio::try_join!(found[0].known.find(stdout), found[1].known.find(stderr))?;
        let status = logs.wait().await?;
        if !status.success() {
            return Err(io::Error::other(format!("`docker logs` ended with {status}")));
        }
        [found[0].place, found[1].place] = places.into();
    }
    Ok(found)
}

fn bytes_before(file: &File, end: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let from = end.saturating_sub(bytes);
    let mut tail = vec![0; usize::try_from(end - from).unwrap_or(0)];
    file.read_exact_at(&mut tail, from)?;
    Ok(tail)
}

/// The output pipes of a call.
fn outputs(logs: &mut Child) -> io::Result<(ChildStdout, ChildStderr)> {
    logs.stdout.take().zip(logs.stderr.take()).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
}

fn other(error: Error) -> io::Error {
    io::Error::other(error_chain(&error))
}

fn of(lengths: OutputLengths, stream: Stream) -> u64 {
    match stream {
        Stream::Stdout => lengths.stdout,
        Stream::Stderr => lengths.stderr,
    }
}

/// Time for the last bytes to arrive after the container has ended.
const LAST_BYTES: Duration = Duration::from_secs(2);

/// Number of times that an engine that answers may fail to read the log; each reading continues at the end of the one before.
const FAILURES_MAX: u32 = 3;

/// Number of outages of the engine during one replay. An engine that crashes whenever it reads this log would never recover otherwise.
const OUTAGES_MAX: u32 = 10;

/// Pause before the next reading.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The CLI's message about a dead daemon fits into this.
const CLI_DEATH_MESSAGE_BYTES_MAX: u64 = 512;

/// Acknowledged output is freed in multiples of this.
const FREED_BYTES: u64 = 64 * 1024;

/// Time limit for reading a log of the largest size twice: once to find the position, once for the rest.
fn complete_limit(log_bytes_max: u64) -> Duration {
    let log_bytes = argv::LOG_FILES * argv::log_file_bytes(log_bytes_max);
    COMPLETE_LIMIT + Duration::from_secs(2 * log_bytes / READ_BYTES_PER_SECOND)
}

/// Time limit for a short log.
const COMPLETE_LIMIT: Duration = Duration::from_secs(60);

/// A quarter of the measured speed with short lines, which are the slowest (docs/design/worker-and-docker.md, W10): the machine may
/// be busy.
const READ_BYTES_PER_SECOND: u64 = 3 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_log_can_be_read_twice_in_time() {
        for (kept, log_bytes) in [(0, 128 << 20), (64 << 20, 128 << 20), (u64::MAX, 1 << 30)] {
            let measured = Duration::from_secs(log_bytes / 12_000_000);
            assert!(complete_limit(kept) >= 4 * measured, "{kept}: {:?}", complete_limit(kept));
        }
    }
}
