//! The connection with the server: an address, a dial, a session, and the `Link` that holds all of it for the engine.

mod address;
mod connect;
mod session;
mod token;

use std::time::Duration;

use protocol::{Order, Report};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

pub use address::{Address, AddressError};
pub use connect::{ConnectError, Dialer};
pub use token::TokenError;

use crate::logs::Logs;

/// One attempt to be connected, from before the dial until the socket is gone. Dropping it closes the socket.
pub(crate) struct Link {
    events: mpsc::Receiver<LinkEvent>,
    reports: mpsc::UnboundedSender<Report>,
    task: AbortOnDropHandle<()>,
}

/// What happens on a link: Connected once or never, then Orders, then Lost.
pub(crate) enum LinkEvent {
    /// The socket is open.
    Connected,
    /// The server has told us something.
    Ordered(Order),
    /// The socket is gone, or could not be opened; why.
    Lost(String),
}

impl Link {
    /// Dials after a while.
    pub(crate) fn open(dialer: Dialer, after: Duration, logs: Logs) -> Self {
        let (tell, events) = mpsc::channel(ORDERS_WAITING_MAX);
        let (reports, said) = mpsc::unbounded_channel();
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let why = match dialer.dial().await {
                Ok(socket) => session::run(socket, &tell, said, logs).await,
                Err(error) => chain(&error),
            };
            // Nobody listens any more: the engine has given this link up.
            let _ = tell.send(LinkEvent::Lost(why)).await;
        }));
        Self { events, reports, task }
    }

    /// The next event; `None` after Lost.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn next(&mut self) -> Option<LinkEvent> {
        self.events.recv().await
    }

    /// The next event that is already here.
    pub(crate) fn try_next(&mut self) -> Option<LinkEvent> {
        self.events.try_recv().ok()
    }

    /// Says something. What is said to a lost connection is lost: the brain keeps what matters.
    pub(crate) fn say(&self, report: Report) {
        let _ = self.reports.send(report);
    }

    /// Lets what was said go out, then closes the socket; waits for that as long as `patience`. What the server says meanwhile is
    /// not heard any more.
    pub(crate) async fn close(self, patience: Duration) {
        let Self { mut events, reports, task } = self;
        drop(reports);
        let gone = async { while events.recv().await.is_some() {} };
        let _ = tokio::time::timeout(patience, gone).await;
        drop(task);
    }
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Frames read ahead of the engine. Behind them the socket is not read further, and the server feels it.
const ORDERS_WAITING_MAX: usize = 64;
