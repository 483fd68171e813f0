//! The progress of a pull, reported to all attempts that wait for it, at most once a second to each.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use protocol::report::Phase;
use tokio::sync::watch;

/// The progress of one image's pull.
#[derive(Default)]
pub(super) struct PullProgress {
    now: watch::Sender<PullState>,
}

/// Percentage and number of failed tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PullState {
    percent: Option<u8>,
    failures: u32,
}

impl PullProgress {
    /// A pull begins.
    pub(super) fn begin(&self) {
        self.set(|_| PullState::default());
    }

    /// Sets the percentage.
    pub(super) fn reach(&self, percent: u8) {
        self.set(|it| PullState { percent: Some(percent), ..it });
    }

    /// `true` if the registry has sent something in the try that is under way.
    pub(super) fn has_begun(&self) -> bool {
        self.now.borrow().percent.is_some()
    }

    /// A try has failed and will be repeated.
    pub(super) fn fail(&self) {
        self.set(|it| PullState { percent: None, failures: it.failures.saturating_add(1) });
    }

    /// Reports the state at once and then each change, until `waiting` is done.
    ///
    /// # Cancel safety
    /// Same as `waiting`.
    pub(super) async fn report_while<T>(&self, tell: impl Fn(Phase), waiting: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            never = self.tell(tell) => match never {},
            done = waiting => done,
        }
    }

    async fn tell(&self, tell: impl Fn(Phase)) -> Infallible {
        let mut now = self.now.subscribe();
        loop {
            let PullState { percent, failures } = *now.borrow_and_update();
            tell(Phase::Pulling { percent, failures });
            tokio::time::sleep(TELL_EVERY).await;
            if now.changed().await.is_err() {
                // The sender lives as long as `self`; without it there would be nothing to report.
                return pending().await;
            }
        }
    }

    fn set(&self, change: impl FnOnce(PullState) -> PullState) {
        self.now.send_if_modified(|it| {
            let before = std::mem::replace(it, change(*it));
            before != *it
        });
    }
}

/// Each report is a frame, and a new snapshot on the server.
const TELL_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn frequent_progress_is_reported_once_a_second() {
        let (progress, told, begun) = (PullProgress::default(), RefCell::new(Vec::new()), Instant::now());
        let tell = |phase| told.borrow_mut().push((begun.elapsed().as_millis(), phase));
        let pulls = async {
            for percent in 1..=30 {
                sleep(Duration::from_millis(50)).await;
                progress.reach(percent);
            }
            sleep(Duration::from_secs(10)).await;
            progress.fail();
            sleep(Duration::from_secs(10)).await;
            progress.begin();
        };
        progress.report_while(tell, pulls).await;
        let pulling = |percent, failures| Phase::Pulling { percent, failures };
        assert_eq!(
            told.into_inner(),
            [
                (0, pulling(None, 0)),
                (1_000, pulling(Some(19), 0)),
                (2_000, pulling(Some(30), 0)),
                (11_500, pulling(None, 1)),
            ]
        );
    }
}
