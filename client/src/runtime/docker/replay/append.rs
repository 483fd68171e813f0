//! File work of a replay: gaps, comparison with the log, and appending. It runs on blocking threads, one piece at a time.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use protocol::Token;
use protocol::report::{ChunkData, OutputLengths, Stream};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Mutex;

use super::cli_messages::certain_bytes;
use super::position::LogPosition;
use super::{Copied, OnMismatch, OutputFile, of, other};
use crate::attempt_dir::{AttemptDir, ReplayRange};
use crate::logs::Logs;

/// Lets one piece of file work of an attempt run at a time. A caller may be cancelled while its work goes on: the next work waits for it.
pub(in crate::runtime::docker) type DiskTurn = Arc<Mutex<()>>;

/// The attempt whose output is read again, for work on blocking threads.
#[derive(Clone)]
pub(super) struct Replay {
    pub(super) attempt: Token,
    pub(super) dir: AttemptDir,
    pub(super) logs: Logs,
    pub(super) turn: DiskTurn,
}

impl Replay {
    /// Runs file work on a blocking thread, so that a slow disk delays no heartbeat.
    pub(super) async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let turn = self.turn.clone().lock_owned().await;
        let work = move || {
            let _turn = turn;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other).flatten()
    }

    /// Makes gaps in the files for bytes that the log has dropped. Returns the lengths for which there was no room, because there is a
    /// gap already. Blocks on the disk.
    pub(super) fn open_gaps(&self, outputs: &[OutputFile; 2]) -> io::Result<OutputLengths> {
        let [stdout, stderr] = outputs
            .each_ref()
            .map(|it| if it.place == LogPosition::Beyond { ChunkData::UNKNOWN_GAP } else { 0 });
        let missing = OutputLengths { stdout, stderr };
        if missing == OutputLengths::default() {
            return Ok(missing);
        }
        tracing::warn!(attempt = %self.attempt, "the log of the engine has dropped output; it is reported as a gap");
        let lengths = self.dir.lengths();
        let kept = self.dir.record_replayed(ReplayRange { from: lengths, missing }).map_err(other)?;
        self.logs.set_replayed(self.attempt, kept);
        let room = |output: &OutputFile, wanted: u64| -> io::Result<u64> {
            let (stream, there) = (output.stream, of(lengths, output.stream));
            let ends = of(kept.from, stream) + of(kept.missing, stream);
            let is_free = of(kept.missing, stream) > 0 && there <= ends;
            if is_free && there < ends {
                output.file.set_len(ends)?;
            }
            Ok(if is_free { 0 } else { wanted })
        };
        Ok(OutputLengths { stdout: room(&outputs[0], stdout)?, stderr: room(&outputs[1], stderr)? })
    }
}

/// Appends the bytes after those that the file holds. The log is always read to its end, so that the CLI's exit code is known.
pub(super) async fn append(
    replay: Replay,
    output: OutputFile,
    mut log: impl AsyncRead + Unpin,
    (on_mismatch, follows): (OnMismatch, bool),
) -> io::Result<Copied> {
    let own = replay.clone();
    let open = move || Appender::open(own, output, on_mismatch, follows);
    let (mut appender, mut buffer) = (replay.on_disk(open).await?, vec![0; BUFFER_BYTES]);
    loop {
        let read = log.read(&mut buffer).await?;
        if read == 0 {
            return Ok(Copied { lost: appender.writer.lost, held: appender.held });
        }
        let take = move || appender.take(&buffer[..read]).map(|()| (appender, buffer));
        (appender, buffer) = replay.on_disk(take).await?;
    }
}

/// Compares the log of one stream with its file, and appends what follows. It moves to a blocking thread for each piece of the log.
struct Appender {
    output: OutputFile,
    writer: ReplayWriter,
    on_mismatch: OnMismatch,
    /// The log is followed while the container runs.
    follows: bool,
    /// The server has the output up to here, and it may be freed.
    freed: u64,
    /// Bytes of the log that the file holds.
    skip: u64,
    /// They may be others.
    is_unsure: bool,
    /// Bytes of the log so far.
    at: u64,
    /// The file and the log differ, and the file is kept as it is.
    believes_file: bool,
    /// Bytes that may be the program's or the CLI's own.
    held: Vec<u8>,
}

impl Appender {
    fn open(replay: Replay, output: OutputFile, on_mismatch: OnMismatch, follows: bool) -> io::Result<Self> {
        let freed = of(replay.dir.progress().map_err(other)?.acknowledged, output.stream);
        let (skip, is_unsure) = match output.place {
            LogPosition::After(bytes) => (bytes, false),
            LogPosition::Unsure(bytes) => (bytes, true),
            LogPosition::Beyond => (0, false),
        };
        let writer = ReplayWriter::new(replay, output.stream)?;
        let (at, believes_file, held) = (0, false, Vec::new());
        Ok(Self { output, writer, on_mismatch, follows, freed, skip, is_unsure, at, believes_file, held })
    }

    /// Takes the next bytes of the log.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let skipped =
            usize::try_from(self.skip.saturating_sub(self.at)).unwrap_or(usize::MAX).min(bytes.len());
        if self.is_unsure
            && self.on_mismatch == OnMismatch::KeepFile
            && self.at >= self.freed
            && !self.output.holds(self.at, &bytes[..skipped])?
        {
            self.believes_file = true;
        }
        self.at += bytes.len() as u64;
        if skipped < bytes.len() && !self.believes_file {
            self.held.extend_from_slice(&bytes[skipped..]);
            let certain = match self.output.stream {
                Stream::Stdout => self.held.len(),
                Stream::Stderr => certain_bytes(&self.held, self.follows),
            };
            self.writer.take(&self.held[..certain]);
            self.held.drain(..certain);
        }
        Ok(())
    }
}

/// Appends replayed bytes to an output file. Blocks on the disk.
pub(super) struct ReplayWriter {
    replay: Replay,
    file: File,
    is_marked: bool,
    /// Number of bytes that could not be written. After the first failure nothing is written, so that they are at the end.
    pub(super) lost: u64,
}

impl ReplayWriter {
    pub(super) fn new(replay: Replay, stream: Stream) -> io::Result<Self> {
        let file = replay.dir.output(stream).map_err(other)?;
        Ok(Self { replay, file, is_marked: false, lost: 0 })
    }

    pub(super) fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.lost == 0 {
            match self.mark().and_then(|()| self.file.write(bytes)) {
                Ok(written) if written > 0 => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::error!(attempt = %self.replay.attempt, %error, "cannot write replayed output; the rest is reported as missing");
                    break;
                }
            }
        }
        self.lost += bytes.len() as u64;
    }

    /// Records, before the first byte, that the rest of the files is replayed.
    fn mark(&mut self) -> io::Result<()> {
        if !self.is_marked {
            let Replay { attempt, dir, logs, .. } = &self.replay;
            let replayed = ReplayRange { from: dir.lengths(), ..ReplayRange::default() };
            logs.set_replayed(*attempt, dir.record_replayed(replayed).map_err(other)?);
            self.is_marked = true;
        }
        Ok(())
    }
}

const BUFFER_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::mpsc;
    use std::time::Duration;

    use protocol::{Fence, JobId, Nonce, Revision};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use worker::step::Launch;

    use super::*;
    use crate::attempt_dir::AttemptStore;

    /// More than a pipe holds.
    const LOG_BYTES: usize = 200_000;

    /// The output file is a pipe that nobody reads at first: a write hangs, as on a disk that does not answer.
    #[tokio::test]
    async fn a_write_that_hangs_holds_up_nothing_else() {
        let state = tempfile::tempdir().expect("a directory");
        let token = Token { job: JobId(1), fence: Fence(1), nonce: Nonce(1) };
        let launch = Launch {
            token,
            revision: Revision(1),
            name: "slow".into(),
            spec: Default::default(),
            overrides: None,
            time_left: None,
            secrets: Default::default(),
        };
        let dir = AttemptStore::open(state.path()).expect("a store").create(&launch).expect("made");
        let pipe = dir.path().join(Stream::Stdout.name());
        let _ = std::fs::remove_file(&pipe);
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let output = OutputFile::open(&dir, Stream::Stdout).expect("opened");
        let mut reader = dir.reader(Stream::Stdout).expect("opened");
        let replay = Replay { attempt: token, dir, logs: Logs::new().0, turn: DiskTurn::default() };

        let (heartbeat, heard) = mpsc::channel();
        let disk = std::thread::spawn(move || {
            // The deadline only ends a test that has failed.
            let is_heard = heard.recv_timeout(Duration::from_secs(20)).is_ok();
            let mut written = vec![0; LOG_BYTES];
            reader.read_exact(&mut written).expect("read");
            (is_heard, written)
        });
        let log: Vec<u8> = (0..LOG_BYTES).map(|at| b'a' + (at % 26) as u8).collect();
        let appending = append(replay, output, &log[..], (OnMismatch::SkipByCount, false));
        let beating = async { heartbeat.send(()).expect("the disk waits") };
        let (copied, ()) = tokio::join!(appending, beating);
        let (is_heard, written) = disk.join().expect("no panic");
        assert!(is_heard, "the write held up the thread that sends heartbeats");
        assert!(written == log, "the log is written as it is");
        assert_eq!(copied.expect("appended").lost, 0);
    }
}
