//! How a pull goes: told to all attempts that wait for it, at most once a second to each.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use protocol::report::Phase;
use tokio::sync::watch;

/// How the pull of an image goes.
#[derive(Default)]
pub(super) struct Course {
    now: watch::Sender<Point>,
}

/// Where it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Point {
    percent: Option<u8>,
    failures: u32,
}

impl Course {
    /// A pull begins, and nothing has failed yet.
    pub(super) fn begin(&self) {
        self.set(|_| Point::default());
    }

    /// So much is here, out of 100.
    pub(super) fn reach(&self, percent: u8) {
        self.set(|it| Point { percent: Some(percent), ..it });
    }

    /// It has failed, and will be tried again from the start.
    pub(super) fn fail(&self) {
        self.set(|it| Point { percent: None, failures: it.failures.saturating_add(1) });
    }

    /// Tells where it stands at once, and then what changes, for as long as somebody waits for it so.
    ///
    /// # Cancel safety
    /// As that of `waiting`.
    pub(super) async fn tell_during<T>(&self, tell: impl Fn(Phase), waiting: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            never = self.tell(tell) => match never {},
            done = waiting => done,
        }
    }

    async fn tell(&self, tell: impl Fn(Phase)) -> Infallible {
        let mut now = self.now.subscribe();
        loop {
            let Point { percent, failures } = *now.borrow_and_update();
            tell(Phase::Pulling { percent, failures });
            tokio::time::sleep(TELL_EVERY).await;
            if now.changed().await.is_err() {
                // It cannot go before us. If it could, there would be no more to tell.
                return pending().await;
            }
        }
    }

    fn set(&self, change: impl FnOnce(Point) -> Point) {
        self.now.send_if_modified(|it| {
            let before = std::mem::replace(it, change(*it));
            before != *it
        });
    }
}

/// Often enough for whoever looks on; each is a frame, and a new snapshot on the server.
const TELL_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_changes_often_is_told_once_a_second_and_what_does_not_once() {
        let (course, told, begun) = (Course::default(), RefCell::new(Vec::new()), Instant::now());
        let tell = |phase| told.borrow_mut().push((begun.elapsed().as_millis(), phase));
        let pulls = async {
            for percent in 1..=30 {
                sleep(Duration::from_millis(50)).await;
                course.reach(percent);
            }
            sleep(Duration::from_secs(10)).await;
            course.fail();
            sleep(Duration::from_secs(10)).await;
            course.begin();
        };
        course.tell_during(tell, pulls).await;
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
