//! Chooses the past slots of a schedule that a backfill makes jobs of. A pure function of the schedule and of a reading of its ledger.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use protocol::{JobId, Timestamp};

use super::Schedule;

/// How many jobs one request makes at most: all of them are decided in one step and committed together.
pub const SLOTS_MAX: usize = 1_000;

/// How many slots the range of one request has at most, those included that have their job already.
pub const RANGE_MAX: usize = 10_000;

/// The ledger's facts about a range of slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerReading {
    /// The cursor of the schedule: later slots are decided by the schedule itself. Absent: it was never seen.
    pub decided_until: Option<Timestamp>,
    /// Slots up to here may have become jobs that the ledger has forgotten: its rows were deleted, or the store was restored.
    pub forgotten_until: Option<Timestamp>,
    /// Slots of the range that became jobs.
    pub fired: BTreeMap<Timestamp, JobId>,
}

/// The fate of a slot in a backfill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotFate {
    /// It becomes a job.
    Open,
    /// It has become this job before.
    Fired(JobId),
    /// It is the nearest one to a slot of an earlier rule of the schedule, which became this job.
    Covered(JobId),
    /// Nobody knows whether it has become a job before, so it becomes none now.
    Forgotten,
    /// The schedule itself will decide it.
    Undecided,
}

/// There are too many slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooManySlots {
    /// More than [`RANGE_MAX`] in the range.
    InRange,
    /// More than [`SLOTS_MAX`] would become jobs; at least this number.
    Open(usize),
}

/// The range of the ledger that a plan for `[from, to]` needs: to the slots next to it, because a job of an earlier rule may stand for one of
/// them instead.
#[must_use]
pub fn reading_range(schedule: &Schedule, from: Timestamp, to: Timestamp) -> (Timestamp, Timestamp) {
    let far = Timestamp(from.0.saturating_sub(NEIGHBOUR_MILLIS_MAX));
    let before = schedule.last_slot_in(far, Timestamp(from.0.saturating_sub(1)));
    (before.unwrap_or(from), schedule.next_slot_after(to).unwrap_or(to))
}

/// How far before a range its neighbour is looked for: slots are at most a leap year apart, or nearly alone.
const NEIGHBOUR_MILLIS_MAX: i64 = 366 * 86_400_000;

/// The slots in `[from, to]`, in order. The reading is that of their [`reading_range`].
///
/// # Errors
/// There are more than a request may have, or enough have fired under an earlier rule for the reading to lack some.
pub fn plan(
    schedule: &Schedule,
    from: Timestamp,
    to: Timestamp,
    reading: &LedgerReading,
) -> Result<Vec<(Timestamp, SlotFate)>, TooManySlots> {
    // Those of an earlier rule count: a slot that the reading lacks would look open.
    if reading.fired.len() > RANGE_MAX + NEIGHBOURS {
        return Err(TooManySlots::InRange);
    }
    let (first, end) = reading_range(schedule, from, to);
    let mut slots = Vec::new();
    let mut last = Timestamp(first.0.saturating_sub(1));
    while let Some(slot) = schedule.next_slot_after(last).filter(|slot| *slot <= end) {
        if slots.len() == RANGE_MAX + NEIGHBOURS {
            return Err(TooManySlots::InRange);
        }
        let fate = if reading.decided_until.is_none_or(|until| slot > until) {
            SlotFate::Undecided
        } else if let Some(job) = reading.fired.get(&slot) {
            SlotFate::Fired(*job)
        } else if reading.forgotten_until.is_some_and(|until| slot <= until) {
            SlotFate::Forgotten
        } else {
            SlotFate::Open
        };
        slots.push((slot, fate));
        last = slot;
    }
    cover(reading, &mut slots);
    slots.retain(|(slot, _)| (from..=to).contains(slot));
    let open = slots.iter().filter(|(_, fate)| *fate == SlotFate::Open).count();
    match () {
        () if slots.len() > RANGE_MAX => Err(TooManySlots::InRange),
        () if open > SLOTS_MAX => Err(TooManySlots::Open(open)),
        () => Ok(slots),
    }
}

/// The slots next to a range, one on each side.
pub const NEIGHBOURS: usize = 2;

/// A rule that was changed from 02:00 to 03:00 has other slots on each day. The day has its job if the earlier rule made one: it stands for
/// the slot that is the nearest to its own.
fn cover(reading: &LedgerReading, slots: &mut [(Timestamp, SlotFate)]) {
    for (fired, job) in &reading.fired {
        let next = slots.partition_point(|(slot, _)| slot < fired);
        let distance = |index: &usize| slots[*index].0.0.abs_diff(fired.0);
        let beside = [next.checked_sub(1), Some(next).filter(|next| *next < slots.len())];
        let Some(nearest) = beside.into_iter().flatten().min_by_key(distance) else { continue };
        let (slot, fate) = &mut slots[nearest];
        if slot != fired && *fate == SlotFate::Open {
            *fate = SlotFate::Covered(*job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Rule, Zone};

    fn minutely() -> Schedule {
        Schedule::new("a", None, Rule::every("1m").expect("a good rule"), Zone::utc())
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp(minute * 60_000)
    }

    #[test]
    fn each_slot_of_the_range_has_one_fate() {
        let reading = LedgerReading {
            decided_until: Some(at(7)),
            forgotten_until: Some(at(3)),
            fired: [(at(3), JobId(1)), (at(5), JobId(2))].into(),
        };
        let slots = plan(&minutely(), at(2), at(8), &reading).expect("few");
        let fates: Vec<SlotFate> = slots.iter().map(|(_, fate)| *fate).collect();
        use SlotFate::{Fired, Forgotten, Open, Undecided};
        let (one, two) = (Fired(JobId(1)), Fired(JobId(2)));
        assert_eq!(fates, [Forgotten, one, Open, two, Open, Open, Undecided]);
        assert_eq!((slots[0].0, slots[6].0), (at(2), at(8)), "both ends belong to the range");
    }

    #[test]
    fn a_schedule_that_was_never_seen_decides_its_slots_itself() {
        let slots = plan(&minutely(), at(2), at(2), &LedgerReading::default()).expect("one");
        assert_eq!(slots, [(at(2), SlotFate::Undecided)]);
    }

    #[test]
    fn a_job_of_an_earlier_rule_covers_the_nearest_slot() {
        let hour = |hour: i64| Timestamp(hour * 3_600_000);
        let daily = Rule::cron("0 3 * * *").expect("a good rule");
        let daily = Schedule::new("a", Some("main"), daily, Zone::utc());
        // The rule was 02:00, then 04:00; on the third day nothing was made.
        let fired = [(hour(2), JobId(1)), (hour(28), JobId(2)), (hour(75), JobId(3)), (hour(76), JobId(4))];
        let fates = |from, to| -> Vec<SlotFate> {
            let (first, last) = reading_range(&daily, hour(from), hour(to));
            let range = first..=last;
            let fired = fired.iter().copied().filter(|(slot, _)| range.contains(slot)).collect();
            let decided_until = Some(hour(200));
            let reading = LedgerReading { decided_until, fired, ..LedgerReading::default() };
            let slots = plan(&daily, hour(from), hour(to), &reading).expect("few");
            slots.into_iter().map(|(_, fate)| fate).collect()
        };
        use SlotFate::{Covered, Fired, Open};
        let days = [Covered(JobId(1)), Covered(JobId(2)), Open, Fired(JobId(3)), Open];
        assert_eq!(fates(0, 100), days);
        assert_eq!(fates(28, 52), [Open], "the job at 04:00 belongs to the slot before the range");
        assert_eq!(fates(26, 27), [Covered(JobId(2))], "the job at 04:00 is behind the range");
    }

    #[test]
    fn too_many_slots_are_refused_before_they_are_all_counted() {
        let reading = LedgerReading { decided_until: Some(at(1_000_000_000)), ..LedgerReading::default() };
        let plan = |minutes| plan(&minutely(), at(1), at(minutes), &reading);
        assert_eq!(plan(1_000).expect("as many as may be").len(), SLOTS_MAX);
        assert_eq!(plan(1_001), Err(TooManySlots::Open(1_001)));
        assert_eq!(plan(1_000_000_000), Err(TooManySlots::InRange));
    }

    #[test]
    fn a_reading_that_may_lack_slots_of_an_earlier_rule_is_not_believed() {
        let fired = |slots: i64| (1..=slots).map(|second| (Timestamp(second * 1_000), JobId(1))).collect();
        let reading = |slots| LedgerReading {
            decided_until: Some(at(1_000_000)),
            fired: fired(slots),
            ..LedgerReading::default()
        };
        let plan = |slots| plan(&minutely(), at(1), at(2), &reading(slots));
        let known = 10_000 + NEIGHBOURS as i64;
        assert_eq!(plan(known).expect("all are known").len(), 2);
        assert_eq!(plan(known + 1), Err(TooManySlots::InRange));
    }
}
