//! After a failure: whether there is another attempt, and when. Two budgets, never mixed (DESIGN.md section 3): the user's for
//! what the job itself did, the platform's for what was done to it.

use alloc::vec::Vec;
use core::time::Duration;

use protocol::Timestamp;
use protocol::container::MEMORY_BYTES_MAX;
use protocol::report::Outcome;
use rand::RngExt;
use rand::rngs::SmallRng;

use crate::definition::{Backoff, RetryPolicy};

/// Whose budget an outcome uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// The user's: `retry.max`.
    Own,
    /// The platform's: `lost_limit`.
    Platform,
    /// Nobody's.
    Free,
}

/// Whose budget an outcome uses.
#[must_use]
pub const fn budget(outcome: Outcome) -> Budget {
    match outcome {
        Outcome::Failed
        | Outcome::OomKilled
        | Outcome::TimedOut
        | Outcome::PullFailed
        | Outcome::StartFailed => Budget::Own,
        Outcome::Lost | Outcome::DaemonLost | Outcome::HostFailed => Budget::Platform,
        Outcome::Succeeded | Outcome::Cancelled | Outcome::Interrupted | Outcome::Released => Budget::Free,
    }
}

/// Platform failures within this time count against `lost_limit`.
pub const LOSS_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// Counts an attempt that the platform lost; returns how many there were within the window that ends with it. It counts from the end of
/// the attempt, as it is stored, and not from when that was told: a start of the server must not change the count.
pub fn note_loss(losses: &mut Vec<Timestamp>, ended_at: Timestamp) -> u32 {
    losses.retain(|at| ended_at.since(*at) < LOSS_WINDOW);
    losses.push(ended_at);
    u32::try_from(losses.len()).unwrap_or(u32::MAX)
}

/// How long to wait after platform failures: long enough for a restarted host to come back, short for whoever waits.
pub const PLATFORM_BACKOFF: Backoff =
    Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(60), factor_milli: 2_000 };

/// Whether the user's policy wants another attempt after this failure. `failures` counts this one.
#[must_use]
pub fn wants_another(policy: &RetryPolicy, failures: u32, outcome: Outcome, exit_code: Option<i32>) -> bool {
    // What was stopped, killed or never started has no exit code of its own making.
    let code_matters = outcome == Outcome::Failed && !policy.exit_codes.is_empty();
    let code_matches = exit_code.is_some_and(|code| policy.exit_codes.contains(&code));
    failures <= policy.max && policy.when.contains(&outcome) && (!code_matters || code_matches)
}

/// Draws the delay before the next attempt: uniformly from zero to the ceiling ("full jitter"), so that jobs that failed together
/// do not come back together. `failures` is at least 1.
pub fn delay(backoff: &Backoff, failures: u32, rng: &mut SmallRng) -> Duration {
    let ceiling = ceiling_millis(backoff, failures);
    Duration::from_millis(rng.random_range(0..=ceiling))
}

fn ceiling_millis(backoff: &Backoff, failures: u32) -> u64 {
    let max = u64::try_from(backoff.max.as_millis()).unwrap_or(u64::MAX);
    let mut ceiling = u64::try_from(backoff.initial.as_millis()).unwrap_or(u64::MAX);
    for _ in 1..failures {
        if ceiling >= max || backoff.factor_milli <= 1_000 {
            break;
        }
        ceiling =
            u64::try_from(u128::from(ceiling) * u128::from(backoff.factor_milli) / 1_000).unwrap_or(u64::MAX);
    }
    ceiling.min(max)
}

/// A memory limit in bytes, times a factor in thousandths for each time that it was too small; never above what any definition may ask for.
#[must_use]
pub fn raised(bytes: u64, factor_milli: u32, times: u32) -> u64 {
    let mut raised = bytes;
    for _ in 0..times {
        let next = u128::from(raised) * u128::from(factor_milli) / 1_000;
        let next = u64::try_from(next).map_or(MEMORY_BYTES_MAX, |next| next.min(MEMORY_BYTES_MAX));
        if next <= raised {
            break;
        }
        raised = next;
    }
    raised
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;

    const TEN_DOUBLING: Backoff =
        Backoff { initial: Duration::from_secs(10), max: Duration::from_secs(600), factor_milli: 2_000 };

    #[test]
    fn the_ceiling_doubles_up_to_its_maximum() {
        let ceilings: Vec<u64> = (1..=8).map(|n| ceiling_millis(&TEN_DOUBLING, n) / 1_000).collect();
        assert_eq!(ceilings, [10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(ceiling_millis(&TEN_DOUBLING, u32::MAX), 600_000);
    }

    #[test]
    fn a_loss_is_forgotten_after_a_day() {
        let day = 24 * 60 * 60 * 1_000;
        let mut losses = alloc::vec![Timestamp(1_000), Timestamp(5_000)];
        assert_eq!(note_loss(&mut losses, Timestamp(day + 1_000)), 2);
        assert_eq!(losses, [Timestamp(5_000), Timestamp(day + 1_000)]);
    }

    #[test]
    fn delays_lie_below_the_ceiling_and_are_spread() {
        let mut rng = SmallRng::seed_from_u64(1);
        let delays: Vec<Duration> = (0..1_000).map(|_| delay(&TEN_DOUBLING, 1, &mut rng)).collect();
        assert!(delays.iter().all(|delay| *delay <= Duration::from_secs(10)));
        let early = delays.iter().filter(|delay| **delay < Duration::from_secs(5)).count();
        assert!((400..600).contains(&early), "{early} of 1000 in the first half");
    }

    #[test]
    fn exit_codes_narrow_which_failures_of_the_program_are_tried_again() {
        let when = vec![Outcome::Failed, Outcome::TimedOut];
        let policy = RetryPolicy { max: 2, when, exit_codes: vec![75], ..RetryPolicy::default() };
        assert!(wants_another(&policy, 1, Outcome::Failed, Some(75)));
        assert!(!wants_another(&policy, 1, Outcome::Failed, Some(1)));
        assert!(!wants_another(&policy, 1, Outcome::Failed, None));
        assert!(wants_another(&policy, 1, Outcome::TimedOut, Some(143)));
        assert!(!wants_another(&policy, 1, Outcome::PullFailed, None));
        assert!(!wants_another(&policy, 3, Outcome::Failed, Some(75)));
    }

    #[test]
    fn memory_is_raised_by_the_factor_each_time_up_to_the_most_there_is() {
        let raises: Vec<u64> = (0..=3).map(|times| raised(64 << 20, 1_500, times) >> 10).collect();
        assert_eq!(raises, [64 << 10, 96 << 10, 144 << 10, 216 << 10]);
        assert_eq!(raised(64 << 20, 100_000, u32::MAX), MEMORY_BYTES_MAX);
        assert_eq!(raised(u64::MAX / 2, 1_000, u32::MAX), u64::MAX / 2);
    }

    fn backoff() -> impl Strategy<Value = Backoff> {
        (0..100_000_u64, 0..10_000_000_u64, 1_000..20_000_u32).prop_map(|(initial, max, factor_milli)| {
            Backoff { initial: Duration::from_millis(initial), max: Duration::from_millis(max), factor_milli }
        })
    }

    proptest! {
        #[test]
        fn the_ceiling_is_the_formula_and_no_delay_is_above_it(
            backoff in backoff(), failures in 1..200_u32, seed in any::<u64>(),
        ) {
            let (initial, max) = (backoff.initial.as_millis(), backoff.max.as_millis());
            let factor = u128::from(backoff.factor_milli);
            // One multiplication for each failure after the first, in whole milliseconds.
            let formula = (1..failures).fold(initial.min(max), |ceiling, _| (ceiling * factor / 1_000).min(max));
            let ceiling = ceiling_millis(&backoff, failures);
            prop_assert_eq!(u128::from(ceiling), formula);
            prop_assert!(ceiling <= ceiling_millis(&backoff, failures + 1), "it shrinks");
            let drawn = delay(&backoff, failures, &mut SmallRng::seed_from_u64(seed));
            prop_assert!(drawn <= Duration::from_millis(ceiling) && drawn <= backoff.max);
            // The same generator draws the same: whatever is drawn must be stored, and is.
            prop_assert_eq!(drawn, delay(&backoff, failures, &mut SmallRng::seed_from_u64(seed)));
        }
    }
}
