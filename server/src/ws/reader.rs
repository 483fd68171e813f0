//! The reading half of a worker's connection: frames become reports for the engine and output for the logs.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use protocol::close::{self, Close};
use protocol::report::{Chunk, Foreign, Inventory, UsageSample};
use protocol::{Report, SessionId, wire};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error as WireError, Message};

use super::fragments::broken;
use super::grants::Grants;
use super::machine::MachineGuard;
use super::output;
use super::output_limits::OutputLimits;
use super::rate_limit::{RateLimiter, TooManyEmptyMessages, is_empty_report};
use super::results;
use super::unknown_attempts::{Alarm, UnknownAttempts};
use crate::clock;
use crate::engine::{FromSession, LastHeard};
use crate::store::ReadError;
use crate::usage::LiveUsage;

/// Frames that are read before their reports are passed on.
const FRAMES_PER_TURN: usize = 256;
/// Bytes that are read before that, without the last frame.
const BYTES_PER_TURN: usize = 1 << 20;
/// The interval at which an unread worker counts as heard.
const HEARD_EVERY: Duration = Duration::from_secs(1);

/// Reads a session.
pub(super) struct Reader<S> {
    pub(super) session: SessionId,
    /// A socket without any frame for this long is dead.
    pub(super) silence_max: Duration,
    /// The worker's name.
    pub(super) name: Arc<str>,
    pub(super) stream: S,
    pub(super) heard: LastHeard,
    pub(super) inbox: mpsc::Sender<FromSession>,
    pub(super) output: output::Inbox,
    pub(super) output_limits: OutputLimits,
    pub(super) grants: Arc<Grants>,
    pub(super) unknown_attempts: UnknownAttempts,
    pub(super) machine: MachineGuard,
    pub(super) usage: Arc<LiveUsage>,
    pub(super) unauthorized_logged: bool,
    pub(super) unassigned_logged: bool,
    pub(super) alarm: Alarm,
    pub(super) rate_limit: RateLimiter,
}

impl<S: Stream<Item = Result<Message, WireError>> + Unpin> Reader<S> {
    /// Reads until the end; returns a close reason if the worker caused the end.
    pub(super) async fn run(&mut self) -> Option<Close> {
        loop {
            let first = match timeout(self.silence_max, self.stream.next()).await {
                Ok(Some(first)) => first,
                Ok(None) => return None,
                Err(_) => return Some(close::SILENT.plain()),
            };
            self.heard.note(clock::now().up);
            let mut reports = Vec::new();
            let read = self.read_turn(first, &mut reports).await;
            if !self.pass_reports(reports).await {
                return None;
            }
            if let Err(why) = read {
                return why;
            }
        }
    }

    /// Reads the frames that have arrived, without waiting for more.
    async fn read_turn(
        &mut self,
        first: Result<Message, WireError>,
        reports: &mut Vec<Report>,
    ) -> Result<(), Ended> {
        let mut next = Some(first);
        let (mut frames, mut bytes) = (0, 0);
        while let Some(message) = next.take() {
            let message = message.map_err(|error| broken(&error))?;
            frames += 1;
            bytes += size_of(&message);
            self.handle(message, reports).await?;
            if frames < FRAMES_PER_TURN && bytes < BYTES_PER_TURN {
                next = self.stream.next().now_or_never().flatten();
            }
        }
        Ok(())
    }

    async fn handle(&mut self, message: Message, reports: &mut Vec<Report>) -> Result<(), Ended> {
        let frame = match message {
            Message::Binary(frame) => frame,
            Message::Text(_) => return Err(Some(close::TEXT_FRAME.plain())),
            Message::Close(_) => return Err(Some(close::NORMAL.plain())),
            // tungstenite never returns single frames.
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => return self.count_empty(),
        };
        match wire::decode_report(&frame) {
            Ok(Some(report)) if is_empty_report(&report) => self.count_empty(),
            Ok(Some(Report::Output(chunks))) => self.pass_output(chunks).await,
            Ok(Some(Report::Usage(samples))) => self.keep_usage(samples).await,
            Ok(Some(Report::Inventory(part))) => self.pass_inventory(part, reports).await,
            Ok(Some(Report::Foreign(foreign))) => {
                reports.push(Report::Foreign(self.leave_out_unknown(foreign).await?));
                Ok(())
            }
            Ok(Some(Report::Success(ended))) => {
                results::check(&ended.list).map_err(|wrong| Some(close::MALFORMED.with_reason(wrong)))?;
                let report = Report::Success(ended);
                self.announce_unassigned(&report, reports).await?;
                self.grants.observe(&report);
                reports.push(report);
                Ok(())
            }
            Ok(Some(report)) => {
                if let Report::Heartbeat(beat) = &report {
                    self.machine.note(beat);
                }
                self.announce_unassigned(&report, reports).await?;
                self.grants.observe(&report);
                reports.push(report);
                Ok(())
            }
            Ok(None) => self.count_empty(),
            Err(error) => Err(Some(error.close())),
        }
    }

    /// Passes on an inventory, and before it the list of attempts in it that this database never assigned.
    async fn pass_inventory(&mut self, mut part: Inventory, reports: &mut Vec<Report>) -> Result<(), Ended> {
        let found = self.keep_heard(self.unknown_attempts.among(&part)).await;
        let found = found.map_err(|error| self.close_unreadable(&error))?;
        part.foreign = self.leave_out_unknown(part.foreign).await?;
        if !found.is_empty() {
            self.alarm.raise(clock::now().up, &self.name, self.session, &found);
            let brought = FromSession::UnknownAttempts(self.session, found);
            let handed_over = self.pass_reports(std::mem::take(reports)).await
                && self.keep_heard(self.inbox.send(brought)).await.is_ok();
            if !handed_over {
                return Err(None);
            }
        }
        let report = Report::Inventory(part);
        self.grants.observe(&report);
        reports.push(report);
        Ok(())
    }

    /// Removes attempts that this database never assigned from a list of foreign containers.
    async fn leave_out_unknown(&self, foreign: Vec<Foreign>) -> Result<Vec<Foreign>, Ended> {
        let known = self.keep_heard(self.unknown_attempts.leave_out(foreign)).await;
        known.map_err(|error| self.close_unreadable(&error))
    }

    pub(super) fn close_unreadable(&self, error: &ReadError) -> Ended {
        tracing::error!(session = self.session.0, %error, "cannot look up the attempts that a worker names; the session closes");
        Some(close::INTERNAL_ERROR.plain())
    }

    /// Counts a message without content.
    fn count_empty(&mut self) -> Result<(), Ended> {
        if self.rate_limit.allow(clock::now().up) {
            Ok(())
        } else {
            Err(Some(close::RATE_LIMITED.with_reason(TooManyEmptyMessages)))
        }
    }

    /// Passes output on without waiting for the disk: a report may come after it.
    async fn pass_output(&mut self, chunks: Vec<Chunk>) -> Result<(), Ended> {
        let authorized = self.keep_heard(self.grants.authorize(chunks, |chunk| chunk.token)).await;
        let (chunks, unauthorized_chunks) = authorized.map_err(|error| {
            tracing::error!(session = self.session.0, %error, "cannot look up the attempt of an output chunk; the session closes");
            Some(close::INTERNAL_ERROR.plain())
        })?;
        if !unauthorized_chunks.is_empty() {
            let given_up = self.output.give_up(&unauthorized_chunks);
            // If the engine has closed the session, the writer ends it.
            if given_up.is_err_and(|unqueued| unqueued.is_full) {
                return Err(Some(close::INTERNAL_ERROR.with_reason("output cannot be acknowledged")));
            }
            // One line a session, because such a worker may repeat it often.
            if !std::mem::replace(&mut self.unauthorized_logged, true) {
                let token = unauthorized_chunks[0].token;
                tracing::warn!(session = self.session.0, %token, "output dropped: the attempt belongs to another worker");
            }
        }
        if chunks.is_empty() {
            return Ok(());
        }
        let heard = &self.heard;
        let bounded = keep_heard(heard, self.output_limits.bound(&self.grants, chunks)).await;
        let bounded = bounded.map_err(|error| self.close_unreadable(&error))?;
        self.output.put(bounded).map_err(|error| Some(close::RATE_LIMITED.with_reason(error)))
    }

    /// Keeps samples of the session's own attempts for people who watch them. Others are dropped, as output would be.
    async fn keep_usage(&mut self, samples: Vec<UsageSample>) -> Result<(), Ended> {
        let authorized = self.keep_heard(self.grants.authorize(samples, |sample| sample.token)).await;
        let (samples, _) = authorized.map_err(|error| self.close_unreadable(&error))?;
        self.usage.record(clock::now(), &samples);
        Ok(())
    }

    /// Waits for room in the engine's inbox.
    pub(super) async fn pass_reports(&self, reports: Vec<Report>) -> bool {
        reports.is_empty()
            || self.keep_heard(self.inbox.send(FromSession::Reported(self.session, reports))).await.is_ok()
    }

    /// Waits for the server itself. A worker that the server does not read counts as heard meanwhile.
    pub(super) async fn keep_heard<F: Future>(&self, waiting: F) -> F::Output {
        keep_heard(&self.heard, waiting).await
    }

    /// Reads and drops bytes after the close frame: the kernel resets a socket that is closed over unread bytes, and the close frame would
    /// be lost.
    pub(super) async fn drain_socket(&mut self) {
        let rest = async { while let Some(Ok(_)) = self.stream.next().await {} };
        let _ = timeout(Duration::from_secs(1), rest).await;
    }
}

/// See [`Reader::keep_heard`].
async fn keep_heard<F: Future>(heard: &LastHeard, waiting: F) -> F::Output {
    let mut waiting = pin!(waiting);
    loop {
        if let Ok(done) = timeout(HEARD_EVERY, waiting.as_mut()).await {
            return done;
        }
        heard.note(clock::now().up);
    }
}

/// The end of the reading; `None` if there is no close reason to send.
pub(super) type Ended = Option<Close>;

fn size_of(message: &Message) -> usize {
    match message {
        Message::Binary(frame) => frame.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use protocol::report::{ChunkData, Heartbeat, Stream as Streams};
    use protocol::wire::{CHUNK_WEIGHT, OUTPUT_BYTES_MAX, OUTPUT_WINDOW};
    use protocol::{JobId, Token, Uptime, Usage};

    use super::*;
    use crate::store::sqlite;
    use crate::ws::Machines;

    const SILENCE_MAX: Duration = Duration::from_millis(1_500);

    fn frame(report: &Report) -> Result<Message, WireError> {
        Ok(Message::Binary(wire::encode_report(report).unwrap().into()))
    }

    fn written(bytes: usize) -> Result<Message, WireError> {
        let data = ChunkData::Bytes(vec![b'x'; bytes]);
        frame(&Report::Output(vec![Chunk {
            token: Token::default(),
            stream: Streams::Stdout,
            offset: 0,
            data,
        }]))
    }

    fn reader<S>(
        stream: S,
        inbox: mpsc::Sender<FromSession>,
        output: output::Inbox,
        heard: LastHeard,
    ) -> Reader<S> {
        let grants = Arc::new(Grants::new(sqlite::temporary().1));
        grants.add([(Token::default(), protocol::Revision(1))].into_iter());
        Reader {
            session: SessionId(1),
            silence_max: SILENCE_MAX,
            name: "anna".into(),
            stream,
            heard,
            inbox,
            output,
            output_limits: OutputLimits::new(sqlite::temporary().1),
            unknown_attempts: UnknownAttempts::new(sqlite::temporary().1, grants.clone()),
            grants,
            machine: Arc::new(Machines::default()).enter(SessionId(1), None),
            usage: Arc::default(),
            unauthorized_logged: false,
            unassigned_logged: false,
            alarm: Alarm::default(),
            rate_limit: RateLimiter::default(),
        }
    }

    fn heartbeat() -> Result<Message, WireError> {
        frame(&Report::Heartbeat(Heartbeat::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_on_which_nothing_comes_is_closed_as_soon_as_the_lease_wants_it() {
        let (output, _nobody_writes) = output::unwritten();
        let (inbox, _engine) = mpsc::channel(10);
        let mut reader = reader(stream::pending(), inbox, output, LastHeard::at(Uptime(0)));
        let begun = tokio::time::Instant::now();
        assert_eq!(reader.run().await, Some(close::SILENT.plain()));
        assert_eq!(begun.elapsed(), SILENCE_MAX);
    }

    /// A worker's whole output window, in chunks of this size.
    fn whole_window(bytes: usize) -> impl Iterator<Item = Result<Message, WireError>> {
        (0..OUTPUT_WINDOW / (bytes + CHUNK_WEIGHT)).map(move |_| written(bytes))
    }

    #[tokio::test(start_paused = true)]
    async fn reports_behind_a_full_window_of_unwritten_output_are_read() {
        for bytes in [1, 20, 1_000, OUTPUT_BYTES_MAX] {
            let (output, _nobody_writes) = output::unwritten();
            let (inbox, mut engine) = mpsc::channel(10);
            let messages = stream::iter(whole_window(bytes).chain([heartbeat()])).chain(stream::pending());
            let mut reader = reader(messages, inbox, output, LastHeard::at(Uptime(0)));
            let reading = tokio::spawn(async move { reader.run().await });
            let said = timeout(SILENCE_MAX / 2, engine.recv()).await;
            let Ok(Some(FromSession::Reported(SessionId(1), reports))) = said else {
                panic!("chunks of {bytes} bytes: {said:?}")
            };
            assert_eq!(reports, [Report::Heartbeat(Heartbeat::default())]);
            reading.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_exceeds_its_window_is_closed_after_its_reports_were_read() {
        let (output, _nobody_writes) = output::unwritten();
        let (inbox, mut engine) = mpsc::channel(10);
        let messages = stream::iter([heartbeat()].into_iter().chain(whole_window(20)).chain([written(20)]));
        let mut reader = reader(messages.chain(stream::pending()), inbox, output, LastHeard::at(Uptime(0)));
        let end = reader.run().await.expect("it is closed");
        assert_eq!(end.code, close::RATE_LIMITED.code, "{end}");
        let Some(FromSession::Reported(SessionId(1), reports)) = engine.recv().await else { panic!() };
        assert_eq!(reports, [Report::Heartbeat(Heartbeat::default())]);
    }

    #[tokio::test(start_paused = true)]
    async fn samples_of_own_attempts_are_kept_and_reach_no_engine_and_others_are_dropped() {
        let (output, _nobody_writes) = output::unwritten();
        let (inbox, mut engine) = mpsc::channel(10);
        let sample = |job| {
            let usage = Usage { cpu_ms: Some(job), ..Usage::default() };
            UsageSample { token: Token { job: JobId(job), ..Token::default() }, usage, memory_bytes: None }
        };
        // The only attempt of the session has the job 0.
        let messages = [frame(&Report::Usage(vec![sample(5), sample(0)])), heartbeat()];
        let mut reader = reader(stream::iter(messages), inbox, output, LastHeard::at(Uptime(0)));
        assert_eq!(reader.run().await, None);
        assert_eq!(reader.usage.version(JobId(5)), None);
        assert!(reader.usage.version(JobId(0)).is_some());
        let Some(FromSession::Reported(SessionId(1), reports)) = engine.recv().await else { panic!() };
        assert_eq!(reports, [Report::Heartbeat(Heartbeat::default())]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_engine_does_not_silence_a_worker() {
        let (output, _nobody_writes) = output::unwritten();
        let (inbox, _busy) = mpsc::channel(1);
        inbox.try_send(FromSession::Closed(SessionId(2), Vec::new())).expect("there is room for one");
        let heard = LastHeard::at(Uptime(0));
        let messages = stream::iter([heartbeat()]).chain(stream::pending());
        let mut reader = reader(messages, inbox, output, heard.clone());
        let reading = tokio::spawn(async move { reader.run().await });
        tokio::task::yield_now().await;
        heard.note(Uptime(0));
        tokio::time::sleep(SILENCE_MAX).await;
        assert!(heard.last() > Uptime(0), "it is not read: it cannot be silent");
        assert!(!reading.is_finished());
        reading.abort();
    }
}
