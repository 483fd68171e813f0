//! Numbers of waiting jobs, and how many of them wait under a limit or are paused.

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
    /// Those whose lanes are paused.
    pub paused: usize,
}

impl Counts {
    /// The count of the jobs that wait under a limit or a pause as this lane does, if it does so.
    pub(super) const fn held_as(&mut self, standing: Option<LaneState>) -> Option<&mut usize> {
        match standing {
            Some(LaneState { parked: Some(Parked::Permits(_)), .. }) => Some(&mut self.limited),
            Some(LaneState { parked: Some(Parked::Rate(_)), .. }) => Some(&mut self.rate_limited),
            Some(LaneState { parked: Some(Parked::Paused), .. }) => Some(&mut self.paused),
            _ => None,
        }
    }
}
