//! One try of a message: recorded, made, and its result recorded.

use std::sync::Arc;
use std::time::Duration;

use protocol::{JobId, Timestamp};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::batch_facts::BatchFacts;
use super::client::PostError;
use super::delivery::Delivery;
use super::details::DefinitionFacts;
use super::mail::compose::Mail;
use super::mail::error::MailError;
use super::message::{Message, webhook_headers};
use super::output_tail;
use super::receivers::FailureCause;
use super::requests::{SendRefusal, SendRequest};
use super::target::{Endpoint, Target};
use super::target_key::TargetKey;
use crate::catalogue::Entry;
use crate::clock;
use crate::http::present::ending::why_ended;
use crate::store::{
    Archive, JobRow, NotificationChange, NotificationId, NotificationRow, NotificationState, RecordChange,
    WorkingReceiver,
};

/// The first wait before a message is sent again; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(3_600);
/// A try of which nothing is heard any more, because the server was stopped, is made again at the latest after this time.
const BROKEN_OFF_MS_MAX: i64 = 10_000;
/// A message that nobody took for this long after its first try is given up: it is no longer news.
const GIVE_UP_MS: i64 = 24 * 3_600 * 1_000;

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
    /// The time that the target asked to be left alone for, at most as long as the longest wait between two tries.
    fn retry_after(&self) -> Duration {
        match self {
            Self::Post(PostError::Status { retry_after: Some(wait), .. }) => (*wait).min(RETRY_MAX),
            Self::Post(_) | Self::Mail(_) => Duration::ZERO,
        }
    }

    fn cause(&self) -> FailureCause {
        match self {
            Self::Post(PostError::Status { status, retry_after: None }) if !is_busy(*status) => {
                FailureCause::Message
            }
            Self::Post(PostError::Redirect(_)) => FailureCause::Message,
            Self::Mail(MailError::Refused { .. } | MailError::Rejected { .. } | MailError::Compose(_)) => {
                FailureCause::Message
            }
            Self::Post(_) | Self::Mail(_) => FailureCause::Receiver(self.retry_after()),
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

/// True for a status by which a receiver, or a proxy before it, takes nothing from anybody for a while.
fn is_busy(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// A try that is about to be made.
struct Try {
    row: NotificationRow,
    entry: Arc<Entry>,
    target: Target,
    at: Timestamp,
    /// Milliseconds until the next one, if it fails.
    wait: i64,
}

impl Delivery {
    /// Makes the try of a message that is due. Returns false if its result is not recorded.
    pub(super) async fn send_due(&self, row: NotificationRow) -> bool {
        let Some((entry, target)) = self.find_target(&row.definition, &row.target) else {
            let error = "jobs.yaml has no such target any more".to_owned();
            return self.record(NotificationChange::GivenUp(row.id, error)).await;
        };
        let attempt = Try::begin(row, entry, target);
        let (id, at) = (attempt.row.id, attempt.at);
        let (due_at, give_up_at) = (attempt.due_if_broken_off(), Timestamp(at.0 + GIVE_UP_MS));
        self.record(NotificationChange::Try { id, at, due_at, give_up_at }).await && self.make(attempt).await
    }

    /// Makes the try of a message that was asked for. Returns false if it, or its result, is not recorded.
    pub(super) async fn send_requested(&self, request: SendRequest) -> bool {
        let SendRequest { row, reply } = request;
        let result = self.try_requested(row.id).await;
        let is_recorded = !matches!(result, Err(SendRefusal::NotRecorded));
        // The client may have gone.
        let _ = reply.send(result);
        is_recorded
    }

    async fn try_requested(&self, id: NotificationId) -> Result<NotificationRow, SendRefusal> {
        // The row as it is now: another try may have ended since the request.
        let row = self.read_row(id).await?;
        let (entry, target) = self.target_of_unsent(&row)?;
        let attempt = Try::begin(row, entry, target);
        let at = attempt.at;
        let (due_at, give_up_at) = (attempt.due_if_broken_off(), Timestamp(at.0 + GIVE_UP_MS));
        let change = NotificationChange::RequestedTry { id, at, due_at, give_up_at };
        if !self.record(change).await || !self.make(attempt).await {
            return Err(SendRefusal::NotRecorded);
        }
        self.read_row(id).await
    }

    /// The target of a message that can be sent.
    pub(super) fn target_of_unsent(
        &self,
        row: &NotificationRow,
    ) -> Result<(Arc<Entry>, Target), SendRefusal> {
        if row.state == NotificationState::Delivered {
            return Err(SendRefusal::Delivered(row.id));
        }
        let target = self.find_target(&row.definition, &row.target);
        target.ok_or_else(|| SendRefusal::NoTarget(Box::new(row.clone())))
    }

    async fn read_row(&self, id: NotificationId) -> Result<NotificationRow, SendRefusal> {
        let archive = Arc::clone(&self.archive);
        // A panic was logged when it happened.
        let read = spawn_blocking(move || archive.notification(id)).await;
        read.map_err(|_| SendRefusal::NotRecorded)??.ok_or(SendRefusal::Unknown(id))
    }

    /// Makes a recorded try. Returns false if its result is not recorded.
    async fn make(&self, attempt: Try) -> bool {
        let Try { row, entry, target, at, wait } = attempt;
        // From here on further occasions are counted in a message of their own, and the count of this one is final.
        let (row, job, batch) = self.read(row).await;
        let output_tail = match target.output_lines {
            Some(lines) => output_tail::read(&self.logs, row.occasion, job.as_ref(), lines).await,
            None => None,
        };
        let message = Message {
            row: &row,
            definition: DefinitionFacts::of(&entry),
            job: job.as_ref(),
            batch: batch.as_ref(),
            reason: job.as_ref().map(why_ended),
            output_tail,
            public_url: self.public_url.as_deref(),
            is_test: false,
        };
        let result = self.deliver(&target, &format!("msg_{}", row.message), &message, at).await;
        let (definition, kind, host) = (&*row.definition, target.kind().name(), target.host());
        let now = clock::now().utc;
        if let Err(error) = &result {
            self.receivers.record_failure(&row, error.cause(), Instant::now());
        }
        let change = match result {
            Ok(()) => {
                tracing::info!(
                    definition,
                    kind,
                    host,
                    occasion = row.occasion.name(),
                    "notification delivered"
                );
                let except = self.receivers.record_taken(&row, Instant::now());
                let receiver =
                    WorkingReceiver { kind: row.kind, target: row.target.clone(), at: now, except };
                NotificationChange::Delivered(row.id, receiver)
            }
            Err(error) if error.is_permanent() => {
                tracing::error!(%error, definition, kind, host, "notification refused for good; it is not sent again");
                NotificationChange::GivenUp(row.id, error.to_string())
            }
            Err(error) if row.give_up_at.is_some_and(|give_up_at| give_up_at <= at) => {
                tracing::error!(%error, definition, kind, host, tries = row.tries, "notification given up after a day");
                NotificationChange::GivenUp(row.id, error.to_string())
            }
            Err(error) => {
                let asked = i64::try_from(error.retry_after().as_millis()).unwrap_or(i64::MAX);
                let wait = wait.max(asked);
                tracing::warn!(%error, definition, kind, host, tries = row.tries,
                    retry_s = wait / 1_000, "notification not delivered; it is sent again");
                // Counted from the end of the try, so that a target that hangs leaves room for others.
                NotificationChange::TryFailed(row.id, error.to_string(), Timestamp(now.0 + wait))
            }
        };
        if matches!(change, NotificationChange::GivenUp(..)) {
            self.receivers.forget_message(&row);
        }
        let is_delivered = matches!(change, NotificationChange::Delivered(..));
        self.metrics.notification_sent(kind, is_delivered);
        self.record(change).await
    }

    /// A target of a definition, as jobs.yaml has both now, or had them before the definition was removed.
    pub(super) fn find_target(&self, definition: &str, target: &TargetKey) -> Option<(Arc<Entry>, Target)> {
        let definitions = self.catalogue.current();
        let entry = definitions.find_for_messages(definition)?;
        let target = entry.notify.iter().find(|known| known.key() == *target)?;
        Some((Arc::clone(entry), target.clone()))
    }

    /// The row as it is now, and its job and batch if they are still kept.
    async fn read(&self, row: NotificationRow) -> (NotificationRow, Option<JobRow>, Option<BatchFacts>) {
        let (archive, jobs, kept) = (Arc::clone(&self.archive), Arc::clone(&self.jobs), row.clone());
        let read = spawn_blocking(move || {
            let row = archive.notification(row.id).ok().flatten().unwrap_or(row);
            let job = row.job.and_then(|job: JobId| jobs.job(job).ok().flatten()).map(|record| record.row);
            let batch = row.batch.or(job.as_ref().and_then(|job| job.batch));
            let batch = batch.and_then(|first| jobs.batch(first).ok().flatten());
            let batch = batch.map(|batch| BatchFacts {
                index: job.as_ref().and_then(|job| index_of(&*jobs, job.job, batch.first)),
                row: batch,
            });
            (row, job, batch)
        });
        read.await.unwrap_or((kept, None, None))
    }

    /// Hands a message to its target once.
    pub(super) async fn deliver(
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
    pub(super) async fn record(&self, change: NotificationChange) -> bool {
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

/// The position of a job in its batch, from 0. One that repeats a member of another batch has the position of that one.
fn index_of(jobs: &dyn Archive, job: JobId, first: JobId) -> Option<u64> {
    let given = jobs.given_params(&[job]).ok().and_then(|given| given.first()?.index);
    given.or(job.0.checked_sub(first.0))
}

impl Try {
    fn begin(row: NotificationRow, entry: Arc<Entry>, target: Target) -> Self {
        let wait = wait_after(row.tries, rand::random());
        Self { row, entry, target, at: clock::now().utc, wait }
    }

    /// When the message is sent again if no result of this try is ever recorded. It may have arrived or not, so that is soon.
    fn due_if_broken_off(&self) -> Timestamp {
        Timestamp(self.at.0 + self.wait.min(BROKEN_OFF_MS_MAX))
    }
}

/// Milliseconds until the next try after this many: doubled each time, and between half of that and all of it, so that messages to a
/// target that was away do not come at once.
fn wait_after(tries: u32, random: u32) -> i64 {
    let doubled = RETRY_FIRST.saturating_mul(2_u32.saturating_pow(tries.min(16)));
    let full = i64::try_from(doubled.min(RETRY_MAX).as_millis()).unwrap_or(i64::MAX);
    full / 2 + full / 2 * i64::from(random >> 16) / i64::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_an_hour_and_vary_by_half() {
        assert_eq!((wait_after(0, 0), wait_after(0, u32::MAX)), (2_500, 5_000));
        assert_eq!((wait_after(3, 0), wait_after(3, u32::MAX)), (20_000, 40_000));
        assert_eq!(wait_after(200, u32::MAX), 3_600_000);
    }

    #[test]
    fn a_receiver_that_is_busy_is_told_from_one_that_refuses_a_message() {
        let cause = |status, retry_after: Option<u64>| {
            let retry_after = retry_after.map(Duration::from_secs);
            SendError::Post(PostError::Status { status, retry_after }).cause()
        };
        assert_eq!(cause(StatusCode::BAD_REQUEST, None), FailureCause::Message);
        assert_eq!(cause(StatusCode::INTERNAL_SERVER_ERROR, None), FailureCause::Message);
        assert_eq!(cause(StatusCode::SERVICE_UNAVAILABLE, None), FailureCause::Receiver(Duration::ZERO));
        let minute = FailureCause::Receiver(Duration::from_secs(60));
        assert_eq!(cause(StatusCode::BAD_REQUEST, Some(60)), minute);
        assert_eq!(cause(StatusCode::TOO_MANY_REQUESTS, Some(90_000)), FailureCause::Receiver(RETRY_MAX));
    }
}
