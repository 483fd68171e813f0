//! Slots at equal distances in elapsed time, whatever the clocks on the walls do. They are counted from an anchor: `start_at`, or 1970.

use core::time::Duration;

use protocol::Timestamp;

/// The shortest interval.
pub const EVERY_MIN: Duration = Duration::from_millis(100);

/// An interval of whole milliseconds, at least [`EVERY_MIN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every(i64);

impl Every {
    /// Absent if it is too short, or longer than 400 years.
    #[must_use]
    pub fn new(interval: Duration) -> Option<Self> {
        let millis = i64::try_from(interval.as_millis()).ok()?;
        let longest = 400 * 366 * 86_400_000;
        (interval >= EVERY_MIN && millis <= longest).then_some(Self(millis))
    }

    /// The distance between two slots.
    #[must_use]
    pub const fn interval(self) -> Duration {
        Duration::from_millis(self.0.unsigned_abs())
    }

    /// The first slot later than `after`. Slots before the anchor exist; the schedule cuts them off.
    pub(super) fn next_after(self, after: Timestamp, anchor: Timestamp) -> Option<Timestamp> {
        let past = after.0.checked_sub(anchor.0)?;
        let steps = past.div_euclid(self.0).checked_add(1)?;
        anchor.0.checked_add(steps.checked_mul(self.0)?).map(Timestamp)
    }

    /// How many steps fit between two instants; zero if `to` is earlier.
    pub(super) fn steps(self, from: Timestamp, to: Timestamp) -> u64 {
        (to.0.saturating_sub(from.0) / self.0).max(0).unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_multiples_of_the_interval_from_the_anchor_on() {
        let every = Every::new(Duration::from_millis(300)).expect("long enough");
        let next = |after, anchor| every.next_after(Timestamp(after), Timestamp(anchor)).map(|at| at.0);
        assert_eq!(next(0, 0), Some(300));
        assert_eq!(next(299, 0), Some(300));
        assert_eq!(next(-1, 0), Some(0));
        assert_eq!(next(-301, 0), Some(-300));
        assert_eq!(next(1_000, 50), Some(1_250));
        assert_eq!(next(i64::MAX, 0), None);
    }

    #[test]
    fn too_short_and_too_long_are_no_intervals() {
        assert_eq!(Every::new(Duration::from_millis(99)), None);
        assert!(Every::new(EVERY_MIN).is_some());
        assert_eq!(Every::new(Duration::MAX), None);
    }
}
