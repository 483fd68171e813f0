//! Reports to systemd, for units with `Type=notify`: READY=1 once the main loop (the server's engine, the worker's loop) has made its first
//! turn, WATCHDOG=1 while it goes on to make turns, STOPPING=1 at the first signal to leave.
//!
//! Without `NOTIFY_SOCKET` in the environment nothing is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::Uptime;
use sd_notify::NotifyState;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Starts to report what `last_turn` says: the uptime in nanoseconds of the main loop's last turn, zero before the first.
pub(crate) fn report(last_turn: Arc<AtomicU64>) {
    if is_wanted() {
        tokio::spawn(keep_reporting(last_turn));
    }
}

/// Passes the signals on, and reports the first one.
pub(crate) fn announce_stop(mut signals: mpsc::Receiver<()>) -> mpsc::Receiver<()> {
    if !is_wanted() {
        return signals;
    }
    let (pass, passed) = mpsc::channel(8);
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            notify(&NotifyState::Stopping);
            if pass.send(()).await.is_err() {
                return;
            }
        }
    });
    passed
}

async fn keep_reporting(last_turn: Arc<AtomicU64>) {
    while last_turn.load(Ordering::Relaxed) == 0 {
        sleep(FIRST_TURN_EVERY).await;
    }
    notify(&NotifyState::Ready);
    let Some(interval) = sd_notify::watchdog_enabled() else { return };
    let mut was_silent = false;
    loop {
        let silent_for = client::clock::now().up.since(Uptime(last_turn.load(Ordering::Relaxed)));
        let is_silent = !is_alive(silent_for, interval);
        if !is_silent {
            notify(&NotifyState::Watchdog);
        } else if was_silent {
            tracing::error!(?silent_for, "the main loop makes no turns: systemd will restart this process");
        }
        // A machine that was suspended counts that time as silence: its main loop makes a turn within seconds.
        sleep(if is_silent && !was_silent { SILENCE_MIN.min(interval / 4) } else { interval / 2 }).await;
        was_silent = is_silent;
    }
}

/// Returns true if a main loop that has made no turn for so long counts as alive.
fn is_alive(silent_for: Duration, interval: Duration) -> bool {
    silent_for < SILENCE_MIN.max(interval / 2)
}

fn is_wanted() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

fn notify(state: &NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        tracing::warn!(%error, %state, "cannot report to systemd");
    }
}

/// The first turn comes within milliseconds, but for a store or a container engine that is slow.
const FIRST_TURN_EVERY: Duration = Duration::from_millis(20);
/// An idle main loop makes a turn every 5 s.
const SILENCE_MIN: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_loop_is_alive_and_a_stuck_one_is_not() {
        let seconds = Duration::from_secs;
        assert!(is_alive(seconds(6), seconds(1)));
        assert!(is_alive(seconds(29), seconds(60)));
        assert!(!is_alive(seconds(16), seconds(1)));
        assert!(!is_alive(seconds(31), seconds(60)));
    }
}
