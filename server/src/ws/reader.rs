//! The reading half of a worker's connection: frames → reports for the engine, output for the logs.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use protocol::close::{self, Close};
use protocol::report::{Chunk, Foreign, Inventory};
use protocol::{Report, SessionId, wire};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error as WireError, Message, error::ProtocolError};

use super::chatter::{Chatter, says_nothing};
use super::grants::Grants;
use super::machine::Entry;
use super::output;
use super::pieces::TooManyPieces;
use super::strangers::{self, Strangers};
use crate::clock;
use crate::engine::{FromSession, Heard};
use crate::store::ReadError;

/// How many frames are read before their reports are handed over.
const FRAMES_PER_TURN: usize = 256;
/// How many bytes are read before that, not counting the last frame.
const BYTES_PER_TURN: usize = 1 << 20;
/// How often a worker that we are not reading is noted as heard.
const HEARD_EVERY: Duration = Duration::from_secs(1);

/// What reads a session.
pub(super) struct Reader<S> {
    pub(super) session: SessionId,
    /// A socket without any frame for so long is dead.
    pub(super) silence_max: Duration,
    /// What people call the worker.
    pub(super) name: Arc<str>,
    pub(super) stream: S,
    pub(super) heard: Heard,
    pub(super) inbox: mpsc::Sender<FromSession>,
    pub(super) output: output::Inbox,
    pub(super) grants: Arc<Grants>,
    pub(super) strangers: Strangers,
    pub(super) machine: Entry,
    pub(super) has_trespassed: bool,
    pub(super) chatter: Chatter,
}

impl<S: Stream<Item = Result<Message, WireError>> + Unpin> Reader<S> {
    /// Reads until the end; says why it ended, if that is the worker's doing.
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
            if !self.hand_over(reports).await {
                return None;
            }
            if let Err(why) = read {
                return why;
            }
        }
    }

    /// Takes what has arrived by now: waiting for more is not its part.
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
            self.take(message, reports).await?;
            if frames < FRAMES_PER_TURN && bytes < BYTES_PER_TURN {
                next = self.stream.next().now_or_never().flatten();
            }
        }
        Ok(())
    }

    async fn take(&mut self, message: Message, reports: &mut Vec<Report>) -> Result<(), Ended> {
        let frame = match message {
            Message::Binary(frame) => frame,
            Message::Text(_) => return Err(Some(close::TEXT_FRAME.plain())),
            Message::Close(_) => return Err(Some(close::NORMAL.plain())),
            // Single frames are never read.
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => return self.endure(),
        };
        match wire::decode_report(&frame) {
            Ok(Some(report)) if says_nothing(&report) => self.endure(),
            Ok(Some(Report::Output(chunks))) => self.write(chunks).await,
            Ok(Some(Report::Inventory(part))) => self.bring(part, reports).await,
            Ok(Some(Report::Foreign(foreign))) => {
                reports.push(Report::Foreign(self.known(foreign).await?));
                Ok(())
            }
            Ok(Some(report)) => {
                if let Report::Heartbeat(beat) = &report {
                    self.machine.note(beat);
                }
                self.grants.note(&report);
                reports.push(report);
                Ok(())
            }
            Ok(None) => self.endure(),
            Err(error) => Err(Some(error.close())),
        }
    }

    /// Passes a list of attempts on, and before it which of them were never given here.
    async fn bring(&mut self, mut part: Inventory, reports: &mut Vec<Report>) -> Result<(), Ended> {
        let found = self.heard_while(self.strangers.among(&part)).await;
        let found = found.map_err(|error| self.cannot_tell(&error))?;
        part.foreign = self.known(part.foreign).await?;
        if !found.is_empty() {
            strangers::raise_alarm(&self.name, self.session, &found);
            let brought = FromSession::Brought(self.session, found);
            let handed_over = self.hand_over(std::mem::take(reports)).await
                && self.heard_while(self.inbox.send(brought)).await.is_ok();
            if !handed_over {
                return Err(None);
            }
        }
        let report = Report::Inventory(part);
        self.grants.note(&report);
        reports.push(report);
        Ok(())
    }

    /// Containers of other workers, without those that were never given here.
    async fn known(&self, foreign: Vec<Foreign>) -> Result<Vec<Foreign>, Ended> {
        let known = self.heard_while(self.strangers.leave_out(foreign)).await;
        known.map_err(|error| self.cannot_tell(&error))
    }

    fn cannot_tell(&self, error: &ReadError) -> Ended {
        tracing::error!(session = self.session.0, %error, "cannot tell what this worker brings");
        Some(close::INTERNAL_ERROR.plain())
    }

    /// A message said nothing.
    fn endure(&mut self) -> Result<(), Ended> {
        if self.chatter.note(clock::now().up) { Ok(()) } else { Err(Some(close::RATE_LIMITED.plain())) }
    }

    /// Passes output on, which never waits for the disk: what comes behind it may be a report.
    async fn write(&mut self, chunks: Vec<Chunk>) -> Result<(), Ended> {
        let sifted = self.heard_while(self.grants.sift(chunks)).await;
        let (chunks, foreign) = sifted.map_err(|error| {
            tracing::error!(session = self.session.0, %error, "cannot tell whose output this is");
            Some(close::INTERNAL_ERROR.plain())
        })?;
        if !foreign.is_empty() {
            self.output.give_up(&foreign);
            // One line a session: whoever does this may do it often.
            if !std::mem::replace(&mut self.has_trespassed, true) {
                let token = foreign[0].token;
                tracing::warn!(session = self.session.0, %token, "output of an attempt that is not this worker's is dropped");
            }
        }
        if chunks.is_empty() {
            return Ok(());
        }
        self.output.put(chunks).map_err(|error| Some(close::RATE_LIMITED.because(error)))
    }

    /// Waits for room in the engine's inbox.
    async fn hand_over(&self, reports: Vec<Report>) -> bool {
        reports.is_empty()
            || self.heard_while(self.inbox.send(FromSession::Said(self.session, reports))).await.is_ok()
    }

    /// Waits for something of ours. A worker that we are not reading cannot fall silent: it counts as heard meanwhile.
    async fn heard_while<F: Future>(&self, waiting: F) -> F::Output {
        let mut waiting = pin!(waiting);
        loop {
            if let Ok(done) = timeout(HEARD_EVERY, waiting.as_mut()).await {
                return done;
            }
            self.heard.note(clock::now().up);
        }
    }

    /// Reads on after our goodbye, unheard: a socket that is closed over unread bytes is reset, and the goodbye would be lost with it.
    pub(super) async fn read_out(&mut self) {
        let rest = async { while let Some(Ok(_)) = self.stream.next().await {} };
        let _ = timeout(Duration::from_secs(1), rest).await;
    }
}

/// Why nothing more is read; nothing if there is nobody to tell.
type Ended = Option<Close>;

fn size_of(message: &Message) -> usize {
    match message {
        Message::Binary(frame) => frame.len(),
        _ => 0,
    }
}

/// What to tell a peer whose bytes were no WebSocket messages, or too many of them.
pub(super) fn broken(error: &WireError) -> Option<Close> {
    match error {
        WireError::Capacity(limit) => Some(close::TOO_LARGE.because(limit)),
        WireError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        WireError::Protocol(fault) => Some(close::PROTOCOL_ERROR.because(fault)),
        WireError::Io(error) => {
            let many = error.get_ref().and_then(|cause| cause.downcast_ref::<TooManyPieces>());
            many.map(|many| close::TOO_LARGE.because(many))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use protocol::report::{ChunkData, Heartbeat, Stream as Which};
    use protocol::wire::{CHUNK_WEIGHT, OUTPUT_BYTES_MAX, OUTPUT_WINDOW};
    use protocol::{Token, Uptime};

    use super::*;
    use crate::store::memory::MemoryStore;
    use crate::ws::Machines;

    const SILENCE_MAX: Duration = Duration::from_millis(1_500);

    fn frame(report: &Report) -> Result<Message, WireError> {
        Ok(Message::Binary(wire::encode_report(report).unwrap().into()))
    }

    fn written(bytes: usize) -> Result<Message, WireError> {
        let data = ChunkData::Bytes(vec![b'x'; bytes]);
        frame(&Report::Output(vec![Chunk {
            token: Token::default(),
            stream: Which::Stdout,
            offset: 0,
            data,
        }]))
    }

    fn reader<S>(
        stream: S,
        inbox: mpsc::Sender<FromSession>,
        output: output::Inbox,
        heard: Heard,
    ) -> Reader<S> {
        let grants = Arc::new(Grants::new(Arc::new(MemoryStore::new())));
        grants.add([Token::default()].into_iter());
        Reader {
            session: SessionId(1),
            silence_max: SILENCE_MAX,
            name: "anna".into(),
            stream,
            heard,
            inbox,
            output,
            strangers: Strangers::new(Arc::new(MemoryStore::new()), grants.clone()),
            grants,
            machine: Arc::new(Machines::default()).enter(SessionId(1), None),
            has_trespassed: false,
            chatter: Chatter::default(),
        }
    }

    fn heartbeat() -> Result<Message, WireError> {
        frame(&Report::Heartbeat(Heartbeat::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_on_which_nothing_comes_is_closed_as_soon_as_the_lease_wants_it() {
        let (output, _nobody_writes) = output::unwritten();
        let (inbox, _engine) = mpsc::channel(10);
        let mut reader = reader(stream::pending(), inbox, output, Heard::at(Uptime(0)));
        let begun = tokio::time::Instant::now();
        assert_eq!(reader.run().await, Some(close::SILENT.plain()));
        assert_eq!(begun.elapsed(), SILENCE_MAX);
    }

    /// The output that a worker may have under way, in chunks of so many bytes.
    fn whole_window(bytes: usize) -> impl Iterator<Item = Result<Message, WireError>> {
        (0..OUTPUT_WINDOW / (bytes + CHUNK_WEIGHT)).map(move |_| written(bytes))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_reported_behind_a_whole_window_of_output_that_nobody_writes_is_heard() {
        for bytes in [1, 20, 1_000, OUTPUT_BYTES_MAX] {
            let (output, _nobody_writes) = output::unwritten();
            let (inbox, mut engine) = mpsc::channel(10);
            let messages = stream::iter(whole_window(bytes).chain([heartbeat()])).chain(stream::pending());
            let mut reader = reader(messages, inbox, output, Heard::at(Uptime(0)));
            let reading = tokio::spawn(async move { reader.run().await });
            let said = timeout(SILENCE_MAX / 2, engine.recv()).await;
            let Ok(Some(FromSession::Said(SessionId(1), reports))) = said else {
                panic!("chunks of {bytes} bytes: {said:?}")
            };
            assert_eq!(reports, [Report::Heartbeat(Heartbeat::default())]);
            reading.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_sends_more_output_than_its_window_is_closed_and_its_reports_are_heard() {
        let (output, _nobody_writes) = output::unwritten();
        let (inbox, mut engine) = mpsc::channel(10);
        let messages = stream::iter([heartbeat()].into_iter().chain(whole_window(20)).chain([written(20)]));
        let mut reader = reader(messages.chain(stream::pending()), inbox, output, Heard::at(Uptime(0)));
        let end = reader.run().await.expect("it is closed");
        assert_eq!(end.code, close::RATE_LIMITED.code, "{end}");
        let Some(FromSession::Said(SessionId(1), reports)) = engine.recv().await else { panic!() };
        assert_eq!(reports, [Report::Heartbeat(Heartbeat::default())]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_engine_does_not_silence_a_worker() {
        let (output, _nobody_writes) = output::unwritten();
        let (inbox, _busy) = mpsc::channel(1);
        inbox.try_send(FromSession::Closed(SessionId(2), Vec::new())).expect("there is room for one");
        let heard = Heard::at(Uptime(0));
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
