//! Rows of notifications: the messages that the server owes to the targets of a definition (`notify`).
//!
//! The transaction that ends a job also writes the messages about it, so that a crash loses none. A row names its target by kind, host and
//! key; its URL and secrets are in jobs.yaml only.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::{JobId, Timestamp};

use super::ReadError;
use crate::notifications::occasion::{Occasion, Occasions};
use crate::notifications::target_key::{TargetKey, TargetKind};

/// The number of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NotificationId(pub u64);

/// The targets of all definitions that have some, as the store needs them.
#[derive(Clone, Debug, Default)]
pub struct NotifyRules(pub HashMap<Arc<str>, Vec<NotifyRule>>);

/// One target of a definition.
#[derive(Clone, Debug)]
pub struct NotifyRule {
    /// The key of the target.
    pub target: TargetKey,
    /// Its kind.
    pub kind: TargetKind,
    /// The host of its URL, or the address of its mailbox, for people.
    pub host: String,
    /// The occasions of which it is told.
    pub on: Occasions,
    /// The shortest time between two messages about one occasion, in milliseconds. More within it become one message with a count.
    pub period_ms: i64,
}

/// The state of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationState {
    /// It will be sent, or sent again.
    Waiting,
    /// The target has taken it.
    Delivered,
    /// It was given up.
    Failed,
}

impl NotificationState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Delivered, Self::Failed];

    /// The name in the store and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }

    /// Finds a state by its name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A message to one target about one definition and occasion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationRow {
    /// Its number. After a restore the numbers since the backup are given again.
    pub id: NotificationId,
    /// The id that its target sees: the same at each try, and never given twice.
    pub message: String,
    /// The definition that it is about.
    pub definition: Arc<str>,
    /// The key of its target.
    pub target: TargetKey,
    /// The kind of its target.
    pub kind: TargetKind,
    /// The host of its target.
    pub host: String,
    /// The occasion.
    pub occasion: Occasion,
    /// How often that happened.
    pub count: u64,
    /// When it happened first.
    pub first_at: Timestamp,
    /// When it happened last.
    pub last_at: Timestamp,
    /// The job of the last time; absent if no job is the reason.
    pub job: Option<JobId>,
    /// The batch that has ended, by its first job; the last one if several were counted.
    pub batch: Option<JobId>,
    /// Its state.
    pub state: NotificationState,
    /// The end of its period of grouping: it is not sent earlier.
    pub opens_at: Timestamp,
    /// When it is sent next, while it waits.
    pub due_at: Timestamp,
    /// How often it was sent.
    pub tries: u32,
    /// When it was sent last.
    pub tried_at: Option<Timestamp>,
    /// From when on a failed try is the last one; set by the first try.
    pub give_up_at: Option<Timestamp>,
    /// The error of the last try.
    pub error: Option<String>,
}

/// A change of notifications by their delivery.
#[derive(Clone, Debug)]
pub enum NotificationChange {
    /// It is about to be sent at this instant. If nothing is heard of that, it is sent again at `due_at`.
    Try {
        /// The notification.
        id: NotificationId,
        /// The time of the try.
        at: Timestamp,
        /// When it is sent again after a crash.
        due_at: Timestamp,
        /// From when on a failed try is the last one, if this is the first.
        give_up_at: Timestamp,
    },
    /// As a try, because somebody asked for it: also of one that was given up, and with as much time for further tries as after a first one.
    RequestedTry {
        /// The notification.
        id: NotificationId,
        /// The time of the try.
        at: Timestamp,
        /// When it is sent again after a crash.
        due_at: Timestamp,
        /// From when on a failed try is the last one.
        give_up_at: Timestamp,
    },
    /// The target has taken it, so its receiver works.
    Delivered(NotificationId, WorkingReceiver),
    /// A receiver has taken a message that is no row: a test.
    ReceiverWorks(WorkingReceiver),
    /// The try has failed; it is sent again then.
    TryFailed(NotificationId, String, Timestamp),
    /// It is given up.
    GivenUp(NotificationId, String),
    /// The messages of these groups are due from this instant on, with as much time for tries as new ones.
    MakeDue(Vec<UnsentGroup>, Timestamp),
}

/// A receiver that has taken a message: other messages to it that failed before are due at once. Mails to all mailboxes have the same
/// receiver, the mail server.
#[derive(Clone, Debug)]
pub struct WorkingReceiver {
    /// The kind of the target that has taken the message.
    pub kind: TargetKind,
    /// Its key.
    pub target: TargetKey,
    /// When it was taken.
    pub at: Timestamp,
    /// Messages that stay as they are: it refused them while it took others.
    pub except: Vec<NotificationId>,
}

/// The messages about one definition that one target has not taken, in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsentGroup {
    /// The definition.
    pub definition: Arc<str>,
    /// The key of the target.
    pub target: TargetKey,
    /// Their state: waiting or failed.
    pub state: NotificationState,
    /// How many there are.
    pub count: u64,
}

/// A filter for lists of notifications. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct NotificationFilter {
    /// About this definition.
    pub definition: Option<String>,
    /// In this state.
    pub state: Option<NotificationState>,
    /// With a number below this one (the cursor).
    pub before: Option<u64>,
    /// At most this many.
    pub limit: usize,
}

/// Reads notifications. Calls block on the disk.
pub trait NotificationArchive: Send + Sync {
    /// The earliest due notification of each target.
    ///
    /// # Errors
    /// The store cannot be read.
    fn due_notifications(&self, now: Timestamp) -> Result<Vec<NotificationRow>, ReadError>;

    /// The notification that was last tried of each target whose last try failed, newest try first.
    ///
    /// # Errors
    /// The store cannot be read.
    fn failing_targets(&self) -> Result<Vec<NotificationRow>, ReadError>;

    /// The messages that were not taken, in groups.
    ///
    /// # Errors
    /// The store cannot be read.
    fn unsent_notifications(&self) -> Result<Vec<UnsentGroup>, ReadError>;

    /// One notification, if it is kept.
    ///
    /// # Errors
    /// The store cannot be read.
    fn notification(&self, id: NotificationId) -> Result<Option<NotificationRow>, ReadError>;

    /// A page of notifications, newest first.
    ///
    /// # Errors
    /// The store cannot be read.
    fn notifications(&self, filter: &NotificationFilter) -> Result<Vec<NotificationRow>, ReadError>;
}
