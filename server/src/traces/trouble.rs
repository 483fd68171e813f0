//! Tells an operator about spans that are not sent: the first time at once, then once a minute.

use std::time::Duration;

use tokio::time::Instant;

/// Remembers what was told.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    logged_at: Option<Instant>,
    /// Dropped jobs that the log knows of.
    logged_dropped: u64,
    is_away: bool,
}

impl Trouble {
    /// The collector cannot be reached now, and is asked again.
    pub(super) fn log_unreachable(&mut self, why: &str, dropped: u64) {
        self.is_away = true;
        if self.is_due() {
            let dropped_jobs = self.news(dropped);
            tracing::warn!(dropped_jobs, "the collector does not take spans: {why}; trying again");
        }
    }

    /// Jobs get no trace.
    pub(super) fn log_dropped_spans(&mut self, why: &str, dropped: u64) {
        if self.is_due() {
            let dropped_jobs = self.news(dropped);
            tracing::warn!(dropped_jobs, "spans dropped: {why}");
        }
    }

    /// As [`Self::log_dropped_spans`], for jobs that found no room in the queue.
    pub(super) fn log_dropped_jobs(&mut self, dropped: u64) {
        if dropped > self.logged_dropped {
            self.log_dropped_spans("too many ended jobs wait for their export", dropped);
        }
    }

    /// The collector has taken spans.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.is_away) {
            self.logged_at = None;
            tracing::info!("the collector takes spans again");
        }
    }

    fn is_due(&mut self) -> bool {
        let is_due = self.logged_at.is_none_or(|at| at.elapsed() >= TELL_EVERY);
        if is_due {
            self.logged_at = Some(Instant::now());
        }
        is_due
    }

    fn news(&mut self, dropped: u64) -> u64 {
        dropped - std::mem::replace(&mut self.logged_dropped, dropped).min(dropped)
    }
}

const TELL_EVERY: Duration = Duration::from_secs(60);
