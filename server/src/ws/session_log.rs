//! Log lines about a worker's session: joined, refused, ended.

use std::sync::Arc;

use protocol::close::{self, Close};
use protocol::{Order, WorkerId};

/// A worker on its session.
#[derive(Debug)]
pub(super) struct SessionLog {
    name: Arc<str>,
    session: u64,
    joined: Option<WorkerId>,
    is_draining: bool,
}

impl SessionLog {
    /// A worker that has sent Hello and has no answer yet.
    pub(super) const fn new(name: Arc<str>, session: u64) -> Self {
        Self { name, session, joined: None, is_draining: false }
    }

    /// The worker's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// True after Welcome.
    pub(super) const fn has_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// Observes an order; logs changes.
    pub(super) fn note(&mut self, order: &Order) {
        match order {
            Order::Welcome(welcome) => {
                self.joined = Some(welcome.worker);
                let Self { name, session, .. } = self;
                tracing::info!(worker = %welcome.worker, %name, session, "worker joined");
            }
            Order::Configure(configure) => self.is_draining = configure.drain,
            _ => {}
        }
    }

    /// Logs a refusal. Some refusals heal by themselves when another process or a lease ends.
    pub(super) fn refused(&self, code: &str, text: &str) {
        let Self { name, session, .. } = self;
        match (self.has_joined(), code) {
            (true, "worker_revoked") => {
                tracing::warn!(%name, session, "worker revoked by an operator; its session ends");
            }
            // A refusal after a Welcome is news; a repeated try was logged before.
            (true, _) => {
                tracing::error!(%name, session, code, text, "worker session refused after it had joined")
            }
            (false, "cloned_worker" | "name_taken") => {
                tracing::info!(%name, session, code, text, "worker refused; it keeps trying")
            }
            (false, _) => {
                tracing::warn!(%name, session, code, text, "worker refused until an operator acts");
            }
        }
    }

    /// Logs the end of the session. Returns the worker if it had joined and did not leave.
    pub(super) fn ended(&self, close: Option<&Close>) -> Option<WorkerId> {
        let worker = self.joined?;
        let Self { name, session, .. } = self;
        let (is_well, told) = describe_close(close, self.is_draining);
        if is_well {
            tracing::info!(%worker, %name, session, "{told}");
        } else {
            tracing::warn!(%worker, %name, session, "{told}");
        }
        (!is_well).then_some(worker)
    }
}

/// Returns true for a normal end, and the text for the log.
fn describe_close(close: Option<&Close>, is_draining: bool) -> (bool, String) {
    match close {
        None => (false, "worker disconnected: the connection broke".to_owned()),
        Some(close) if close.code == close::NORMAL.code && is_draining => {
            (true, "worker drained and left".to_owned())
        }
        Some(close) if close.code == close::NORMAL.code => (true, "worker left".to_owned()),
        Some(close) if close.code == close::GOING_AWAY.code => {
            (true, "worker sent away: the server shuts down".to_owned())
        }
        Some(close) if close.code == close::SUPERSEDED.code => {
            (true, "worker reconnected: this session is replaced".to_owned())
        }
        Some(close) if close.code == close::SILENT.code => {
            (false, "worker disconnected: no message for too long".to_owned())
        }
        Some(close) => (false, format!("a worker's session was closed: {}", close.reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_close_reason_has_a_log_text_and_level() {
        let told = |close: Option<Close>, is_draining| describe_close(close.as_ref(), is_draining);
        let left = |told: &str| (true, told.to_owned());
        assert_eq!(told(Some(close::NORMAL.plain()), false), left("worker left"));
        assert_eq!(told(Some(close::NORMAL.plain()), true), left("worker drained and left"));
        let (is_well, why) = told(None, true);
        assert!(!is_well && why.contains("the connection broke"), "{why}");
        let (is_well, why) = told(Some(close::SILENT.plain()), false);
        assert!(!is_well && why.contains("no message for too long"), "{why}");
        let (is_well, why) = told(Some(close::MALFORMED.with_reason("an empty name")), false);
        assert!(!is_well && why.contains("malformed") && why.contains("an empty name"), "{why}");
    }
}
