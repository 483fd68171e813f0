//! Names as numbers: how states, outcomes and causes are stored. A number never changes its meaning; new ones are added.

use protocol::order::StopCause;
use protocol::report::{Outcome, ReleaseCause};
use rusqlite::types::{FromSqlError, FromSqlResult};
use scheduler::job::State;

pub(super) const fn of_state(state: State) -> i64 {
    match state {
        State::Scheduled => 1,
        State::Queued => 2,
        State::Assigned => 3,
        State::Running => 4,
        State::Quarantined => 5,
        State::Succeeded => 6,
        State::Failed => 7,
        State::Cancelled => 8,
        State::Expired => 9,
        State::Lost => 10,
    }
}

pub(super) const fn of_outcome(outcome: Outcome) -> i64 {
    match outcome {
        Outcome::Succeeded => 1,
        Outcome::Failed => 2,
        Outcome::OomKilled => 3,
        Outcome::TimedOut => 4,
        Outcome::Cancelled => 5,
        Outcome::PullFailed => 6,
        Outcome::StartFailed => 7,
        Outcome::HostFailed => 8,
        Outcome::DaemonLost => 9,
        Outcome::Lost => 10,
        Outcome::Interrupted => 11,
        Outcome::Released => 12,
    }
}

pub(super) const fn of_stop(cause: StopCause) -> i64 {
    match cause {
        StopCause::Cancel => 1,
        StopCause::Timeout => 2,
        StopCause::Superseded => 3,
        StopCause::Pinning => 4,
        StopCause::Drain => 5,
        StopCause::SelfFence => 6,
    }
}

pub(super) const fn of_release(cause: ReleaseCause) -> i64 {
    match cause {
        ReleaseCause::Recalled => 1,
        ReleaseCause::Full => 2,
        ReleaseCause::Draining => 3,
        ReleaseCause::RuntimeUnavailable => 4,
        ReleaseCause::Policy => 5,
        ReleaseCause::Secrets => 6,
    }
}

pub(super) fn state(code: i64) -> FromSqlResult<State> {
    decode(State::ALL, of_state, code)
}

pub(super) fn outcome(code: i64) -> FromSqlResult<Outcome> {
    decode(Outcome::ALL, of_outcome, code)
}

pub(super) fn stop(code: i64) -> FromSqlResult<StopCause> {
    decode(StopCause::ALL, of_stop, code)
}

pub(super) fn release(code: i64) -> FromSqlResult<ReleaseCause> {
    use ReleaseCause::{Draining, Full, Policy, Recalled, RuntimeUnavailable, Secrets};
    decode([Recalled, Full, Draining, RuntimeUnavailable, Policy, Secrets], of_release, code)
}

fn decode<T: Copy, const N: usize>(all: [T; N], code_of: fn(T) -> i64, code: i64) -> FromSqlResult<T> {
    all.into_iter().find(|it| code_of(*it) == code).ok_or(FromSqlError::OutOfRange(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        for it in State::ALL {
            assert_eq!(state(of_state(it)), Ok(it));
        }
        for it in Outcome::ALL {
            assert_eq!(outcome(of_outcome(it)), Ok(it));
        }
        for code in 1..=5 {
            assert_eq!(stop(code).map(of_stop), Ok(code));
            assert_eq!(release(code).map(of_release), Ok(code));
        }
        assert_eq!(state(0), Err(FromSqlError::OutOfRange(0)));
    }

    #[test]
    fn the_schema_splits_states_where_jobs_end() {
        for it in State::ALL {
            assert_eq!(of_state(it) >= 6, it.has_ended(), "{}", it.name());
        }
    }
}
