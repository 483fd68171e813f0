//! Bar charts as SVG: geometry only; templates write the elements, and the style sheet colours them.

use std::time::Duration;

use crate::http::present::shapes::Job;
use crate::http::request::query::encode;
use crate::http::web::format;

/// A bar: a rectangle in the units of its chart, with its facts as text and a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) width: u64,
    pub(crate) height: u64,
    /// The class that colours it.
    pub(crate) tone: &'static str,
    /// The text that a pointer or a screen reader gets.
    pub(crate) title: String,
    /// The page behind it, below the base path; empty if there is none.
    pub(crate) link: String,
}

/// Height of every chart in its own units.
pub(crate) const HEIGHT: u64 = 60;

/// Width of one step, of which a bar takes all but [`GAP`].
pub(crate) const STEP: u64 = 12;
const GAP: u64 = 3;
/// A bar of a very short run can still be seen and hit.
const HEIGHT_MIN: u64 = 4;

/// A part of a whole: the jobs of some states.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// The class that colours it.
    pub(crate) tone: &'static str,
    pub(crate) count: u64,
    /// The number in words, for those who do not see the colours.
    pub(crate) words: String,
    /// The page behind it, below the base path; empty if there is none.
    pub(crate) link: String,
}

/// Bars behind each other in one line, as wide as their share of the whole. A share that is not empty can be seen.
pub(crate) fn shares(shares: &[Share], whole: u64) -> Vec<Bar> {
    let whole = whole.max(1);
    let width =
        |share: &Share| (share.count.saturating_mul(SHARES_WIDTH) / whole).clamp(SHARE_MIN, SHARES_WIDTH);
    let mut widths: Vec<u64> = shares.iter().map(width).collect();
    // The widest one gives what the narrow ones have too much.
    let excess = widths.iter().sum::<u64>().saturating_sub(SHARES_WIDTH);
    if let Some(widest) = widths.iter_mut().max() {
        *widest = widest.saturating_sub(excess);
    }
    let mut x = 0;
    let bars = shares.iter().zip(widths).map(|(share, width)| {
        let bar = Bar {
            x,
            y: 0,
            width,
            height: SHARES_HEIGHT,
            tone: share.tone,
            title: share.words.clone(),
            link: share.link.clone(),
        };
        x += width;
        bar
    });
    bars.collect()
}

/// Size of the line of shares in its own units.
const SHARES_WIDTH: u64 = 1_000;
const SHARES_HEIGHT: u64 = 20;
/// The smallest width of a share: one failure of thousands of members is seen.
const SHARE_MIN: u64 = 15;

/// How many jobs ended within one hour, by their state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hour {
    /// The hour as text, in UTC.
    pub(crate) label: String,
    /// The first instant of the hour and that of the next one, for the list of the jobs that ended in it.
    pub(crate) from: String,
    pub(crate) until: String,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
}

/// Two bars on top of each other for each hour: what failed stands at the bottom, so that it is seen first.
pub(crate) fn hours(hours: &[Hour]) -> Vec<Bar> {
    let highest = hours.iter().map(|hour| hour.succeeded + hour.failed).max().unwrap_or(0).max(1);
    let mut bars = Vec::new();
    for (index, hour) in (0_u64..).zip(hours) {
        let title = format!("{}: {} succeeded, {} failed", hour.label, hour.succeeded, hour.failed);
        let mut bottom = HEIGHT;
        for (count, tone, states) in
            [(hour.failed, "bad", "failed,lost,expired"), (hour.succeeded, "good", "succeeded")]
        {
            if count == 0 {
                continue;
            }
            let height = (count.saturating_mul(HEIGHT) / highest).clamp(1, bottom);
            bottom -= height;
            let of_hour = [
                ("state", states),
                ("ended_since", hour.from.as_str()),
                ("ended_until", hour.until.as_str()),
            ];
            bars.push(Bar {
                x: index * STEP,
                y: bottom,
                width: STEP - GAP,
                height,
                tone,
                title: title.clone(),
                link: format!("/jobs?{}", encode(of_hour)),
            });
        }
    }
    bars
}

/// A bar for each run, oldest first: its height is the running time, its colour the end.
pub(crate) fn runs(newest_first: &[Job]) -> Vec<Bar> {
    let longest = newest_first.iter().filter_map(|job| job.ran_ms).max().unwrap_or(0).max(1);
    let bar = |(index, job): (u64, &Job)| {
        let ran = job.ran_ms.unwrap_or(0);
        let height = (ran.saturating_mul(HEIGHT) / longest).clamp(HEIGHT_MIN, HEIGHT);
        Bar {
            x: index * STEP,
            y: HEIGHT - height,
            width: STEP - GAP,
            height,
            tone: format::tone(&job.state),
            title: format!("job {}: {}, {}", job.id, job.state, format::span(Duration::from_millis(ran))),
            link: format!("/jobs/{}", job.id),
        }
    };
    (0..).zip(newest_first.iter().rev()).map(bar).collect()
}

/// Facts about some runs: how many succeeded, and the median and 95th percentile of the running time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) runs: usize,
    pub(crate) succeeded_percent: usize,
    pub(crate) median: String,
    pub(crate) p95: String,
}

/// The summary of ended runs; `None` without any.
pub(crate) fn summary(runs: &[Job]) -> Option<Summary> {
    let ended: Vec<&Job> = runs.iter().filter(|job| job.ended_at.is_some()).collect();
    if ended.is_empty() {
        return None;
    }
    let mut times: Vec<u64> = ended.iter().filter_map(|job| job.ran_ms).collect();
    times.sort_unstable();
    let at = |percent: usize| {
        let index = (times.len() * percent).div_ceil(100).saturating_sub(1);
        times.get(index).map_or_else(|| "–".to_owned(), |ms| format::span_ms(*ms))
    };
    let succeeded = ended.iter().filter(|job| job.success).count();
    Some(Summary {
        runs: ended.len(),
        succeeded_percent: succeeded * 100 / ended.len(),
        median: at(50),
        p95: at(95),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_as_wide_as_their_part_and_a_small_one_is_seen() {
        let bars = |counts: &[u64], whole| -> Vec<(u64, u64)> {
            let share = |count: &u64| Share {
                tone: "good",
                count: *count,
                words: String::new(),
                link: String::new(),
            };
            let of: Vec<Share> = counts.iter().map(share).collect();
            shares(&of, whole).iter().map(|bar| (bar.x, bar.width)).collect()
        };
        assert_eq!(bars(&[5, 3], 10), [(0, 500), (500, 300)], "the rest has not ended");
        assert_eq!(bars(&[99_999, 1], 100_000), [(0, 985), (985, 15)]);
        assert_eq!(bars(&[1], 100_000), [(0, 15)]);
        assert_eq!(bars(&[], 0), []);
    }

    #[test]
    fn bars_of_an_hour_stand_on_each_other_within_the_chart() {
        let bars = hours(&[
            Hour { from: "2026-01-01T01:00:00Z".into(), succeeded: 3, failed: 1, ..Hour::default() },
            Hour::default(),
            Hour { succeeded: 1_000_000, failed: 1, ..Hour::default() },
        ]);
        assert_eq!(bars.len(), 4);
        for pair in bars.chunks(2) {
            assert_eq!(pair[0].y + pair[0].height, HEIGHT);
            assert_eq!(pair[1].y + pair[1].height, pair[0].y);
        }
        assert!(bars.iter().all(|bar| bar.height > 0));
        let link = "/jobs?state=failed%2Clost%2Cexpired&ended_since=2026-01-01T01%3A00%3A00Z&ended_until=";
        assert_eq!(bars[0].link, link);
    }

    #[test]
    fn percentiles_are_of_those_that_ended() {
        let job = |ran_ms, success| Job {
            ran_ms: Some(ran_ms),
            success,
            ended_at: Some(crate::rfc3339::Time::default()),
            ..Job::default()
        };
        let runs: Vec<Job> = (1..=20).map(|n| job(n * 1_000, n != 20)).chain([Job::default()]).collect();
        let summary = summary(&runs).unwrap();
        assert_eq!((summary.runs, summary.succeeded_percent), (20, 95));
        assert_eq!((summary.median.as_str(), summary.p95.as_str()), ("10s", "19s"));
        assert_eq!(super::summary(&[]), None);
    }
}
