//! Finds attempts that a worker reports on and never had, before its report is judged: it may not leave notes in the history of other jobs.

use futures_util::Stream;
use protocol::{Report, Token};
use tokio_tungstenite::tungstenite::{Error as WireError, Message};

use super::reader::{Ended, Reader};
use crate::engine::FromSession;

impl<S: Stream<Item = Result<Message, WireError>> + Unpin> Reader<S> {
    /// Passes on which attempts of a report were never assigned to its worker, and the earlier reports before that.
    pub(super) async fn announce_unassigned(
        &mut self,
        report: &Report,
        reports: &mut Vec<Report>,
    ) -> Result<(), Ended> {
        let named = tokens_of(report);
        if named.is_empty() {
            return Ok(());
        }
        let unassigned = self.keep_heard(self.grants.unassigned(named)).await;
        let unassigned = unassigned.map_err(|error| self.close_unreadable(&error))?;
        let Some(first) = unassigned.first().copied() else { return Ok(()) };
        // One line a session, because such a worker may repeat it often.
        if !std::mem::replace(&mut self.unassigned_logged, true) {
            tracing::warn!(
                session = self.session.0,
                worker = %self.name,
                token = %first,
                "report ignored: the attempt was never assigned to this worker"
            );
        }
        let message = FromSession::AttemptsNotOwned(self.session, unassigned);
        let handed_over = self.pass_reports(std::mem::take(reports)).await
            && self.keep_heard(self.inbox.send(message)).await.is_ok();
        if handed_over { Ok(()) } else { Err(None) }
    }
}

/// The attempts about which a report may come too late.
fn tokens_of(report: &Report) -> Vec<Token> {
    match report {
        Report::Running(started) => started.list.iter().map(|it| it.token).collect(),
        Report::Success(ended) => ended.list.iter().map(|it| it.token).collect(),
        Report::Failure(ended) => ended.list.iter().map(|it| it.token).collect(),
        Report::Released(released) => released.list.iter().map(|it| it.token).collect(),
        _ => Vec::new(),
    }
}
