//! A store without tokens, audit log and notifications.

use std::sync::Arc;

use longshore_server::auth::records::AccessRecords;
use longshore_server::catalogue::Catalogue;
use longshore_server::engine::RecordWriter;
use longshore_server::logs::Logs;
use longshore_server::metrics::Metrics;
use longshore_server::notifications::addresses::AllowedNetworks;
use longshore_server::notifications::client::WebClient;
use longshore_server::notifications::delivery::Delivery;
use longshore_server::notifications::receivers::Receivers;
use longshore_server::notifications::requests::SendRequests;
use longshore_server::store::{
    AccessArchive, Archive, AuditFilter, AuditRow, NotificationArchive, NotificationFilter, NotificationId,
    NotificationRow, ReadError, TokenRow, UnsentGroup,
};
use protocol::{Timestamp, WorkerId};

struct Empty;

impl AccessArchive for Empty {
    fn lost_workers(&self) -> Result<Vec<(WorkerId, Timestamp)>, ReadError> {
        Ok(Vec::new())
    }

    fn tokens(&self) -> Result<Vec<TokenRow>, ReadError> {
        Ok(Vec::new())
    }

    fn audit(&self, _: &AuditFilter) -> Result<Vec<AuditRow>, ReadError> {
        Ok(Vec::new())
    }
}

/// No tokens; changes are refused.
pub(crate) fn no_records() -> AccessRecords {
    AccessRecords::load(std::sync::Arc::new(Empty), RecordWriter::closed()).unwrap()
}

impl NotificationArchive for Empty {
    fn due_notifications(&self, _: Timestamp) -> Result<Vec<NotificationRow>, ReadError> {
        Ok(Vec::new())
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

/// No notifications; those for a test go to public addresses only.
pub(crate) fn no_notifications(
    jobs: Arc<dyn Archive>,
    logs: Arc<Logs>,
    catalogue: Arc<Catalogue>,
    metrics: Arc<Metrics>,
) -> Delivery {
    Delivery {
        archive: Arc::new(Empty),
        jobs,
        logs,
        catalogue,
        writer: RecordWriter::closed(),
        client: WebClient::new(AllowedNetworks::default()).unwrap(),
        mail: None,
        public_url: None,
        metrics,
        requests: SendRequests::default(),
        receivers: Receivers::default(),
    }
}
