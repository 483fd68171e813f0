//! The connection with the server, from the dial to the end of the session.

mod address;
mod answer;
mod connect;
mod event;
mod session;
mod tcp;
mod token;

use std::time::Duration;

use protocol::Report;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

pub use address::{Address, AddressError};
pub(crate) use answer::code_of_problem;
pub use answer::sentence_of_answer;
pub use connect::{ConnectError, Connector};
pub(crate) use event::ConnectionEvent;
pub use token::{TokenError, read as read_token_file};

use crate::error_chain::error_chain;
use crate::logs::Logs;

/// One connection, from before the dial until the socket is closed. Dropping it closes the socket.
pub(crate) struct Connection {
    events: mpsc::Receiver<ConnectionEvent>,
    reports: mpsc::UnboundedSender<Report>,
    task: AbortOnDropHandle<()>,
}

impl Connection {
    /// Connects after a delay.
    pub(crate) fn open(connector: Connector, after: Duration, logs: Logs) -> Self {
        let (events_tx, events) = mpsc::channel(ORDERS_WAITING_MAX);
        let (reports, reports_rx) = mpsc::unbounded_channel();
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let (why, message_refused) = match connector.dial().await {
                Ok(socket) => session::run(socket, &events_tx, reports_rx, logs).await,
                Err(error) => (error_chain(&error), false),
            };
            // The worker's loop has dropped this connection.
            let _ = events_tx.send(ConnectionEvent::Lost { why, message_refused }).await;
        }));
        Self { events, reports, task }
    }

    /// The next event; `None` after Lost.
    ///
    /// # Cancel safety
    /// No event is lost.
    pub(crate) async fn next(&mut self) -> Option<ConnectionEvent> {
        self.events.recv().await
    }

    /// The next event that is already here.
    pub(crate) fn try_next(&mut self) -> Option<ConnectionEvent> {
        self.events.try_recv().ok()
    }

    /// Sends a report. A report on a lost connection is dropped; the state machine keeps and repeats reports that matter.
    pub(crate) fn send(&self, report: Report) {
        let _ = self.reports.send(report);
    }

    /// Sends all queued reports, then closes the socket, within `timeout_after`. Frames of the server are ignored meanwhile.
    pub(crate) async fn close(self, timeout_after: Duration) {
        let Self { mut events, reports, task } = self;
        drop(reports);
        let gone = async { while events.recv().await.is_some() {} };
        let _ = tokio::time::timeout(timeout_after, gone).await;
        drop(task);
    }
}

/// Frames read ahead of the worker's loop. If they pile up, the socket is not read further, and the server notices.
const ORDERS_WAITING_MAX: usize = 64;
