//! The progress of a batch: a bar on a terminal, plain lines elsewhere, on standard error.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::api::{Api, parse};
use crate::outage::{Awaited, Outage};
use crate::records;
use crate::screen::{self, Format};
use crate::view::{self, BatchSummary};

/// Texts about a batch.
pub(crate) trait BatchView {
    /// The number of members that have ended.
    fn ended(&self) -> u32;

    /// The states of the members: `2 running, 5 succeeded`.
    fn members_text(&self) -> String;
}

impl BatchView for BatchSummary {
    fn ended(&self) -> u32 {
        self.count.saturating_sub(self.counts.live())
    }

    fn members_text(&self) -> String {
        let states = self.counts.by_state().map(|(state, count)| format!("{count} {state}"));
        states.collect::<Vec<_>>().join(", ")
    }
}

/// Waits until a batch has ended, displays its progress meanwhile, and returns its final JSON.
///
/// # Errors
/// The server refused the request, or was away for too long.
pub(crate) async fn wait_for_end(
    api: &Api,
    id: u64,
    outage: &mut Outage,
    mut display: Display,
) -> anyhow::Result<Value> {
    let mut has_failed = false;
    loop {
        let (asked_at, mut pause) = (Instant::now(), PAUSE);
        // After a failure the server answers at once, which shows that it is back.
        let wait = (!has_failed).then_some([("wait", WAIT)]);
        let request = api.get(&["api", "batches", &id.to_string()]).query(&wait);
        match api.json(request).await {
            Ok(json) => {
                outage.end();
                let batch: BatchSummary = parse(api, &json)?;
                display.update(&batch);
                if batch.ended_at.is_some() {
                    display.finish();
                    return Ok(json);
                }
                if std::mem::take(&mut has_failed) {
                    continue;
                }
            }
            Err(error) => {
                has_failed = true;
                outage.retry_or_fail(error, Awaited::Batch(id))?;
                pause = pause.max(outage.pause());
            }
        }
        // A server that is stopping or busy answers at once.
        sleep(pause.saturating_sub(asked_at.elapsed())).await;
    }
}

/// Prints a job or batch that goes on after the wait for it, in a format for programs: they learn its id. Prints nothing for people.
pub(crate) async fn print_unended(api: &Api, format: Format, kind: &str, id: u64) -> anyhow::Result<()> {
    if format.is_text() {
        return Ok(());
    }
    let read = timeout(READ_TIMEOUT, api.json(api.get(&["api", kind, &id.to_string()]))).await;
    let json = read.ok().and_then(Result::ok).unwrap_or_else(|| json!({ "id": id }));
    records::print(format, &json, "id").map(drop)
}

/// For an answer after the time of `--wait` is up.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// The server answers after this time at the latest, so that the progress is seen.
const WAIT: &str = "1s";
const PAUSE: Duration = Duration::from_secs(1);

/// The display of the progress.
pub(crate) enum Display {
    /// A bar on a terminal.
    Bar(ProgressBar),
    /// A line for each tenth: the last one that was printed.
    Lines(Option<u32>),
    /// Nothing is printed.
    Quiet,
}

impl Display {
    /// The display on standard error.
    pub(crate) fn new() -> Self {
        if std::io::stderr().is_terminal() { Self::Bar(bar()) } else { Self::Lines(None) }
    }

    fn update(&mut self, batch: &BatchSummary) {
        match self {
            Self::Bar(bar) => {
                bar.set_length(batch.count.into());
                bar.set_position(batch.ended().into());
                bar.set_message(message(batch));
            }
            Self::Lines(printed) => {
                let tenth = batch.ended() * 10 / batch.count.max(1);
                if *printed != Some(tenth) {
                    *printed = Some(tenth);
                    screen::note(&format!("longshore: batch {}: {}", batch.id, message(batch)));
                }
            }
            Self::Quiet => {}
        }
    }

    fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish();
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    // The template is fixed, and a test reads it.
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    bar
}

const TEMPLATE: &str = "{wide_bar} {percent:>3}% {msg}";

fn message(batch: &BatchSummary) -> String {
    let mut text = format!("{} of {} ended", batch.ended(), batch.count);
    if batch.counts.failures() > 0 {
        text += &format!(", {} failed", batch.counts.failures());
    }
    if let Some(eta) = batch.eta {
        text += &format!(", {} left", view::until(eta, jiff::Timestamp::now()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::BatchCounts;

    #[test]
    fn the_template_of_the_bar_can_be_read() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }

    #[test]
    fn a_line_is_printed_for_each_tenth() {
        let mut display = Display::Lines(None);
        let mut printed = Vec::new();
        for succeeded in 0..=25 {
            let counts = BatchCounts { queued: 25 - succeeded, succeeded, ..BatchCounts::default() };
            display.update(&BatchSummary { id: 1, count: 25, counts, ..BatchSummary::default() });
            let Display::Lines(Some(tenth)) = display else { panic!("it prints lines") };
            printed.push(tenth);
        }
        printed.dedup();
        assert_eq!(printed, (0..=10).collect::<Vec<_>>());
    }
}
