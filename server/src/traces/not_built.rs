//! The types of this module in a binary that was built without traces: no value of them exists.

use std::sync::Arc;

use protocol::container::Overrides;
use protocol::{ClusterId, Token};

use crate::events::EventFeed;
use crate::metrics::Metrics;
use crate::store::Archive;

/// The traces of a server. There are none.
#[derive(Debug)]
pub enum Traces {}

/// Names the spans of jobs. There are none.
#[derive(Debug)]
pub enum Tracer {}

/// The export under way. There is none.
#[derive(Debug)]
pub enum TraceExport {}

impl Traces {
    /// None. If the variables of this process ask for traces, the log says why.
    #[must_use]
    pub fn of_process(_cluster: ClusterId) -> Option<Self> {
        if let Some((name, _)) = super::endpoint(super::variable) {
            tracing::warn!(
                "{name} is set, but this binary was built without traces (cargo feature otel): no spans are exported"
            );
        }
        None
    }

    /// Names the spans of attempts.
    #[must_use]
    pub fn tracer(&self) -> Arc<Tracer> {
        match *self {}
    }

    /// Starts the export.
    #[must_use]
    pub fn export(
        self,
        _feed: EventFeed,
        _archive: Arc<dyn Archive>,
        _metrics: Arc<Metrics>,
        _public_url: Option<String>,
    ) -> (EventFeed, TraceExport) {
        match self {}
    }
}

impl Tracer {
    /// Makes an attempt the parent of its program's spans.
    #[must_use]
    pub fn hand_over(&self, _token: Token, _overrides: Option<Overrides>) -> Option<Overrides> {
        match *self {}
    }
}

impl TraceExport {
    /// Waits for the last spans.
    pub async fn finish(self) {
        match self {}
    }
}
