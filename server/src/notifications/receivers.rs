//! The memory of the delivery about its receivers between two tries: which of them are left alone for a while, and which messages they refuse
//! although they take others.
//!
//! Nothing of it is stored. A server that has just started makes a try too many, and loses no message.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::target_key::{TargetKey, TargetKind};
use crate::store::{NotificationId, NotificationRow};

/// All receivers.
#[derive(Debug, Default)]
pub struct Receivers(Mutex<HashMap<Receiver, ReceiverState>>);

/// The place that takes messages. Mails to all mailboxes go to the same mail server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Receiver {
    Url(TargetKey),
    MailServer,
}

#[derive(Debug, Default)]
struct ReceiverState {
    /// Failed tries since it last took a message.
    failures: u32,
    /// It gets no message before this time.
    left_alone_until: Option<Instant>,
    /// When it last took a message.
    taken_at: Option<Instant>,
    /// Messages that it refused shortly after it had taken another one.
    refused: BTreeSet<NotificationId>,
}

/// The cause of a failed try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureCause {
    /// The receiver is away or too busy, and asked to be left alone for this long.
    Receiver(Duration),
    /// The message may be one that it never takes; or it takes none now.
    Message,
}

impl Receivers {
    /// The time for which the receiver of this target is left alone; none if it may get a message now.
    pub(super) fn wait(&self, kind: TargetKind, target: &TargetKey, now: Instant) -> Option<Duration> {
        let until = self.lock().get(&receiver(kind, target))?.left_alone_until?;
        Some(until.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// A try has failed. The receiver is left alone for a while, so that what waits for it does not come in one burst.
    pub(super) fn record_failure(&self, row: &NotificationRow, cause: FailureCause, now: Instant) {
        let mut all = self.lock();
        let receiver = receiver(row.kind, &row.target);
        let is_about_mailbox = receiver == Receiver::MailServer && cause == FailureCause::Message;
        let state = state_of(&mut all, receiver);
        let takes_others = state.taken_at.is_some_and(|at| now.duration_since(at) < TAKES_OTHERS_WITHIN);
        if cause == FailureCause::Message && takes_others && state.refused.len() < REFUSED_MAX {
            state.refused.insert(row.id);
        } else {
            state.refused.remove(&row.id);
        }
        // A mailbox that takes nothing delays no mail to others.
        if is_about_mailbox {
            return;
        }
        let asked = match cause {
            FailureCause::Receiver(wait) => wait,
            FailureCause::Message => Duration::ZERO,
        };
        let pause = PAUSE_FIRST.saturating_mul(2_u32.saturating_pow(state.failures)).min(PAUSE_MAX);
        state.failures = state.failures.saturating_add(1);
        state.left_alone_until = state.left_alone_until.max(Some(now + pause.max(asked)));
    }

    /// A message was taken. Returns the messages that the receiver refused while it took others: their own waits go on.
    pub(super) fn record_taken(&self, row: &NotificationRow, now: Instant) -> Vec<NotificationId> {
        let mut all = self.lock();
        let state = state_of(&mut all, receiver(row.kind, &row.target));
        state.refused.remove(&row.id);
        (state.failures, state.left_alone_until, state.taken_at) = (0, None, Some(now));
        state.refused.iter().copied().collect()
    }

    /// A message is given up.
    pub(super) fn forget_message(&self, row: &NotificationRow) {
        if let Some(state) = self.lock().get_mut(&receiver(row.kind, &row.target)) {
            state.refused.remove(&row.id);
        }
    }

    /// The receiver of this target is not left alone any more: somebody wants to see its messages sent.
    pub(super) fn end_wait(&self, kind: TargetKind, target: &TargetKey) {
        if let Some(state) = self.lock().get_mut(&receiver(kind, target)) {
            (state.failures, state.left_alone_until) = (0, None);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Receiver, ReceiverState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of a receiver; a new one if it is not known.
fn state_of(all: &mut HashMap<Receiver, ReceiverState>, receiver: Receiver) -> &mut ReceiverState {
    if all.len() >= RECEIVERS_MAX && !all.contains_key(&receiver) {
        all.clear();
    }
    all.entry(receiver).or_default()
}

fn receiver(kind: TargetKind, target: &TargetKey) -> Receiver {
    match kind {
        TargetKind::Email => Receiver::MailServer,
        TargetKind::Webhook | TargetKind::Slack => Receiver::Url(target.clone()),
    }
}

/// The pause of a receiver after a failed try; it doubles with each further one. It is at most the shortest wait of the message itself.
const PAUSE_FIRST: Duration = Duration::from_millis(2_500);
/// Messages of other definitions wait for a receiver at most this long after the last try.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A message that is refused within this time after another one was taken has itself to blame.
const TAKES_OTHERS_WITHIN: Duration = Duration::from_secs(60);
/// Messages that are remembered as refused. More of them are sent again with each message that is taken.
const REFUSED_MAX: usize = 1_000;
/// Receivers that are remembered, also those that jobs.yaml has no more. Then all are forgotten.
const RECEIVERS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notifications::mail::Recipient;
    use crate::notifications::occasion::Occasions;
    use crate::notifications::target::{Endpoint, Target};
    use protocol::Timestamp;

    const AWAY: FailureCause = FailureCause::Receiver(Duration::ZERO);

    fn row(endpoint: Endpoint, id: u64) -> NotificationRow {
        let target =
            Target { endpoint, on: Occasions::standard(), period: Duration::ZERO, output_lines: None };
        NotificationRow { id: NotificationId(id), ..target.test_row("report", Timestamp(0)) }
    }

    fn hook(path: &str, id: u64) -> NotificationRow {
        let url = format!("https://hooks.example/{path}").parse().unwrap();
        row(Endpoint::Webhook { url, secrets: Vec::new() }, id)
    }

    fn mail(address: &str, id: u64) -> NotificationRow {
        row(Endpoint::Email(Recipient::parse(address).unwrap()), id)
    }

    /// Seconds for which the receiver of this row is left alone.
    fn wait(receivers: &Receivers, row: &NotificationRow, now: Instant) -> Option<f64> {
        receivers.wait(row.kind, &row.target, now).map(|wait| wait.as_secs_f64())
    }

    #[test]
    fn a_receiver_that_fails_is_left_alone_for_longer_each_time_up_to_a_minute() {
        let (receivers, now) = (Receivers::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..7 {
            receivers.record_failure(&hook("a", 1), AWAY, now);
            waits.push(wait(&receivers, &hook("a", 2), now).unwrap());
        }
        assert_eq!(waits, [2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 60.0]);
        assert_eq!(wait(&receivers, &hook("b", 3), now), None, "another URL is another receiver");
        assert_eq!(wait(&receivers, &hook("a", 2), now + PAUSE_MAX), None);
        receivers.record_taken(&hook("a", 2), now);
        assert_eq!(wait(&receivers, &hook("a", 1), now), None);
    }

    #[test]
    fn a_receiver_is_left_alone_for_as_long_as_it_asked_for() {
        let (receivers, now) = (Receivers::default(), Instant::now());
        receivers.record_failure(&hook("a", 1), FailureCause::Receiver(Duration::from_secs(900)), now);
        receivers.record_failure(&hook("a", 2), AWAY, now);
        assert_eq!(wait(&receivers, &hook("a", 3), now), Some(900.0));
        let row = hook("a", 3);
        receivers.end_wait(row.kind, &row.target);
        assert_eq!(wait(&receivers, &hook("a", 3), now), None);
    }

    #[test]
    fn a_message_that_is_refused_while_others_are_taken_keeps_its_own_wait() {
        let (receivers, began) = (Receivers::default(), Instant::now());
        receivers.record_failure(&hook("a", 1), FailureCause::Message, began);
        assert_eq!(receivers.record_taken(&hook("a", 2), began), [], "the receiver took nothing before");
        receivers.record_failure(&hook("a", 1), FailureCause::Message, began);
        receivers.record_failure(&hook("a", 3), AWAY, began);
        assert_eq!(receivers.record_taken(&hook("a", 4), began), [NotificationId(1)]);
        let later = began + TAKES_OTHERS_WITHIN;
        receivers.record_failure(&hook("a", 1), FailureCause::Message, later);
        assert_eq!(receivers.record_taken(&hook("a", 5), later), [], "the receiver may have been away since");
        receivers.record_failure(&hook("a", 1), FailureCause::Message, later);
        receivers.forget_message(&hook("a", 1));
        assert_eq!(receivers.record_taken(&hook("a", 6), later), []);
    }

    #[test]
    fn a_mail_server_that_is_away_is_one_receiver_and_a_full_mailbox_delays_no_other() {
        let (receivers, now) = (Receivers::default(), Instant::now());
        receivers.record_failure(&mail("ops@example.org", 1), FailureCause::Message, now);
        assert_eq!(wait(&receivers, &mail("dev@example.org", 2), now), None);
        receivers.record_failure(&mail("ops@example.org", 1), AWAY, now);
        assert_eq!(wait(&receivers, &mail("dev@example.org", 2), now), Some(2.5));
        receivers.record_taken(&mail("dev@example.org", 2), now);
        receivers.record_failure(&mail("ops@example.org", 1), FailureCause::Message, now);
        assert_eq!(receivers.record_taken(&mail("dev@example.org", 3), now), [NotificationId(1)]);
    }
}
