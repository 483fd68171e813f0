//! Heartbeat and lease of workers, as `--heartbeat` and `--lease` give them.

use std::time::Duration;

use protocol::order::Intervals;

use super::SettingsError;
use super::jobs_file::quantity;

/// Parses heartbeat and lease as the flags `--heartbeat` and `--lease` give them.
///
/// # Errors
/// One of them is malformed or out of range, or the lease is too short for the heartbeat.
pub fn intervals(heartbeat: &str, lease: &str) -> Result<Intervals, SettingsError> {
    let value = |flag, variable, reason| SettingsError::Value { flag, variable, reason };
    let heartbeat = quantity::duration(heartbeat, HEARTBEAT_MIN, HEARTBEAT_MAX)
        .map_err(|wrong| value("--heartbeat", "LONGSHORE_HEARTBEAT", wrong.to_string()))?;
    let lease = quantity::duration(lease, LEASE_MIN, LEASE_MAX)
        .map_err(|wrong| value("--lease", "LONGSHORE_LEASE", wrong.to_string()))?;
    if lease < heartbeat * HEARTBEATS_PER_LEASE {
        let reason = format!("it must be at least {HEARTBEATS_PER_LEASE} heartbeats of {heartbeat:?}");
        return Err(value("--lease", "LONGSHORE_LEASE", reason));
    }
    Ok(Intervals { heartbeat, lease, start_gate: lease / START_GATES_PER_LEASE })
}

pub(super) const HEARTBEAT_MIN: Duration = Duration::from_millis(100);
const HEARTBEAT_MAX: Duration = Duration::from_secs(10);
const LEASE_MIN: Duration = Duration::from_secs(1);
/// The defaults of jobs assume this lease; a shorter one is for tests.
const LEASE_MAX: Duration = Duration::from_secs(30);
/// Two heartbeats may be lost.
const HEARTBEATS_PER_LEASE: u32 = 3;
/// Clocks may differ in speed by 5 % in each direction over a whole lease.
const START_GATES_PER_LEASE: u32 = 10;
