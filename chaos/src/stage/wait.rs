//! Waiting for what must come true, with a deadline.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};

/// Looks again and again until there is what is looked for; fails the test after a minute.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = within(PATIENCE, &mut look).await;
    found.unwrap_or_else(|| panic!("not within {PATIENCE:?}: {what}"))
}

/// Looks again and again until there is what is looked for, or time is up.
pub async fn within<T>(patience: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let search = async {
        loop {
            looks.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    timeout(patience, search).await.ok()
}

/// Looks again and again until something holds; fails the test after a minute.
pub async fn holds(what: &str, mut look: impl AsyncFnMut() -> bool) {
    eventually(what, async || look().await.then_some(())).await;
}

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Long enough for a loaded machine; nothing waits for it that goes well.
const PATIENCE: Duration = Duration::from_secs(60);
