//! Whose word counts when more than one process says that it is a certain worker.
//!
//! Processes of a worker follow one another: its state directory is locked, and counts them. So whoever says Hello as another process
//! than the one that was let in last has come after it, and that one is gone; or it has a copy of the directory, and both are there.
//! A later start proves nothing: the copy counts on, too. What proves it is a sign of life of the one *behind* a Hello of the other.
//!
//! ```text
//!                   the one before is not connected    it is connected
//! a later start     let in: a restart                  waits: let in when that hangs up, or is silent for half a lease;
//! any other         waits for the end of its lease            if that is heard again, these are copies
//!
//! copies: all of them are refused, until one alone has been heard for a lease
//! ```
//!
//! A later start waits too, although it nearly always is a restart whose old connection is not known to be broken yet: what a copy says
//! of the attempts in its directory is wrong where the original still runs them, and it would be believed.

use alloc::string::String;
use alloc::vec::Vec;

use protocol::Uptime;
use protocol::order::Intervals;

use crate::step::Process;

/// What was heard of processes that say that they are one worker, beside the one that is let in.
#[derive(Debug, Default)]
pub struct Claims {
    /// Those that were heard last, the latest one behind. Two tell whether anybody else was heard.
    list: Vec<Claim>,
    /// Whether they are copies: then the one that was let in is among them.
    are_copies: bool,
    /// While at least two copies are heard: when that ends if nothing more comes, which an alarm waits for.
    pub until: Option<Uptime>,
}

/// A process that says that it is a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which.
    pub process: Process,
    /// Where it connects from.
    pub address: String,
    /// When it said so last.
    pub heard: Uptime,
    /// When it said so first, without a pause of a lease.
    pub since: Uptime,
}

/// The process that was let in last.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Which, and when it was heard last; a while in which we could not hear anybody counts as if it had been.
    pub claim: Option<Claim>,
    /// When something that it said was last read.
    pub spoke: Uptime,
    /// Whether it is connected.
    pub is_connected: bool,
}

/// What becomes of whoever says Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is the worker.
    Enter,
    /// It may be, if the one before is gone.
    Wait,
    /// It is one of several copies, as is the one that was let in.
    Copies,
}

impl Claims {
    /// Judges a Hello; from here on it has been heard.
    pub fn judge(&mut self, mut claim: Claim, holder: Holder, intervals: Intervals) -> Judgement {
        let (now, process, lease) = (claim.heard, claim.process, intervals.lease);
        if self.are_copies {
            self.note(claim, intervals);
            if self.list.iter().any(|other| other.process != process && other.heard + lease > now) {
                self.watch(intervals);
                return Judgement::Copies;
            }
            return self.end();
        }
        let Some(before) = holder.claim.filter(|before| before.process != process) else {
            return Judgement::Enter;
        };
        let follows = process.incarnation > before.process.incarnation;
        // Of several that claim it one after the other, the earlier ones are gone.
        let has_rival = self.list.iter().any(|other| {
            other.process != process
                && other.process.incarnation >= process.incarnation
                && other.heard + lease > now
        });
        if !holder.is_connected && !has_rival && (follows || before.heard + lease <= now) {
            return self.end();
        }
        claim.since = self.note(claim.clone(), intervals);
        let both_live = holder.is_connected && holder.spoke > claim.since;
        if both_live {
            self.list = alloc::vec![before.clone(), claim.clone()];
        }
        if both_live || (has_rival && !holder.is_connected) {
            self.are_copies = true;
            self.watch(intervals);
            return Judgement::Copies;
        }
        // Who lives would have said something, if we were there to hear it.
        if holder.is_connected && follows && before.heard.max(claim.since) + lease / 2 <= now {
            return self.end();
        }
        Judgement::Wait
    }

    /// A copy was heard although it is shut out: it has not been told yet.
    pub fn hear(&mut self, claim: Claim, intervals: Intervals) {
        if self.are_copies {
            self.note(claim, intervals);
            self.watch(intervals);
        }
    }

    /// Where copies were heard last.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.list.iter().filter(|_| self.until.is_some()).map(|claim| claim.address.as_str())
    }

    /// Only one is left.
    fn end(&mut self) -> Judgement {
        *self = Self::default();
        Judgement::Enter
    }

    /// For as long as this two of them count as heard.
    fn watch(&mut self, intervals: Intervals) {
        self.until = self.list.iter().map(|it| it.heard + intervals.lease).min();
    }

    /// Notes that somebody was heard, and since when it has been.
    fn note(&mut self, mut claim: Claim, intervals: Intervals) -> Uptime {
        if let Some(at) = self.list.iter().position(|it| it.process == claim.process) {
            let earlier = self.list.remove(at);
            if earlier.heard + intervals.lease > claim.heard {
                claim.since = earlier.since;
            }
            claim.heard = claim.heard.max(earlier.heard);
        }
        let since = claim.since;
        self.list.push(claim);
        self.list.sort_by_key(|it| it.heard);
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
        Claim { process, address: String::new(), heard: at, since: at }
    }

    fn holder(heard: u64, is_connected: bool) -> Holder {
        Holder { claim: Some(claim(5, 1, heard)), spoke: Uptime(heard * SECOND), is_connected }
    }

    fn judge(claims: &mut Claims, claim: Claim, holder: Holder) -> Judgement {
        claims.judge(claim, holder, Intervals::default())
    }

    #[test]
    fn a_reconnect_a_restart_and_a_first_process_are_let_in() {
        let nobody = Holder { claim: None, spoke: Uptime(0), is_connected: false };
        assert_eq!(judge(&mut Claims::default(), claim(1, 1, 100), nobody), Judgement::Enter);
        assert_eq!(judge(&mut Claims::default(), claim(5, 1, 100), holder(99, true)), Judgement::Enter);
        assert_eq!(judge(&mut Claims::default(), claim(6, 2, 100), holder(99, false)), Judgement::Enter);
    }

    #[test]
    fn a_restart_waits_half_a_lease_for_a_connection_that_nobody_knows_to_be_broken() {
        let mut claims = Claims::default();
        assert_eq!(judge(&mut claims, claim(6, 2, 100), holder(99, true)), Judgement::Wait);
        assert_eq!(judge(&mut claims, claim(6, 2, 114), holder(99, true)), Judgement::Wait);
        assert_eq!(judge(&mut claims, claim(6, 2, 115), holder(99, true)), Judgement::Enter);
        assert_eq!(judge(&mut claims, claim(7, 3, 116), holder(115, true)), Judgement::Wait);
        assert_eq!(judge(&mut claims, claim(7, 3, 117), holder(115, false)), Judgement::Enter);
    }

    #[test]
    fn a_machine_that_was_set_back_waits_for_the_end_of_the_lease() {
        for incarnation in [4, 5] {
            let mut claims = Claims::default();
            assert_eq!(judge(&mut claims, claim(incarnation, 2, 100), holder(99, false)), Judgement::Wait);
            assert_eq!(judge(&mut claims, claim(incarnation, 2, 128), holder(99, false)), Judgement::Wait);
            assert_eq!(judge(&mut claims, claim(incarnation, 2, 129), holder(99, false)), Judgement::Enter);
        }
    }

    #[test]
    fn copies_are_refused_until_one_alone_has_been_heard_for_a_lease() {
        for incarnation in [4, 5, 6] {
            let mut claims = Claims::default();
            let copy = |at| claim(incarnation, 2, at);
            assert_eq!(judge(&mut claims, copy(100), holder(99, true)), Judgement::Wait);
            assert_eq!(judge(&mut claims, copy(101), holder(101, true)), Judgement::Copies);
            let away = || holder(101, false);
            assert_eq!(judge(&mut claims, claim(5, 1, 111), away()), Judgement::Copies);
            assert_eq!(judge(&mut claims, claim(7, 3, 112), away()), Judgement::Copies, "a third one");
            assert_eq!(judge(&mut claims, claim(5, 1, 121), away()), Judgement::Copies);
            assert_eq!(judge(&mut claims, claim(5, 1, 141), away()), Judgement::Copies);
            assert_eq!(judge(&mut claims, claim(5, 1, 142), away()), Judgement::Enter);
        }
    }

    #[test]
    fn a_lease_that_was_renewed_because_we_were_away_is_no_sign_of_life() {
        let mut claims = Claims::default();
        let renewed = |at| Holder { spoke: Uptime(99 * SECOND), ..holder(at, true) };
        assert_eq!(judge(&mut claims, claim(6, 2, 100), renewed(99)), Judgement::Wait);
        assert_eq!(judge(&mut claims, claim(6, 2, 112), renewed(111)), Judgement::Wait, "nobody was heard");
        assert_eq!(judge(&mut claims, claim(6, 2, 115), renewed(111)), Judgement::Wait, "nor could be");
        assert_eq!(judge(&mut claims, claim(6, 2, 126), renewed(111)), Judgement::Enter);
    }

    #[test]
    fn copies_that_wait_for_a_process_that_is_gone_are_copies_of_each_other() {
        let gone = || Holder {
            claim: Some(Claim { process: Process::NONE, ..claim(0, 0, 100) }),
            spoke: Uptime(100 * SECOND),
            is_connected: false,
        };
        let mut claims = Claims::default();
        assert_eq!(judge(&mut claims, claim(6, 2, 101), gone()), Judgement::Wait);
        assert_eq!(judge(&mut claims, claim(5, 1, 102), gone()), Judgement::Copies);
        assert_eq!(judge(&mut claims, claim(6, 2, 111), gone()), Judgement::Copies);
        assert_eq!(judge(&mut claims, claim(6, 2, 131), gone()), Judgement::Copies);
        assert_eq!(judge(&mut claims, claim(6, 2, 132), gone()), Judgement::Enter);

        let mut claims = Claims::default();
        assert_eq!(judge(&mut claims, claim(6, 2, 101), gone()), Judgement::Wait);
        assert_eq!(judge(&mut claims, claim(7, 3, 102), gone()), Judgement::Wait, "it was restarted");
        assert_eq!(judge(&mut claims, claim(7, 3, 130), gone()), Judgement::Enter);
    }

    #[test]
    fn a_single_late_hello_of_a_process_that_is_gone_does_no_harm() {
        let mut claims = Claims::default();
        assert_eq!(judge(&mut claims, claim(4, 9, 100), holder(99, true)), Judgement::Wait);
        assert_eq!(judge(&mut claims, claim(5, 1, 105), holder(104, true)), Judgement::Enter);
        // Much later somebody else comes: what was said so long ago counts no more.
        assert_eq!(judge(&mut claims, claim(4, 9, 200), holder(199, true)), Judgement::Wait);
    }
}
