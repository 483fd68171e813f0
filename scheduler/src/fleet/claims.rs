//! Decides between processes that claim to be the same worker.
//!
//! The processes of a worker follow one another: its state directory is locked and counts them. A Hello of
//! another process therefore means that the previous process is gone, or that the state directory was copied
//! and both run. A higher start counter proves nothing, because a copy counts on, too. A message of the
//! previous process *after* the Hello of the other one proves that both run.
//!
//! ```text
//!                   previous not connected          previous connected
//! later start       accept: a restart               wait: accepted when the previous one disconnects or is silent
//! any other         wait for the end of its lease         for half a lease; clones if it sends another message
//!
//! clones: all are refused until one of them alone has been heard for a lease
//! ```
//!
//! A later start waits although it is nearly always a restart whose old connection is not known to be broken
//! yet. A copy would report wrong things about attempts that the original still runs.

use alloc::string::String;
use alloc::vec::Vec;

use protocol::Uptime;
use protocol::order::Intervals;

use crate::fleet::row::Process;

/// Processes that claimed a worker's identity, beside the accepted one.
#[derive(Debug, Default)]
pub struct Claims {
    /// The last two claims, latest last. Two suffice to tell whether another process was heard.
    list: Vec<Claim>,
    /// The processes are clones; the accepted one is among them.
    are_clones: bool,
    /// End of the time for which two clones count as heard, while there are two. An alarm is set for it.
    pub clones_until: Option<Uptime>,
}

/// A process that claims to be a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The process.
    pub process: Process,
    /// Its network address.
    pub address: String,
    /// Time of its last claim.
    pub last_heard: Uptime,
    /// Time of its first claim without a pause of a lease.
    pub since: Uptime,
}

/// The process that was accepted last.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The process and when it was last heard. Time in which the server was suspended counts as heard.
    pub claim: Option<Claim>,
    /// Time of its last message that was read.
    pub last_message: Uptime,
    /// It is connected.
    pub is_connected: bool,
}

/// Decision about a Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// The process is the worker.
    Accept,
    /// The process may be the worker if the previous one is gone.
    Wait,
    /// The process and the accepted one are clones.
    Clones,
}

impl Claims {
    /// Decides about a Hello and records the claim.
    pub fn decide(&mut self, mut claim: Claim, holder: Holder, intervals: Intervals) -> ClaimVerdict {
        let (now, process, lease) = (claim.last_heard, claim.process, intervals.lease);
        if self.are_clones {
            self.record(claim, intervals);
            if self.list.iter().any(|other| other.process != process && other.last_heard + lease > now) {
                self.set_expiry(intervals);
                return ClaimVerdict::Clones;
            }
            return self.reset();
        }
        let Some(before) = holder.claim.filter(|before| before.process != process) else {
            return ClaimVerdict::Accept;
        };
        let follows = process.incarnation > before.process.incarnation;
        // Of several processes that claim the identity one after the other, the earlier ones are gone.
        let has_rival = self.list.iter().any(|other| {
            other.process != process
                && other.process.incarnation >= process.incarnation
                && other.last_heard + lease > now
        });
        if !holder.is_connected && !has_rival && (follows || before.last_heard + lease <= now) {
            return self.reset();
        }
        claim.since = self.record(claim.clone(), intervals);
        let both_live = holder.is_connected && holder.last_message > claim.since;
        if both_live {
            self.list = alloc::vec![before.clone(), claim.clone()];
        }
        if both_live || (has_rival && !holder.is_connected) {
            self.are_clones = true;
            self.set_expiry(intervals);
            return ClaimVerdict::Clones;
        }
        // A running process would have sent something in the time in which the server could receive it.
        if holder.is_connected && follows && before.last_heard.max(claim.since) + lease / 2 <= now {
            return self.reset();
        }
        ClaimVerdict::Wait
    }

    /// Records a message of a clone whose session is closed but that has not received the refusal.
    pub fn renew(&mut self, claim: Claim, intervals: Intervals) {
        if self.are_clones {
            self.record(claim, intervals);
            self.set_expiry(intervals);
        }
    }

    /// Addresses of the clones that were heard last.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.list.iter().filter(|_| self.clones_until.is_some()).map(|claim| claim.address.as_str())
    }

    /// Forgets all claims, since one process is left.
    fn reset(&mut self) -> ClaimVerdict {
        *self = Self::default();
        ClaimVerdict::Accept
    }

    /// Sets the end of the time for which two clones count as heard.
    fn set_expiry(&mut self, intervals: Intervals) {
        self.clones_until = self.list.iter().map(|it| it.last_heard + intervals.lease).min();
    }

    /// Records a claim and returns since when the process has been heard.
    fn record(&mut self, mut claim: Claim, intervals: Intervals) -> Uptime {
        if let Some(at) = self.list.iter().position(|it| it.process == claim.process) {
            let earlier = self.list.remove(at);
            if earlier.last_heard + intervals.lease > claim.last_heard {
                claim.since = earlier.since;
            }
            claim.last_heard = claim.last_heard.max(earlier.last_heard);
        }
        let since = claim.since;
        self.list.push(claim);
        self.list.sort_by_key(|it| it.last_heard);
        if self.list.len() > 2 {
            self.list.remove(0);
        }
        since
    }
}

#[cfg(test)]
mod tests {
    use protocol::Incarnation;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn claim(incarnation: u64, number: u64, seconds: u64) -> Claim {
        let at = Uptime(seconds * SECOND);
        let process = Process { incarnation: Incarnation(incarnation), number };
        Claim { process, address: String::new(), last_heard: at, since: at }
    }

    fn holder(last_heard: u64, is_connected: bool) -> Holder {
        Holder {
            claim: Some(claim(5, 1, last_heard)),
            last_message: Uptime(last_heard * SECOND),
            is_connected,
        }
    }

    fn decide(claims: &mut Claims, claim: Claim, holder: Holder) -> ClaimVerdict {
        claims.decide(claim, holder, Intervals::default())
    }

    #[test]
    fn a_reconnect_a_restart_and_a_first_process_are_let_in() {
        let nobody = Holder { claim: None, last_message: Uptime(0), is_connected: false };
        assert_eq!(decide(&mut Claims::default(), claim(1, 1, 100), nobody), ClaimVerdict::Accept);
        assert_eq!(decide(&mut Claims::default(), claim(5, 1, 100), holder(99, true)), ClaimVerdict::Accept);
        assert_eq!(decide(&mut Claims::default(), claim(6, 2, 100), holder(99, false)), ClaimVerdict::Accept);
    }

    #[test]
    fn a_restart_waits_half_a_lease_for_the_old_connection() {
        let mut claims = Claims::default();
        assert_eq!(decide(&mut claims, claim(6, 2, 100), holder(99, true)), ClaimVerdict::Wait);
        assert_eq!(decide(&mut claims, claim(6, 2, 114), holder(99, true)), ClaimVerdict::Wait);
        assert_eq!(decide(&mut claims, claim(6, 2, 115), holder(99, true)), ClaimVerdict::Accept);
        assert_eq!(decide(&mut claims, claim(7, 3, 116), holder(115, true)), ClaimVerdict::Wait);
        assert_eq!(decide(&mut claims, claim(7, 3, 117), holder(115, false)), ClaimVerdict::Accept);
    }

    #[test]
    fn a_machine_restored_from_a_snapshot_waits_for_the_end_of_the_lease() {
        for incarnation in [4, 5] {
            let mut claims = Claims::default();
            assert_eq!(
                decide(&mut claims, claim(incarnation, 2, 100), holder(99, false)),
                ClaimVerdict::Wait
            );
            assert_eq!(
                decide(&mut claims, claim(incarnation, 2, 128), holder(99, false)),
                ClaimVerdict::Wait
            );
            assert_eq!(
                decide(&mut claims, claim(incarnation, 2, 129), holder(99, false)),
                ClaimVerdict::Accept
            );
        }
    }

    #[test]
    fn clones_are_refused_until_one_alone_has_been_heard_for_a_lease() {
        for incarnation in [4, 5, 6] {
            let mut claims = Claims::default();
            let copy = |at| claim(incarnation, 2, at);
            assert_eq!(decide(&mut claims, copy(100), holder(99, true)), ClaimVerdict::Wait);
            assert_eq!(decide(&mut claims, copy(101), holder(101, true)), ClaimVerdict::Clones);
            let away = || holder(101, false);
            assert_eq!(decide(&mut claims, claim(5, 1, 111), away()), ClaimVerdict::Clones);
            assert_eq!(decide(&mut claims, claim(7, 3, 112), away()), ClaimVerdict::Clones, "a third one");
            assert_eq!(decide(&mut claims, claim(5, 1, 121), away()), ClaimVerdict::Clones);
            assert_eq!(decide(&mut claims, claim(5, 1, 141), away()), ClaimVerdict::Clones);
            assert_eq!(decide(&mut claims, claim(5, 1, 142), away()), ClaimVerdict::Accept);
        }
    }

    #[test]
    fn a_lease_renewed_after_a_suspension_is_no_sign_of_life() {
        let mut claims = Claims::default();
        let renewed = |at| Holder { last_message: Uptime(99 * SECOND), ..holder(at, true) };
        assert_eq!(decide(&mut claims, claim(6, 2, 100), renewed(99)), ClaimVerdict::Wait);
        assert_eq!(
            decide(&mut claims, claim(6, 2, 112), renewed(111)),
            ClaimVerdict::Wait,
            "nobody was heard"
        );
        assert_eq!(decide(&mut claims, claim(6, 2, 115), renewed(111)), ClaimVerdict::Wait, "nor could be");
        assert_eq!(decide(&mut claims, claim(6, 2, 126), renewed(111)), ClaimVerdict::Accept);
    }

    #[test]
    fn claimants_that_wait_for_a_gone_process_are_clones_of_each_other() {
        let gone = || Holder {
            claim: Some(Claim { process: Process::NONE, ..claim(0, 0, 100) }),
            last_message: Uptime(100 * SECOND),
            is_connected: false,
        };
        let mut claims = Claims::default();
        assert_eq!(decide(&mut claims, claim(6, 2, 101), gone()), ClaimVerdict::Wait);
        assert_eq!(decide(&mut claims, claim(5, 1, 102), gone()), ClaimVerdict::Clones);
        assert_eq!(decide(&mut claims, claim(6, 2, 111), gone()), ClaimVerdict::Clones);
        assert_eq!(decide(&mut claims, claim(6, 2, 131), gone()), ClaimVerdict::Clones);
        assert_eq!(decide(&mut claims, claim(6, 2, 132), gone()), ClaimVerdict::Accept);

        let mut claims = Claims::default();
        assert_eq!(decide(&mut claims, claim(6, 2, 101), gone()), ClaimVerdict::Wait);
        assert_eq!(decide(&mut claims, claim(7, 3, 102), gone()), ClaimVerdict::Wait, "it was restarted");
        assert_eq!(decide(&mut claims, claim(7, 3, 130), gone()), ClaimVerdict::Accept);
    }

    #[test]
    fn a_single_late_hello_of_a_gone_process_does_not_clone() {
        let mut claims = Claims::default();
        assert_eq!(decide(&mut claims, claim(4, 9, 100), holder(99, true)), ClaimVerdict::Wait);
        assert_eq!(decide(&mut claims, claim(5, 1, 105), holder(104, true)), ClaimVerdict::Accept);
        // A claim that long ago does not count any more.
        assert_eq!(decide(&mut claims, claim(4, 9, 200), holder(199, true)), ClaimVerdict::Wait);
    }
}
