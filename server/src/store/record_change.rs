//! A change of rows that are no part of the scheduler's state.

use protocol::{Timestamp, WorkerId};

use super::{AccessChange, AcknowledgementChange, DefinitionChange, NotificationChange};

/// A change of rows that are no part of the scheduler's state.
#[derive(Clone, Debug)]
pub enum RecordChange {
    /// Tokens and the audit log.
    Access(AccessChange),
    /// Notifications, by their delivery.
    Notification(NotificationChange),
    /// The history of the definitions.
    Definitions(DefinitionChange),
    /// Acknowledgements of failures.
    Acknowledgement(AcknowledgementChange),
    /// The connections of these workers ended then without their leaving.
    WorkersLost(Vec<(WorkerId, Timestamp)>),
}
