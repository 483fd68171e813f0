//! Numbers of waiting jobs, and how many of them wait under a limit.

use super::Parked;
use super::lane::LaneState;

/// Numbers of waiting jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them; never zero.
    pub jobs: usize,
    /// Those whose lanes are parked under a limit of permits.
    pub limited: usize,
    /// Those whose lanes are parked under a rate.
    pub rate_limited: usize,
}

impl Counts {
    /// The count of the jobs that wait under a limit as this lane does, if it waits under one.
    pub(super) const fn under_limit(&mut self, standing: Option<LaneState>) -> Option<&mut usize> {
        match standing {
            Some(LaneState { parked: Some(Parked::Permits(_)), .. }) => Some(&mut self.limited),
            Some(LaneState { parked: Some(Parked::Rate(_)), .. }) => Some(&mut self.rate_limited),
            _ => None,
        }
    }
}
