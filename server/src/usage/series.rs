//! The points of one attempt: as many as a chart can show, spread over its whole life.

use std::time::Duration;

use protocol::{Now, Timestamp, Uptime, Usage, UsageSample};

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Wall-clock time of the sample's arrival.
    pub at: Timestamp,
    /// CPU time since the start, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Memory at that moment, in bytes.
    pub memory_bytes: Option<u64>,
}

/// The series of one attempt.
#[derive(Debug, Default)]
pub(super) struct Series {
    usage: Usage,
    version: u64,
    began_at: Option<Uptime>,
    sampled_at: Uptime,
    /// Arrival of the last point that is kept for good. The point after it is replaced by each sample until it is [`Series::spacing`]
    /// later.
    fixed_at: Option<Uptime>,
    spacing: Duration,
    points: Vec<Point>,
}

impl Series {
    pub(super) fn record(&mut self, now: Now, sample: &UsageSample) {
        self.usage = self.usage.later(sample.usage);
        self.version += 1;
        self.sampled_at = now.up;
        self.began_at.get_or_insert(now.up);
        let point = Point { at: now.utc, cpu_ms: self.usage.cpu_ms, memory_bytes: sample.memory_bytes };
        match self.fixed_at {
            Some(fixed) if now.up.since(fixed) < self.spacing && self.points.len() > 1 => {
                if let Some(last) = self.points.last_mut() {
                    *last = point;
                }
            }
            _ => {
                self.points.push(point);
                self.fixed_at = Some(now.up);
            }
        }
        if self.points.len() > POINTS_MAX {
            self.thin_out(now.up);
        }
    }

    /// Drops every second point, but neither the first nor the last.
    fn thin_out(&mut self, now: Uptime) {
        let last = self.points.len() - 1;
        let mut index = 0;
        self.points.retain(|_| {
            let stays = index % 2 == 0 || index == last;
            index += 1;
            stays
        });
        // The wall clock of the points may have been set by years in between.
        self.spacing = now.since(self.began_at.unwrap_or(now)) * 2 / POINTS_MAX as u32;
        self.fixed_at = Some(now);
    }

    pub(super) const fn latest(&self) -> Usage {
        self.usage
    }

    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    pub(super) const fn sampled_at(&self) -> Uptime {
        self.sampled_at
    }

    pub(super) fn points(&self) -> &[Point] {
        &self.points
    }
}

/// Points of a series: a chart of this width shows each of them.
pub(super) const POINTS_MAX: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_life_keeps_points_all_over_it_with_the_first_and_the_last() {
        let mut series = Series::default();
        for second in 0_u64..100_000 {
            let now =
                Now { up: Uptime(second * 1_000_000_000), utc: Timestamp(second.cast_signed() * 1_000) };
            let usage = Usage { cpu_ms: Some(second), ..Usage::default() };
            series.record(now, &UsageSample { usage, ..UsageSample::default() });
            assert!(series.points().len() <= POINTS_MAX);
            assert_eq!(series.points().last().and_then(|it| it.cpu_ms), Some(second));
        }
        let points = series.points();
        assert_eq!(points[0].cpu_ms, Some(0));
        assert!(points.len() >= POINTS_MAX / 4, "{}", points.len());
        assert!(points.windows(2).all(|pair| pair[0].at < pair[1].at));
        let widest = points.windows(2).map(|pair| pair[1].at.since(pair[0].at)).max();
        assert!(widest < Some(Duration::from_secs(10_000)), "{widest:?}");
    }

    #[test]
    fn a_wall_clock_that_is_corrected_by_decades_leaves_room_for_further_points() {
        let mut series = Series::default();
        let sample = |series: &mut Series, second: u64| {
            let set_by = if second < 10 { 0 } else { 1_700_000_000_000 };
            let utc = Timestamp(second.cast_signed() * 1_000 + set_by);
            series.record(Now { up: Uptime(second * 1_000_000_000), utc }, &UsageSample::default());
        };
        (0..200).for_each(|second| sample(&mut series, second));
        assert!(series.spacing < Duration::from_secs(10), "{:?}", series.spacing);
        let before = series.points().len();
        (200..220).for_each(|second| sample(&mut series, second));
        assert!(series.points().len() > before, "{before}");
    }

    #[test]
    fn a_flood_of_samples_and_a_clock_that_goes_back_add_nothing_beyond_the_limit() {
        let mut series = Series::default();
        for number in 0..10_000_i64 {
            let now = Now { up: Uptime(7), utc: Timestamp(-number) };
            series.record(now, &UsageSample { memory_bytes: Some(1), ..UsageSample::default() });
        }
        assert!(series.points().len() <= POINTS_MAX);
    }
}
