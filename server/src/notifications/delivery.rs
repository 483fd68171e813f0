//! Sends notifications, and records each try (`tries`).
//!
//! One message a target is under way at a time, so a target that hangs delays no other. A try is written down before it is made: a server
//! that dies in between sends the message again, with the same id.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use protocol::Timestamp;
use tokio::task::{Id, JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::client::WebClient;
use super::details::DefinitionFacts;
use super::mail::client::MailClient;
use super::message::Message;
use super::receivers::Receivers;
use super::requests::{SendRefusal, SendRequests};
use super::target::Target;
use super::target_key::TargetKey;
use super::tries::SendError;
use crate::catalogue::{Catalogue, Entry};
use crate::clock;
use crate::engine::RecordWriter;
use crate::logs::Logs;
use crate::metrics::Metrics;
use crate::store::{
    Archive, NotificationArchive, NotificationChange, NotificationId, NotificationRow, NotificationState,
    ReadError, UnsentGroup, WorkingReceiver,
};

/// How often due messages are looked for: one look-up in an index.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// No message is tried for this long after a try could not be recorded: its row is still due, and the disk is probably full.
const UNRECORDED_PAUSE: Duration = Duration::from_secs(10);
/// Messages under way at once.
const IN_FLIGHT_MAX: usize = 16;

/// The delivery of notifications.
pub struct Delivery {
    /// Reads notifications.
    pub archive: Arc<dyn NotificationArchive>,
    /// Reads the jobs that they are about.
    pub jobs: Arc<dyn Archive>,
    /// The output of the jobs, for targets that get its last lines.
    pub logs: Arc<Logs>,
    /// The targets with their URLs.
    pub catalogue: Arc<Catalogue>,
    /// Records the tries.
    pub writer: RecordWriter,
    /// Posts the messages to URLs.
    pub client: WebClient,
    /// Sends the mails; absent if the server was not told of a mail server.
    pub mail: Option<MailClient>,
    /// The URL of the server for people, for links in messages.
    pub public_url: Option<String>,
    /// Counts the tries.
    pub metrics: Arc<Metrics>,
    /// The messages that somebody wants to be sent now.
    pub requests: SendRequests,
    /// The receivers that are left alone for a while.
    pub receivers: Receivers,
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery").field("public_url", &self.public_url).finish_non_exhaustive()
    }
}

/// The result of a message that was sent to try a target.
#[derive(Debug)]
pub struct TestResult {
    /// The target.
    pub target: Target,
    /// The reason for which it did not take the message.
    pub error: Option<SendError>,
}

/// Messages that somebody wants to be sent, counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct MadeDue {
    /// Those that waited.
    pub waiting: u64,
    /// Those that were given up.
    pub failed: u64,
    /// Those whose target jobs.yaml has no more: they are left as they are.
    pub without_target: u64,
}

/// The tries under way.
#[derive(Debug, Default)]
struct InFlight {
    tries: JoinSet<bool>,
    targets: HashMap<Id, TargetKey>,
}

impl InFlight {
    fn is_full(&self) -> bool {
        self.tries.len() >= IN_FLIGHT_MAX
    }

    fn includes(&self, target: &TargetKey) -> bool {
        self.targets.values().any(|busy| busy == target)
    }

    fn start(&mut self, target: TargetKey, attempt: impl Future<Output = bool> + Send + 'static) {
        let task = self.tries.spawn(attempt);
        self.targets.insert(task.id(), target);
    }

    /// Waits for the end of a try. Returns false if its result is not recorded; nothing if none is under way.
    ///
    /// # Cancel safety
    /// Dropping the future loses no end.
    async fn ended(&mut self) -> Option<bool> {
        let ended = self.tries.join_next_with_id().await?;
        let (id, is_recorded) = ended.unwrap_or_else(|panic| (panic.id(), false));
        self.targets.remove(&id);
        Some(is_recorded)
    }
}

impl Delivery {
    /// Sends what is due or asked for until the server shuts down. A try under way is then broken off, and made again by the next start.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut in_flight = InFlight::default();
        let mut paused_until = Instant::now();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Some(is_recorded) = in_flight.ended() => {
                    if !is_recorded {
                        paused_until = Instant::now() + UNRECORDED_PAUSE;
                    }
                }
                () = self.requests.added() => {}
                () = shutdown.cancelled() => {
                    self.requests.close();
                    return;
                }
            }
            self.start_requested(&mut in_flight);
            if Instant::now() >= paused_until {
                self.start_due(&mut in_flight).await;
            }
        }
    }

    fn start_requested(self: &Arc<Self>, in_flight: &mut InFlight) {
        while !in_flight.is_full()
            && let Some(request) = self.requests.take(|target| !in_flight.includes(target))
        {
            let delivery = Arc::clone(self);
            let target = request.row.target.clone();
            in_flight.start(target, async move { delivery.send_requested(request).await });
        }
    }

    async fn start_due(self: &Arc<Self>, in_flight: &mut InFlight) {
        let mut due = self.due().await;
        // Targets that failed before come last: they do not take the place of those that work.
        due.sort_by_key(|row| row.tries);
        for row in due {
            let is_left_alone = self.receivers.wait(row.kind, &row.target, Instant::now()).is_some();
            if is_left_alone || in_flight.is_full() || in_flight.includes(&row.target) {
                continue;
            }
            let delivery = Arc::clone(self);
            in_flight.start(row.target.clone(), async move { delivery.send_due(row).await });
        }
    }

    /// Sends a message to all targets of a definition at once, and waits for the results. Messages that wait for a target that takes it are
    /// due at once.
    pub async fn test(&self, entry: &Entry) -> Vec<TestResult> {
        let now = clock::now().utc;
        let test = async |target: &Target| {
            let row = target.test_row(&entry.definition.name, now);
            let message = Message {
                row: &row,
                definition: DefinitionFacts::of(entry),
                job: None,
                batch: None,
                reason: None,
                output_tail: None,
                public_url: self.public_url.as_deref(),
                is_test: true,
            };
            let id = format!("test_{:016x}", rand::random::<u64>());
            let error = self.deliver(target, &id, &message, now).await.err();
            if error.is_none() {
                self.receivers.record_taken(&row, Instant::now());
                let (kind, target, at) = (row.kind, row.target.clone(), clock::now().utc);
                let receiver = WorkingReceiver { kind, target, at, except: Vec::new() };
                // If that fails, the messages go on to wait.
                self.record(NotificationChange::ReceiverWorks(receiver)).await;
            }
            TestResult { target: target.clone(), error }
        };
        join_all(entry.notify.iter().map(test)).await
    }

    /// Sends a message that waits or was given up, after a try of its target that is under way. Returns the message as it is then.
    ///
    /// # Errors
    /// See [`SendRefusal`].
    ///
    /// # Cancel safety
    /// The message is sent also if the future is dropped.
    pub async fn send_now(&self, row: NotificationRow) -> Result<NotificationRow, SendRefusal> {
        self.target_of_unsent(&row)?;
        self.requests.send(row).await
    }

    /// Makes the messages due that wait or were given up, of these groups. The messages to one target are sent one after another.
    ///
    /// # Errors
    /// [`SendRefusal::NotRecorded`].
    pub async fn make_due(&self, groups: Vec<UnsentGroup>) -> Result<MadeDue, SendRefusal> {
        let (mut receivers, mut with_target, mut without_target) = (Vec::new(), Vec::new(), 0);
        for group in groups {
            match self.find_target(&group.definition, &group.target) {
                Some((_, target)) => {
                    receivers.push(target);
                    with_target.push(group);
                }
                None => without_target += group.count,
            }
        }
        let count = |state| {
            with_target
                .iter()
                .filter(|group| group.state == state)
                .map(|group: &UnsentGroup| group.count)
                .sum()
        };
        let made_due = MadeDue {
            waiting: count(NotificationState::Waiting),
            failed: count(NotificationState::Failed),
            without_target,
        };
        if !with_target.is_empty() {
            if !self.record(NotificationChange::MakeDue(with_target, clock::now().utc)).await {
                return Err(SendRefusal::NotRecorded);
            }
            for target in receivers {
                self.receivers.end_wait(target.kind(), &target.key());
            }
        }
        Ok(made_due)
    }

    /// A message, if it is kept.
    ///
    /// # Errors
    /// The store cannot be read. Blocks on the disk.
    pub fn find(&self, id: NotificationId) -> Result<Option<NotificationRow>, ReadError> {
        self.archive.notification(id)
    }

    /// When a message that waits is sent next: not before its receiver may be disturbed again.
    #[must_use]
    pub fn next_try(&self, row: &NotificationRow) -> Timestamp {
        let wait = self.receivers.wait(row.kind, &row.target, Instant::now());
        let wait = wait.map(|wait| i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
        wait.map_or(row.due_at, |wait| row.due_at.max(Timestamp(clock::now().utc.0.saturating_add(wait))))
    }

    /// True if jobs.yaml has the target of a message, or had it before the definition was removed.
    #[must_use]
    pub fn has_target(&self, row: &NotificationRow) -> bool {
        self.find_target(&row.definition, &row.target).is_some()
    }

    /// The last try of each target that did not take its message, newest first; of targets that jobs.yaml still has.
    ///
    /// # Errors
    /// The store cannot be read. Blocks on the disk.
    pub fn failing(&self) -> Result<Vec<NotificationRow>, ReadError> {
        let rows = self.archive.failing_targets()?;
        let definitions = self.catalogue.current();
        let has_it = |row: &NotificationRow| {
            let targets = definitions.find(&row.definition).map(|entry| &entry.notify);
            targets.is_some_and(|targets| targets.iter().any(|target| target.key() == row.target))
        };
        Ok(rows.into_iter().filter(has_it).collect())
    }

    async fn due(&self) -> Vec<NotificationRow> {
        let archive = Arc::clone(&self.archive);
        match spawn_blocking(move || archive.due_notifications(clock::now().utc)).await {
            Ok(Ok(rows)) => rows,
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot read the notifications that are due; trying again in a second");
                Vec::new()
            }
            // A panic was logged when it happened.
            Err(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::catalogue::Definitions;
    use crate::logs::Limits;
    use crate::notifications::addresses::AllowedNetworks;
    use crate::notifications::occasion::Occasions;
    use crate::notifications::target::Endpoint;
    use crate::store::NotificationFilter;
    use crate::store::sqlite::temporary;

    /// Has a message that stays due. The delivery leaves after some looks.
    struct AlwaysDue {
        looks: AtomicU32,
        shutdown: CancellationToken,
    }

    impl NotificationArchive for AlwaysDue {
        fn due_notifications(&self, now: Timestamp) -> Result<Vec<NotificationRow>, ReadError> {
            if self.looks.fetch_add(1, Ordering::Relaxed) == 3 {
                self.shutdown.cancel();
            }
            let url = "https://hooks.example/".parse().unwrap();
            let endpoint = Endpoint::Webhook { url, secrets: Vec::new() };
            let target =
                Target { endpoint, on: Occasions::standard(), period: Duration::ZERO, output_lines: None };
            Ok(vec![target.test_row("gone", now)])
        }

        fn failing_targets(&self) -> Result<Vec<NotificationRow>, ReadError> {
            Ok(Vec::new())
        }

        fn unsent_notifications(&self) -> Result<Vec<UnsentGroup>, ReadError> {
            Ok(Vec::new())
        }

        fn notification(&self, _: NotificationId) -> Result<Option<NotificationRow>, ReadError> {
            Ok(None)
        }

        fn notifications(&self, _: &NotificationFilter) -> Result<Vec<NotificationRow>, ReadError> {
            Ok(Vec::new())
        }
    }

    // The clock runs ahead by itself while nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn a_try_that_cannot_be_recorded_is_made_again_after_a_pause() {
        let shutdown = CancellationToken::new();
        let directory = tempfile::tempdir().unwrap();
        let delivery = Arc::new(Delivery {
            archive: Arc::new(AlwaysDue { looks: AtomicU32::new(0), shutdown: shutdown.clone() }),
            jobs: temporary().1,
            logs: Logs::open(directory.path(), Limits::default()).unwrap(),
            catalogue: Arc::new(Catalogue::new(Definitions::new(Vec::new()))),
            writer: RecordWriter::closed(),
            client: WebClient::new(AllowedNetworks::default()).unwrap(),
            mail: None,
            public_url: None,
            metrics: Arc::default(),
            requests: SendRequests::default(),
            receivers: Receivers::default(),
        });
        let began = Instant::now();
        delivery.run(shutdown).await;
        assert!(began.elapsed() >= UNRECORDED_PAUSE * 3, "{:?}", began.elapsed());
    }
}
