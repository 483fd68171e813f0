//! Sends notifications, and records each try.
//!
//! One message a target is under way at a time, so a target that hangs delays no other. A try is written down before it is made: a server
//! that dies in between sends the message again, with the same id.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use protocol::{JobId, Timestamp};
use reqwest::header::HeaderMap;
use tokio::task::{Id, JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::client::{PostError, WebClient};
use super::mail::client::MailClient;
use super::mail::compose::Mail;
use super::mail::error::MailError;
use super::message::{Message, webhook_headers};
use super::occasion::Occasion;
use super::target::{Endpoint, Target};
use super::target_key::TargetKey;
use crate::catalogue::{Catalogue, Entry};
use crate::clock;
use crate::engine::RecordWriter;
use crate::http::present::ending::why_ended;
use crate::metrics::Metrics;
use crate::store::{
    Archive, JobRow, NotificationArchive, NotificationChange, NotificationId, NotificationRow,
    NotificationState, ReadError, RecordChange,
};

/// How often due messages are looked for: one look-up in an index.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// No message is tried for this long after a try could not be recorded: its row is still due, and the disk is probably full.
const UNRECORDED_PAUSE: Duration = Duration::from_secs(10);
/// Messages under way at once.
const UNDER_WAY_MAX: usize = 16;
/// The first wait before a message is sent again; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(3_600);
/// A message that nobody took for this long after its first try is given up: it is no longer news.
const GIVE_UP_MS: i64 = 24 * 3_600 * 1_000;

/// The delivery of notifications.
pub struct Delivery {
    /// Reads notifications.
    pub archive: Arc<dyn NotificationArchive>,
    /// Reads the jobs that they are about.
    pub jobs: Arc<dyn Archive>,
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

/// A target did not take a message.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// It has a URL.
    #[error(transparent)]
    Post(#[from] PostError),
    /// It is a mailbox.
    #[error(transparent)]
    Mail(#[from] MailError),
}

impl SendError {
    /// Milliseconds that the target asked to be left alone for, at most as long as the longest wait between two tries.
    fn retry_after_ms(&self) -> i64 {
        match self {
            Self::Post(PostError::Status { retry_after: Some(wait), .. }) => {
                i64::try_from((*wait).min(RETRY_MAX).as_millis()).unwrap_or(i64::MAX)
            }
            Self::Post(_) | Self::Mail(_) => 0,
        }
    }

    /// True if another try has the same result.
    const fn is_permanent(&self) -> bool {
        match self {
            // The operator of the receiver can mend it: a wrong path, or a program that refuses this body.
            Self::Post(_) => false,
            Self::Mail(error) => error.is_permanent(),
        }
    }
}

impl Delivery {
    /// Sends what is due until the server leaves. A try under way is then broken off, and made again by the next start.
    pub async fn run(self: Arc<Self>, leaving: CancellationToken) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tries = JoinSet::new();
        let mut under_way: HashMap<Id, TargetKey> = HashMap::new();
        let mut paused_until = Instant::now();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Some(ended) = tries.join_next_with_id() => {
                    let (id, is_recorded) = ended.unwrap_or_else(|panic| (panic.id(), false));
                    under_way.remove(&id);
                    if !is_recorded {
                        paused_until = Instant::now() + UNRECORDED_PAUSE;
                    }
                }
                () = leaving.cancelled() => return,
            }
            if Instant::now() < paused_until {
                continue;
            }
            let mut due = self.due().await;
            // Targets that failed before come last: they do not take the place of those that work.
            due.sort_by_key(|row| row.tries);
            for row in due {
                let is_under_way = under_way.values().any(|target| *target == row.target);
                if is_under_way || tries.len() >= UNDER_WAY_MAX {
                    continue;
                }
                let target = row.target.clone();
                let delivery = Arc::clone(&self);
                let task = tries.spawn(async move { delivery.send(row).await });
                under_way.insert(task.id(), target);
            }
        }
    }

    /// Sends a message to all targets of a definition at once, and waits for the results.
    pub async fn test(&self, entry: &Entry) -> Vec<TestResult> {
        let now = clock::now().utc;
        let test = async |target: &Target| {
            let row = test_row(&entry.definition.name, target, now);
            let message = Message {
                row: &row,
                job: None,
                reason: None,
                public_url: self.public_url.as_deref(),
                is_test: true,
            };
            let id = format!("test_{:016x}", rand::random::<u64>());
            let error = self.deliver(target, &id, &message, now).await.err();
            TestResult { target: target.clone(), error }
        };
        join_all(entry.notify.iter().map(test)).await
    }

    /// The last try of each target that did not take its message, newest first; of targets that jobs.yaml still has.
    ///
    /// # Errors
    /// The store cannot be read. Blocks on the disk.
    pub fn failing(&self) -> Result<Vec<NotificationRow>, ReadError> {
        let rows = self.archive.failing_targets()?;
        Ok(rows.into_iter().filter(|row| self.find_target(row).is_some()).collect())
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

    /// Makes one try. Returns false if its result is not recorded.
    async fn send(&self, row: NotificationRow) -> bool {
        let now = clock::now().utc;
        let Some(target) = self.find_target(&row) else {
            let error = "jobs.yaml has no such target any more".to_owned();
            return self.record(NotificationChange::GivenUp(row.id, error)).await;
        };
        let wait = wait_after(row.tries, rand::random());
        let (due_at, give_up_at) = (Timestamp(now.0 + wait), Timestamp(now.0 + GIVE_UP_MS));
        if !self.record(NotificationChange::Try { id: row.id, at: now, due_at, give_up_at }).await {
            return false;
        }
        // From here on further occasions are counted in a message of their own, and the count of this one is final.
        let (row, job) = self.read(row).await;
        let reason = job.as_ref().map(why_ended);
        let public_url = self.public_url.as_deref();
        let message = Message { row: &row, job: job.as_ref(), reason, public_url, is_test: false };
        let result = self.deliver(&target, &format!("msg_{}", row.message), &message, now).await;
        let (definition, kind, host) = (&*row.definition, target.kind().name(), target.host());
        let change = match result {
            Ok(()) => {
                tracing::info!(
                    definition,
                    kind,
                    host,
                    occasion = row.occasion.name(),
                    "notification delivered"
                );
                NotificationChange::Delivered(row.id)
            }
            Err(error) if error.is_permanent() => {
                tracing::error!(%error, definition, kind, host, "notification refused for good; it is not sent again");
                NotificationChange::GivenUp(row.id, error.to_string())
            }
            Err(error) if row.give_up_at.is_some_and(|at| at <= now) => {
                tracing::error!(%error, definition, kind, host, tries = row.tries, "notification given up after a day");
                NotificationChange::GivenUp(row.id, error.to_string())
            }
            Err(error) => {
                let wait = wait.max(error.retry_after_ms());
                tracing::warn!(%error, definition, kind, host, tries = row.tries,
                    retry_s = wait / 1_000, "notification not delivered; it is sent again");
                // Counted from the end of the try, so that a target that hangs leaves room for others.
                let due_at = Timestamp(clock::now().utc.0 + wait);
                NotificationChange::TryFailed(row.id, error.to_string(), due_at)
            }
        };
        self.metrics.notification_sent(kind, matches!(change, NotificationChange::Delivered(_)));
        self.record(change).await
    }

    fn find_target(&self, row: &NotificationRow) -> Option<Target> {
        let definitions = self.catalogue.current();
        let targets = &definitions.find(&row.definition)?.notify;
        targets.iter().find(|target| target.key() == row.target).cloned()
    }

    /// The row as it is now, and its job if it is still kept.
    async fn read(&self, row: NotificationRow) -> (NotificationRow, Option<JobRow>) {
        let (archive, jobs, kept) = (Arc::clone(&self.archive), Arc::clone(&self.jobs), row.clone());
        let read = spawn_blocking(move || {
            let row = archive.notification(row.id).ok().flatten().unwrap_or(row);
            let job = row.job.and_then(|job: JobId| jobs.job(job).ok().flatten());
            (row, job.map(|record| record.row))
        });
        read.await.unwrap_or((kept, None))
    }

    /// Hands a message to its target once.
    async fn deliver(
        &self,
        target: &Target,
        id: &str,
        message: &Message<'_>,
        now: Timestamp,
    ) -> Result<(), SendError> {
        match &target.endpoint {
            Endpoint::Webhook { url, secrets } => {
                let body = message.webhook_body();
                let headers = webhook_headers(secrets, id, now.0.div_euclid(1_000), &body);
                self.client.post(url, headers, body).await?;
            }
            Endpoint::Slack { url, format } => {
                self.client.post(url, HeaderMap::new(), message.chat_body(*format)).await?;
            }
            Endpoint::Email(recipient) => {
                let client = self.mail.as_ref().ok_or(MailError::NoServer)?;
                let mail = Mail::compose(message, recipient, &client.server().sender, id, now)?;
                client.send(&mail).await?;
            }
        }
        Ok(())
    }

    /// Returns true if the change is durable.
    async fn record(&self, change: NotificationChange) -> bool {
        match self.writer.change(RecordChange::Notification(change)).await {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                tracing::warn!(%error, "a try of a notification cannot be recorded; it may be sent once more");
                false
            }
            None => false,
        }
    }
}

/// Milliseconds until the next try after this many: doubled each time, and between half of that and all of it, so that messages to a
/// target that was away do not come at once.
fn wait_after(tries: u32, random: u32) -> i64 {
    let doubled = RETRY_FIRST.saturating_mul(2_u32.saturating_pow(tries.min(16)));
    let full = i64::try_from(doubled.min(RETRY_MAX).as_millis()).unwrap_or(i64::MAX);
    full / 2 + full / 2 * i64::from(random >> 16) / i64::from(u16::MAX)
}

fn test_row(definition: &str, target: &Target, now: Timestamp) -> NotificationRow {
    NotificationRow {
        id: NotificationId(0),
        message: String::new(),
        definition: definition.into(),
        target: target.key(),
        kind: target.kind(),
        host: target.host(),
        occasion: target.on.iter().next().unwrap_or(Occasion::Failed),
        count: 1,
        first_at: now,
        last_at: now,
        job: None,
        state: NotificationState::Waiting,
        opens_at: now,
        due_at: now,
        tries: 0,
        tried_at: None,
        give_up_at: None,
        error: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::catalogue::Definitions;
    use crate::notifications::addresses::AllowedNetworks;
    use crate::notifications::occasion::Occasions;
    use crate::store::NotificationFilter;
    use crate::store::sqlite::temporary;

    #[test]
    fn waits_double_up_to_an_hour_and_vary_by_half() {
        assert_eq!((wait_after(0, 0), wait_after(0, u32::MAX)), (2_500, 5_000));
        assert_eq!((wait_after(3, 0), wait_after(3, u32::MAX)), (20_000, 40_000));
        assert_eq!(wait_after(200, u32::MAX), 3_600_000);
    }

    /// Has a message that stays due. The delivery leaves after some looks.
    struct AlwaysDue {
        looks: AtomicU32,
        leaving: CancellationToken,
    }

    impl NotificationArchive for AlwaysDue {
        fn due_notifications(&self, now: Timestamp) -> Result<Vec<NotificationRow>, ReadError> {
            if self.looks.fetch_add(1, Ordering::Relaxed) == 3 {
                self.leaving.cancel();
            }
            let url = "https://hooks.example/".parse().unwrap();
            let endpoint = Endpoint::Webhook { url, secrets: Vec::new() };
            let target = Target { endpoint, on: Occasions::standard(), period: Duration::ZERO };
            Ok(vec![test_row("gone", &target, now)])
        }

        fn failing_targets(&self) -> Result<Vec<NotificationRow>, ReadError> {
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
        let leaving = CancellationToken::new();
        let delivery = Arc::new(Delivery {
            archive: Arc::new(AlwaysDue { looks: AtomicU32::new(0), leaving: leaving.clone() }),
            jobs: temporary().1,
            catalogue: Arc::new(Catalogue::new(Definitions::new(Vec::new()))),
            writer: RecordWriter::closed(),
            client: WebClient::new(AllowedNetworks::default()).unwrap(),
            mail: None,
            public_url: None,
            metrics: Arc::default(),
        });
        let began = Instant::now();
        delivery.run(leaving).await;
        assert!(began.elapsed() >= UNRECORDED_PAUSE * 3, "{:?}", began.elapsed());
    }
}
