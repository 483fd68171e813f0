//! Requests of people to send a message now. They wait here for the delivery, which alone sends messages: one to a target at a time.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use super::target_key::TargetKey;
use crate::store::{NotificationId, NotificationRow, ReadError};

/// The requests that wait for their try.
#[derive(Debug, Default)]
pub struct SendRequests {
    queue: Mutex<Queue>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<SendRequest>,
    /// The delivery has ended.
    is_closed: bool,
}

/// A request to send a message now.
#[derive(Debug)]
pub(super) struct SendRequest {
    /// The message as it was when it was asked for.
    pub(super) row: NotificationRow,
    /// Gets the message as it is after the try.
    pub(super) reply: oneshot::Sender<Result<NotificationRow, SendRefusal>>,
}

/// The reason for which a message is not sent on request.
#[derive(Debug, thiserror::Error)]
pub enum SendRefusal {
    /// There is no such message.
    #[error("there is no notification {}", .0.0)]
    Unknown(NotificationId),
    /// The target has taken it.
    #[error("notification {} was delivered", .0.0)]
    Delivered(NotificationId),
    /// jobs.yaml names its target no more.
    #[error("the definition {:?} has no target {} {} any more", .0.definition, .0.kind.name(), .0.host)]
    NoTarget(Box<NotificationRow>),
    /// Too many requests wait.
    #[error("too many messages are being sent on request")]
    TooMany,
    /// The server leaves.
    #[error("the server is shutting down")]
    Leaving,
    /// The message cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// The try, or its result, cannot be recorded.
    #[error("the try cannot be recorded")]
    NotRecorded,
}

impl SendRequests {
    /// Waits for the try of a message, and returns the message as it is then.
    ///
    /// # Errors
    /// See [`SendRefusal`].
    ///
    /// # Cancel safety
    /// The message is sent also if the future is dropped.
    pub(super) async fn send(&self, row: NotificationRow) -> Result<NotificationRow, SendRefusal> {
        let (reply, answer) = oneshot::channel();
        {
            let mut queue = self.lock();
            if queue.is_closed {
                return Err(SendRefusal::Leaving);
            }
            if queue.requests.len() >= REQUESTS_MAX {
                return Err(SendRefusal::TooMany);
            }
            queue.requests.push_back(SendRequest { row, reply });
        }
        self.added.notify_one();
        answer.await.unwrap_or(Err(SendRefusal::Leaving))
    }

    /// Waits until a request was added.
    ///
    /// # Cancel safety
    /// Dropping the future loses no request: they stay in the queue.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    /// Takes the first request whose target is free.
    pub(super) fn take(&self, is_free: impl Fn(&TargetKey) -> bool) -> Option<SendRequest> {
        let mut queue = self.lock();
        let at = queue.requests.iter().position(|request| is_free(&request.row.target))?;
        queue.requests.remove(at)
    }

    /// Answers all requests that wait, and refuses later ones.
    pub(super) fn close(&self) {
        let mut queue = self.lock();
        queue.is_closed = true;
        // Without a sender the answer is that the server leaves.
        queue.requests.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests that wait. Each is one of a person.
const REQUESTS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use protocol::Timestamp;

    use super::*;
    use crate::notifications::occasion::Occasions;
    use crate::notifications::target::{Endpoint, Target};

    fn row(path: &str) -> NotificationRow {
        let url = format!("https://hooks.example/{path}").parse().unwrap();
        let endpoint = Endpoint::Webhook { url, secrets: Vec::new() };
        let target =
            Target { endpoint, on: Occasions::standard(), period: Duration::ZERO, output_lines: None };
        target.test_row("report", Timestamp(0))
    }

    /// Asks for a message of this target, and returns the answer to come once the request waits.
    async fn ask(
        requests: &Arc<SendRequests>,
        path: &str,
    ) -> tokio::task::JoinHandle<Result<NotificationRow, SendRefusal>> {
        let (requests, row, asked) = (Arc::clone(requests), row(path), Arc::clone(requests));
        let answer = tokio::spawn(async move { requests.send(row).await });
        asked.added().await;
        answer
    }

    #[tokio::test]
    async fn a_request_waits_until_its_target_is_free_and_others_go_first() {
        let requests = Arc::new(SendRequests::default());
        let (first, second) = (ask(&requests, "busy").await, ask(&requests, "free").await);
        let busy = row("busy").target;
        let taken = requests.take(|target| *target != busy).unwrap();
        assert_eq!(taken.row.target, row("free").target);
        assert!(requests.take(|target| *target != busy).is_none());
        taken.reply.send(Ok(taken.row)).unwrap();
        assert_eq!(second.await.unwrap().unwrap().target, row("free").target);
        drop(requests.take(|_| true).unwrap());
        assert!(matches!(first.await.unwrap(), Err(SendRefusal::Leaving)), "its try was broken off");
    }

    #[tokio::test]
    async fn a_server_that_leaves_answers_all_requests() {
        let requests = Arc::new(SendRequests::default());
        let waiting = ask(&requests, "a").await;
        requests.close();
        assert!(matches!(waiting.await.unwrap(), Err(SendRefusal::Leaving)));
        assert!(matches!(requests.send(row("a")).await, Err(SendRefusal::Leaving)));
    }

    #[tokio::test]
    async fn requests_are_bounded() {
        let requests = Arc::new(SendRequests::default());
        let mut answers = Vec::new();
        for _ in 0..REQUESTS_MAX {
            answers.push(ask(&requests, "a").await);
        }
        assert!(matches!(requests.send(row("a")).await, Err(SendRefusal::TooMany)));
        requests.close();
        for answer in answers {
            assert!(answer.await.unwrap().is_err());
        }
    }
}
