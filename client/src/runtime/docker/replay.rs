//! Output that no CLI of ours has written down: read again from the engine's own log, and appended to the attempt's files.
//!
//! Needed where the CLI died and the container did not: a worker within a container, a daemon that was restarted under live-restore. The
//! log holds the same bytes for text; binary comes back changed, so what is read again is labelled as such. `docker logs -f` loses the
//! tail on old engines: after the end everything is read once more. What cannot be read, or not be kept, is missing at the end, and told;
//! what the log has no longer (`place`) is a gap before what it has.

mod place;
mod words;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use protocol::report::{ChunkData, OutputLengths, Stream};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStderr, ChildStdout};

use self::place::{Known, Place};
use self::words::{before_complaint, last_words};
use super::Shared;
use super::attempt::Attempt;
use crate::attempt_dir::{AttemptDir, Error, Replayed, describe};
use crate::runtime::argv;

/// Goes on writing down what a running container writes, until it has ended or the engine is gone.
pub(super) async fn follow(shared: &Shared, attempt: &Attempt) {
    let Ok(mut waiter) = shared.cli.spawn(["wait", "--", &attempt.name]) else { return };
    let args = ["logs", "-f", "--", &attempt.name];
    let copying = copy(shared, attempt, &args, Unequal::Count);
    tokio::pin!(copying);
    let copied = tokio::select! {
        // An old engine may end it while the container still runs.
        copied = &mut copying => {
            let _ = waiter.wait().await;
            copied
        }
        _ = waiter.wait() => match tokio::time::timeout(LAST_BYTES, copying).await {
            Ok(copied) => copied,
            // All of it is read once more.
            Err(_) => return,
        },
    };
    if let Err(error) = copied {
        tracing::warn!(attempt = %attempt.token(), %error, "output is not followed any longer");
    }
}

/// Writes down what is missing of the output of a container that has ended. An engine that goes away over it is waited for.
pub(super) async fn complete(shared: &Shared, attempt: &Attempt) {
    let limit = complete_limit(attempt.launch.spec.log_bytes_max);
    for _ in 0..TRIES {
        // Where nothing is known to be missing, a log that differs is one that was changed by its encoding.
        let unequal =
            if attempt.dir.replayed().is_ok_and(|it| it.is_some()) { Unequal::Count } else { Unequal::Trust };
        let reading = async {
            copy(shared, attempt, &["logs", "--", &attempt.name], unequal).await?;
            // A daemon that leaves may end a log in good order before its end.
            shared.ping().await.map_err(io::Error::other)
        };
        let read = tokio::time::timeout(limit, reading).await;
        match read.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(attempt = %attempt.token(), %error, "output cannot be read again from the engine's log")
            }
        }
        tokio::time::sleep(TRY_AGAIN).await;
        // Its answer is noted, and waited for.
        let _ = shared.ping().await;
        shared.health.wait_until_up().await;
    }
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

/// What to do with a log that does not begin with what the file holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unequal {
    /// Skip as many bytes as the file has.
    Count,
    /// Believe the file.
    Trust,
}

/// What became of one stream of the log.
struct Copied {
    /// Bytes that could not be kept.
    lost: u64,
    /// What may be the program's last words or the CLI's own: its exit code tells.
    held: Vec<u8>,
}

/// What the file of a stream holds, and where its log goes on.
struct Output {
    stream: Stream,
    file: File,
    /// What of the file the log holds, if nothing was lost.
    known: Known,
    /// Up to here it was written as it came, without the CLI's own last words.
    first_time: u64,
    place: Place,
}

impl Output {
    fn of(dir: &AttemptDir, stream: Stream) -> io::Result<Self> {
        let (file, replayed) = (dir.reader(stream).map_err(other)?, dir.replayed().map_err(other)?);
        let length = of(dir.lengths(), stream);
        let from = replayed.map_or(length, |it| of(it.from, stream));
        let base = replayed.map_or(0, |it| of(it.from, stream) + of(it.missing, stream));
        let is_cut = replayed.is_some_and(|it| of(it.missing, stream) > 0);
        // The CLI's own last words about a daemon that died are in the file and not in the log.
        let said = if stream == Stream::Stderr {
            bytes_before(&file, from, LAST_WORDS_BYTES)
        } else {
            Ok(Vec::new())
        };
        let foreign = last_words(&said.unwrap_or_default());
        let first_time = from.saturating_sub(foreign);
        let acknowledged = of(dir.progress().map_err(other)?.acknowledged, stream);
        let kept = acknowledged - acknowledged % FREED_BYTES;
        let known = match () {
            () if is_cut && length > base => Known::read(&file, kept.max(base), length, length - base),
            () if is_cut || length == from => Known::read(&file, kept, first_time, first_time),
            () if foreign > 0 => Known::read(&file, kept.max(from), length, length.saturating_sub(foreign)),
            () => Known::read(&file, kept, length, length),
        };
        Ok(Self { stream, file, known: known?, first_time, place: Place::After(0) })
    }

    /// Whether these bytes of the log are what the file holds there.
    fn holds(&self, at: u64, bytes: &[u8]) -> io::Result<bool> {
        if at + bytes.len() as u64 > self.first_time {
            return Ok(true);
        }
        let mut known = vec![0; bytes.len()];
        self.file.read_exact_at(&mut known, at)?;
        Ok(known == bytes)
    }
}

/// Copies both streams from where their files end to the end of the log.
///
/// # Errors
/// The CLI says that this was not all, or the files cannot be read.
async fn copy(shared: &Shared, attempt: &Attempt, args: &[&str], unequal: Unequal) -> io::Result<()> {
    let [stdout, stderr] = locate(shared, attempt).await?;
    let unplaced = open_gaps(shared, attempt, [&stdout, &stderr])?;
    let mut logs = shared.cli.spawn(args).map_err(io::Error::other)?;
    let (out, err) = outputs(&mut logs)?;
    let stdout = append(shared, attempt, &stdout, out, unequal);
    let stderr = append(shared, attempt, &stderr, err, unequal);
    let (stdout, mut stderr) = tokio::try_join!(stdout, stderr)?;
    let status = logs.wait().await?;
    if status.success() && !stderr.held.is_empty() {
        let mut sink = Sink::new(shared, attempt, Stream::Stderr)?;
        sink.lost = stderr.lost;
        sink.take(&stderr.held);
        stderr.lost = sink.lost;
    }
    let missing =
        OutputLengths { stdout: stdout.lost + unplaced.stdout, stderr: stderr.lost + unplaced.stderr };
    *attempt.missing() = missing;
    if !status.success() {
        let words = String::from_utf8_lossy(&stderr.held);
        return Err(io::Error::other(format!("`docker logs` ended with {status}: {}", words.trim())));
    }
    Ok(())
}

/// Finds where the log goes on, by reading what there is of it until now.
async fn locate(shared: &Shared, attempt: &Attempt) -> io::Result<[Output; 2]> {
    let mut found = [Output::of(&attempt.dir, Stream::Stdout)?, Output::of(&attempt.dir, Stream::Stderr)?];
    if found.iter().any(|it| it.known.bytes > 0) {
        let mut logs = shared.cli.spawn(["logs", "--", &attempt.name]).map_err(io::Error::other)?;
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

/// Makes room in the files for what the log has no longer. Gives back what found no room, because there is a gap already.
fn open_gaps(shared: &Shared, attempt: &Attempt, outputs: [&Output; 2]) -> io::Result<OutputLengths> {
    let dir = &attempt.dir;
    let [stdout, stderr] =
        outputs.map(|it| if it.place == Place::Beyond { ChunkData::UNKNOWN_GAP } else { 0 });
    let missing = OutputLengths { stdout, stderr };
    if missing == OutputLengths::default() {
        return Ok(missing);
    }
    tracing::warn!(attempt = %attempt.token(), "the engine's log begins after what is known of its output");
    let lengths = dir.lengths();
    let kept = dir.record_replayed(Replayed { from: lengths, missing }).map_err(other)?;
    shared.logs.replaying(attempt.token(), kept);
    let room = |output: &Output, wanted: u64| -> io::Result<u64> {
        let (stream, there) = (output.stream, of(lengths, output.stream));
        let ends = of(kept.from, stream) + of(kept.missing, stream);
        let is_free = of(kept.missing, stream) > 0 && there <= ends;
        if is_free && there < ends {
            output.file.set_len(ends)?;
        }
        Ok(if is_free { 0 } else { wanted })
    };
    Ok(OutputLengths { stdout: room(outputs[0], stdout)?, stderr: room(outputs[1], stderr)? })
}

/// Appends what comes after the bytes that the file holds already. The log is always read to its end, so that how it ends is known.
async fn append(
    shared: &Shared,
    attempt: &Attempt,
    output: &Output,
    mut log: impl AsyncRead + Unpin,
    unequal: Unequal,
) -> io::Result<Copied> {
    let freed = of(attempt.dir.progress().map_err(other)?.acknowledged, output.stream);
    let (skip, is_unsure) = match output.place {
        Place::After(bytes) => (bytes, false),
        Place::Unsure(bytes) => (bytes, true),
        Place::Beyond => (0, false),
    };
    let mut sink = Sink::new(shared, attempt, output.stream)?;
    let (mut at, mut believes_file, mut held) = (0, false, Vec::new());
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = log.read(&mut buffer).await?;
        if read == 0 {
            return Ok(Copied { lost: sink.lost, held });
        }
        let skipped = usize::try_from(skip.saturating_sub(at)).unwrap_or(usize::MAX).min(read);
        if is_unsure && unequal == Unequal::Trust && at >= freed && !output.holds(at, &buffer[..skipped])? {
            believes_file = true;
        }
        at += read as u64;
        if skipped < read && !believes_file {
            held.extend_from_slice(&buffer[skipped..read]);
            let certain = if output.stream == Stream::Stderr { before_complaint(&held) } else { held.len() };
            sink.take(&held[..certain]);
            held.drain(..certain);
        }
    }
}

/// Where what was read again is written to.
struct Sink<'a> {
    shared: &'a Shared,
    attempt: &'a Attempt,
    file: File,
    is_marked: bool,
    /// Bytes that could not be written. After the first of them nothing is, so that they are at the end.
    lost: u64,
}

impl<'a> Sink<'a> {
    fn new(shared: &'a Shared, attempt: &'a Attempt, stream: Stream) -> io::Result<Self> {
        let file = attempt.dir.output(stream).map_err(other)?;
        Ok(Self { shared, attempt, file, is_marked: false, lost: 0 })
    }

    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.lost == 0 {
            match self.mark().and_then(|()| self.file.write(bytes)) {
                Ok(written) if written > 0 => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::error!(attempt = %self.attempt.token(), %error, "output cannot be kept; the rest of it will be missing");
                    break;
                }
            }
        }
        self.lost += bytes.len() as u64;
    }

    /// From here on the files hold what was read again: on disk before they do.
    fn mark(&mut self) -> io::Result<()> {
        if !self.is_marked {
            let dir = &self.attempt.dir;
            let replayed = Replayed { from: dir.lengths(), ..Replayed::default() };
            let replayed = dir.record_replayed(replayed).map_err(other)?;
            self.shared.logs.replaying(self.attempt.token(), replayed);
            self.is_marked = true;
        }
        Ok(())
    }
}

fn bytes_before(file: &File, end: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let from = end.saturating_sub(bytes);
    let mut tail = vec![0; usize::try_from(end - from).unwrap_or(0)];
    file.read_exact_at(&mut tail, from)?;
    Ok(tail)
}

/// Both outputs of a CLI, which it has as long as nobody has taken them.
fn outputs(logs: &mut Child) -> io::Result<(ChildStdout, ChildStderr)> {
    logs.stdout.take().zip(logs.stderr.take()).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
}

fn other(error: Error) -> io::Error {
    io::Error::other(describe(&error))
}

fn of(lengths: OutputLengths, stream: Stream) -> u64 {
    match stream {
        Stream::Stdout => lengths.stdout,
        Stream::Stderr => lengths.stderr,
    }
}

/// How long the last bytes may take to arrive after the container has ended.
const LAST_BYTES: Duration = Duration::from_secs(2);

/// How often a log is read that does not come to its end; each time goes on where the one before it ended.
const TRIES: u32 = 3;

/// Before it is read again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The CLI's last words about a daemon that died fit into this.
const LAST_WORDS_BYTES: u64 = 512;

/// What is acknowledged is freed in multiples of this.
const FREED_BYTES: u64 = 64 * 1024;

/// How long a log may take that is as long as it can be: it is read twice, to find where it goes on and to take what comes after. What
/// takes longer hangs.
fn complete_limit(log_bytes_max: u64) -> Duration {
    let log_bytes = argv::LOG_FILES * argv::log_file_bytes(log_bytes_max);
    COMPLETE_LIMIT + Duration::from_secs(2 * log_bytes / READ_BYTES_PER_SECOND)
}

/// What a log may take that is short.
const COMPLETE_LIMIT: Duration = Duration::from_secs(60);

/// A quarter of what was measured with short lines, which are the slowest (DOCKER.md section 5): the machine may be busy.
const READ_BYTES_PER_SECOND: u64 = 3 << 20;

const BUFFER_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_log_has_the_time_to_be_read_twice() {
        for (kept, log_bytes) in [(0, 128 << 20), (64 << 20, 128 << 20), (u64::MAX, 1 << 30)] {
            let measured = Duration::from_secs(log_bytes / 12_000_000);
            assert!(complete_limit(kept) >= 4 * measured, "{kept}: {:?}", complete_limit(kept));
        }
    }
}
