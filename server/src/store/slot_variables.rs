//! The variables that tell a container the slot of a schedule. They are stored with a job, so its retry has them, too.

use protocol::{JobId, Timestamp};
use scheduler::hooks::PARENT_VARIABLE;
use scheduler::schedule::{SCHEDULE_VARIABLE, SLOT_VARIABLE};
use scheduler::step::AddedJob;

use super::JobSlot;

/// The instant of the slot of the job that began a chain, for the jobs that hooks and `after` add to the chain.
pub const PARENT_SLOT_VARIABLE: &str = "LONGSHORE_PARENT_SCHEDULED_AT";

/// True for the variables about slots.
#[must_use]
pub fn is_about_slots(name: &str) -> bool {
    [SLOT_VARIABLE, SCHEDULE_VARIABLE, PARENT_SLOT_VARIABLE].contains(&name)
}

/// The schedule and the slot that a container with these variables is told.
#[must_use]
pub fn slot_in(environment: &[(String, String)]) -> Option<JobSlot> {
    let at: jiff::Timestamp = value(environment, SLOT_VARIABLE)?.parse().ok()?;
    let schedule = value(environment, SCHEDULE_VARIABLE)?.to_owned();
    Some(JobSlot { schedule, at: Timestamp(at.as_millisecond()) })
}

/// The slot of the job that began the chain, of which a container with these variables is told.
#[must_use]
pub fn parent_slot_in(environment: &[(String, String)]) -> Option<Timestamp> {
    let at: jiff::Timestamp = value(environment, PARENT_SLOT_VARIABLE)?.parse().ok()?;
    Some(Timestamp(at.as_millisecond()))
}

/// The instant for the jobs that follow one with these variables: its own slot, or that of the job that began its chain.
#[must_use]
pub fn instant_for_followers(environment: &[(String, String)]) -> Option<&str> {
    value(environment, SLOT_VARIABLE).or_else(|| value(environment, PARENT_SLOT_VARIABLE))
}

/// The parent of the job of a hook. The store adds the parent's instant to the job's variables, as the scheduler knows no slots of jobs.
#[must_use]
pub fn hook_parent(added: &AddedJob) -> Option<JobId> {
    // A retry has the variables of the job that it repeats, also if the parent is gone.
    let details = added.details.as_ref().filter(|_| added.retry_of.is_none())?;
    value(&details.overrides.environment, PARENT_VARIABLE)?.parse().ok().map(JobId)
}

fn value<'e>(environment: &'e [(String, String)], name: &str) -> Option<&'e str> {
    environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_slot_is_an_instant_of_a_schedule() {
        let at = (SLOT_VARIABLE, "2026-03-01T02:00:00.000Z");
        let whole = variables(&[at, (SCHEDULE_VARIABLE, "nightly")]);
        let slot = JobSlot { schedule: "nightly".into(), at: Timestamp(1_772_330_400_000) };
        assert_eq!(slot_in(&whole), Some(slot));
        assert_eq!(slot_in(&variables(&[at])), None);
        assert_eq!(slot_in(&variables(&[(SLOT_VARIABLE, "soon"), (SCHEDULE_VARIABLE, "nightly")])), None);
    }

    #[test]
    fn the_slot_of_the_first_job_of_a_chain_is_read_by_itself() {
        let followed = variables(&[(PARENT_SLOT_VARIABLE, "2026-03-01T02:00:00.000Z")]);
        assert_eq!(parent_slot_in(&followed), Some(Timestamp(1_772_330_400_000)));
        assert_eq!(slot_in(&followed), None);
        assert_eq!(parent_slot_in(&variables(&[(SLOT_VARIABLE, "2026-03-01T02:00:00.000Z")])), None);
    }

    #[test]
    fn followers_get_the_slot_of_the_job_before_them_or_the_one_that_it_got() {
        let (own, earlier) = ((SLOT_VARIABLE, "own"), (PARENT_SLOT_VARIABLE, "earlier"));
        assert_eq!(instant_for_followers(&variables(&[earlier, own])), Some("own"));
        assert_eq!(instant_for_followers(&variables(&[earlier])), Some("earlier"));
        assert_eq!(instant_for_followers(&[]), None);
    }
}
