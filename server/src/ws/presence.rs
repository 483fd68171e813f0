//! What the server's log tells of one worker's session: that it has joined, and how it left. Whoever never joined has been refused,
//! which is told where that is said.

use std::sync::Arc;

use protocol::close::{self, Close};
use protocol::{Order, WorkerId};

/// A worker on its session.
#[derive(Debug)]
pub(super) struct Presence {
    name: Arc<str>,
    session: u64,
    joined: Option<WorkerId>,
    is_draining: bool,
}

impl Presence {
    /// Of a worker that has said Hello, and nothing was answered yet.
    pub(super) const fn new(name: Arc<str>, session: u64) -> Self {
        Self { name, session, joined: None, is_draining: false }
    }

    /// Whether it was let in.
    pub(super) const fn has_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// Notes what it is told; the log hears of what is news.
    pub(super) fn note(&mut self, order: &Order) {
        match order {
            Order::Welcome(welcome) => {
                self.joined = Some(welcome.worker);
                let Self { name, session, .. } = self;
                tracing::info!(worker = %welcome.worker, %name, session, "a worker has joined");
            }
            Order::Configure(configure) => self.is_draining = configure.drain,
            _ => {}
        }
    }

    /// Tells that it is refused. Some refusals heal: the process that it is taken for ends, or its lease does.
    pub(super) fn refused(&self, code: &str, text: &str) {
        let Self { name, session, .. } = self;
        match (self.has_joined(), code) {
            // Whoever is shut out after it was let in is news; whoever tries again has been told.
            (true, _) => tracing::error!(%name, session, code, "a worker is shut out: {text}"),
            (false, "cloned_worker" | "name_taken") => {
                tracing::info!(%name, session, code, "a worker is refused: {text}")
            }
            (false, _) => {
                tracing::warn!(%name, session, code, "a worker is refused, until somebody does something: {text}");
            }
        }
    }

    /// Tells that its session is over.
    pub(super) fn ended(&self, close: Option<&Close>) {
        let Some(worker) = self.joined else { return };
        let Self { name, session, .. } = self;
        match farewell(close, self.is_draining) {
            (true, told) => tracing::info!(%worker, %name, session, "{told}"),
            (false, told) => tracing::warn!(%worker, %name, session, "{told}"),
        }
    }
}

/// Whether all is well, and what is told.
fn farewell(close: Option<&Close>, is_draining: bool) -> (bool, String) {
    match close {
        None => (false, "a worker has gone: the connection broke".to_owned()),
        Some(close) if close.code == close::NORMAL.code && is_draining => {
            (true, "a worker is drained, and has left".to_owned())
        }
        Some(close) if close.code == close::NORMAL.code => (true, "a worker has left".to_owned()),
        Some(close) if close.code == close::GOING_AWAY.code => {
            (true, "a worker is sent away: this server leaves".to_owned())
        }
        Some(close) if close.code == close::SUPERSEDED.code => {
            (true, "a worker has connected anew; this session is over".to_owned())
        }
        Some(close) if close.code == close::SILENT.code => {
            (false, "a worker is unreachable: nothing was heard from it for too long".to_owned())
        }
        Some(close) => (false, format!("a worker's session was closed: {}", close.reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_worker_left_is_told_and_whether_that_is_well() {
        let told = |close: Option<Close>, is_draining| farewell(close.as_ref(), is_draining);
        let left = |told: &str| (true, told.to_owned());
        assert_eq!(told(Some(close::NORMAL.plain()), false), left("a worker has left"));
        assert_eq!(told(Some(close::NORMAL.plain()), true), left("a worker is drained, and has left"));
        let (is_well, why) = told(None, true);
        assert!(!is_well && why.contains("the connection broke"), "{why}");
        let (is_well, why) = told(Some(close::SILENT.plain()), false);
        assert!(!is_well && why.contains("unreachable"), "{why}");
        let (is_well, why) = told(Some(close::MALFORMED.because("an empty name")), false);
        assert!(!is_well && why.contains("malformed") && why.contains("an empty name"), "{why}");
    }
}
