//! Retries: whether a job gets another attempt, and when. Two budgets are never mixed
//! (docs/design/scheduling.md, Q2): the job's for its own failures, and the infrastructure's.

use alloc::vec::Vec;
use core::time::Duration;

use protocol::Timestamp;
use protocol::report::Outcome;
use rand::RngExt;
use rand::rngs::SmallRng;

use crate::definition::{Backoff, Delays, RetryPolicy};

/// The budget that an outcome uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryBudget {
    /// The job's budget, `retry.max`.
    Job,
    /// The infrastructure's budget, `lost_limit`.
    Infrastructure,
    /// No budget.
    None,
}

/// Returns the budget that an outcome uses.
#[must_use]
pub const fn budget(outcome: Outcome) -> RetryBudget {
    match outcome {
        Outcome::Failed
        | Outcome::OomKilled
        | Outcome::TimedOut
        | Outcome::PullFailed
        | Outcome::StartFailed => RetryBudget::Job,
        Outcome::Lost | Outcome::DaemonLost | Outcome::HostFailed => RetryBudget::Infrastructure,
        Outcome::Succeeded | Outcome::Cancelled | Outcome::Interrupted | Outcome::Released => {
            RetryBudget::None
        }
    }
}

/// Losses within this time count against `lost_limit`.
pub const LOSS_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// Counts a loss and returns the number within the window that ends with it. The stored end of the attempt
/// counts and not the time of the report, so a restart does not change the result.
pub fn record_loss(losses: &mut Vec<Timestamp>, ended_at: Timestamp) -> u32 {
    losses.retain(|at| ended_at.since(*at) < LOSS_WINDOW);
    losses.push(ended_at);
    u32::try_from(losses.len()).unwrap_or(u32::MAX)
}

/// Backoff after infrastructure failures: long enough for a restarted host to come back.
pub const INFRASTRUCTURE_BACKOFF: Backoff =
    Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60), 2_000);

/// The retry policy wants another attempt after this failure. `failures` counts this one.
#[must_use]
pub fn wants_another(policy: &RetryPolicy, failures: u32, outcome: Outcome, exit_code: Option<i32>) -> bool {
    // A stopped, killed or unstarted attempt has no meaningful exit code.
    let code_matters = outcome == Outcome::Failed && !policy.exit_codes.is_empty();
    let code_matches = exit_code.is_some_and(|code| policy.exit_codes.contains(&code));
    failures <= policy.max && policy.when.contains(&outcome) && (!code_matters || code_matches)
}

/// Draws the delay before the next attempt. Jitter keeps jobs that failed together from returning together.
/// `failures` is at least 1.
pub fn delay(backoff: &Backoff, failures: u32, rng: &mut SmallRng) -> Duration {
    let ceiling = ceiling_millis(&backoff.delays, failures);
    let random = u128::from(ceiling) * u128::from(backoff.jitter_milli.min(Backoff::FULL_JITTER_MILLI))
        / u128::from(Backoff::FULL_JITTER_MILLI);
    let least = ceiling - u64::try_from(random).unwrap_or(ceiling);
    Duration::from_millis(if least == ceiling { ceiling } else { rng.random_range(least..=ceiling) })
}

fn ceiling_millis(delays: &Delays, failures: u32) -> u64 {
    match delays {
        Delays::Exponential { initial, max, factor_milli } => {
            exponential_millis(millis(*initial), millis(*max), *factor_milli, failures)
        }
        Delays::Linear { initial, max } => {
            millis(*initial).saturating_mul(u64::from(failures)).min(millis(*max))
        }
        Delays::Fixed(delay) => millis(*delay),
        Delays::List(list) => {
            let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
            list.get(index).or(list.last()).map_or(0, |delay| millis(*delay))
        }
    }
}

fn exponential_millis(initial: u64, max: u64, factor_milli: u32, failures: u32) -> u64 {
    let mut ceiling = initial;
    for _ in 1..failures {
        if ceiling >= max || factor_milli <= 1_000 {
            break;
        }
        ceiling = u64::try_from(u128::from(ceiling) * u128::from(factor_milli) / 1_000).unwrap_or(u64::MAX);
    }
    ceiling.min(max)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;

    const TEN_DOUBLING: Backoff =
        Backoff::exponential(Duration::from_secs(10), Duration::from_secs(600), 2_000);

    #[test]
    fn the_ceiling_doubles_up_to_its_maximum() {
        let ceilings: Vec<u64> = (1..=8).map(|n| ceiling_millis(&TEN_DOUBLING.delays, n) / 1_000).collect();
        assert_eq!(ceilings, [10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(ceiling_millis(&TEN_DOUBLING.delays, u32::MAX), 600_000);
    }

    #[test]
    fn a_loss_is_forgotten_after_a_day() {
        let day = 24 * 60 * 60 * 1_000;
        let mut losses = alloc::vec![Timestamp(1_000), Timestamp(5_000)];
        assert_eq!(record_loss(&mut losses, Timestamp(day + 1_000)), 2);
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
    fn linear_fixed_and_listed_delays_follow_their_rule() {
        let (second, third) = (Duration::from_secs(2), Duration::from_millis(10));
        let of = |delays: Delays| [1, 2, 3, 4, u32::MAX].map(|failures| ceiling_millis(&delays, failures));
        let linear = Delays::Linear { initial: second, max: Duration::from_secs(7) };
        assert_eq!(of(linear), [2_000, 4_000, 6_000, 7_000, 7_000]);
        assert_eq!(of(Delays::Fixed(third)), [10; 5]);
        assert_eq!(of(Delays::List(vec![third, second])), [10, 2_000, 2_000, 2_000, 2_000]);
        assert_eq!(of(Delays::List(Vec::new())), [0; 5]);
    }

    #[test]
    fn jitter_is_the_random_part_of_the_delay() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut bounds = |jitter_milli| {
            let backoff = Backoff { delays: Delays::Fixed(Duration::from_secs(10)), jitter_milli };
            let drawn: Vec<_> = (0..1_000).map(|_| delay(&backoff, 1, &mut rng).as_millis()).collect();
            (*drawn.iter().min().unwrap() / 100, *drawn.iter().max().unwrap() / 100)
        };
        assert_eq!(bounds(0), (100, 100));
        let (least, most) = bounds(200);
        assert!(least == 80 && most >= 98, "{least} to {most}");
        let (least, most) = bounds(1_000);
        assert!(least <= 2 && most >= 98, "{least} to {most}");
    }

    proptest! {
        #[test]
        fn the_ceiling_is_the_formula_and_no_delay_is_above_it(
            initial in 0..100_000_u64, max in 0..10_000_000_u64, factor_milli in 1_000..20_000_u32,
            jitter_milli in 0..=1_000_u32, failures in 1..200_u32, seed in any::<u64>(),
        ) {
            let (first, highest) = (Duration::from_millis(initial), Duration::from_millis(max));
            let backoff = Backoff { jitter_milli, ..Backoff::exponential(first, highest, factor_milli) };
            let (initial, max, factor) = (u128::from(initial), u128::from(max), u128::from(factor_milli));
            // One multiplication for each failure after the first, in whole milliseconds.
            let formula = (1..failures).fold(initial.min(max), |ceiling, _| (ceiling * factor / 1_000).min(max));
            let ceiling = ceiling_millis(&backoff.delays, failures);
            prop_assert_eq!(u128::from(ceiling), formula);
            prop_assert!(ceiling <= ceiling_millis(&backoff.delays, failures + 1), "it shrinks");
            let drawn = delay(&backoff, failures, &mut SmallRng::seed_from_u64(seed));
            prop_assert!(drawn <= Duration::from_millis(ceiling) && drawn <= highest);
            let least = formula - formula * u128::from(jitter_milli) / 1_000;
            prop_assert!(drawn.as_millis() >= least, "{drawn:?} is below {least} ms");
            // The same generator draws the same delay, so the drawn delay must be stored.
            prop_assert_eq!(drawn, delay(&backoff, failures, &mut SmallRng::seed_from_u64(seed)));
        }
    }
}
