//! Which attempts count against the platform's budget, and for how long (DESIGN.md section 3).

use std::time::Duration;

use protocol::Timestamp;
use protocol::report::Outcome;

/// A loss is forgotten after a day.
const WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether an attempt that ended so was lost by the platform.
pub(super) const fn counts(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Lost | Outcome::DaemonLost | Outcome::HostFailed)
}

/// The losses of a job with a new one, without those that are older than a day by then.
pub(super) fn with(mut losses: Vec<Timestamp>, at: Timestamp) -> Vec<Timestamp> {
    losses.retain(|loss| at.since(*loss) < WINDOW);
    losses.push(at);
    losses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_forgotten_after_a_day() {
        let day = 24 * 60 * 60 * 1_000;
        let losses = with(vec![Timestamp(1_000), Timestamp(5_000)], Timestamp(day + 1_000));
        assert_eq!(losses, [Timestamp(5_000), Timestamp(day + 1_000)]);
    }
}
