//! Waiting for conditions with a deadline.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};

/// Polls until `poll` returns a value. Panics with `what` after a minute.
pub async fn wait_for<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let found = wait_at_most(WAIT_TIMEOUT, &mut poll).await;
    found.unwrap_or_else(|| panic!("not within {WAIT_TIMEOUT:?}: {what}"))
}

/// Polls until `poll` returns a value, or returns `None` at the deadline.
pub async fn wait_at_most<T>(deadline: Duration, mut poll: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let mut ticks = interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let search = async {
        loop {
            ticks.tick().await;
            if let Some(found) = poll().await {
                return found;
            }
        }
    };
    timeout(deadline, search).await.ok()
}

/// Polls until the condition is true. Panics with `what` after a minute.
pub async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    wait_for(what, async || condition().await.then_some(())).await;
}

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Long enough for a loaded machine; a test that passes does not wait this long.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
