//! The members of a batch that have not succeeded, each with the job that stands for it: the last of its retries, else the member itself.

use server::cancel_cause::CancelCause;

use crate::api::{Api, parse};
use crate::jobs;
use crate::view::{self, JobView as _};

/// Members of which the latest attempt has not succeeded. Members that were skipped are none of them. Each list has the ids of these
/// attempts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rest {
    /// Those that have not ended.
    pub(super) live: Vec<u64>,
    /// Those that failed, expired, were lost, or were cancelled by `max_failures`.
    failed: Vec<u64>,
    /// Those that did not start, because a job before them did not end as required.
    unstarted: Vec<u64>,
    /// Those that somebody cancelled.
    cancelled: Vec<u64>,
    /// Those in whose place a job of another request runs, by a unique key or a limit.
    replaced: Vec<u64>,
    /// Those that failed, and whose retry is no longer kept: it may have succeeded. The server does not tell these from acknowledged ones.
    pub(super) unknown: Vec<u64>,
}

impl Rest {
    /// Asks the server for the rest of a batch.
    ///
    /// # Errors
    /// Those of the requests.
    pub(super) async fn of(api: &Api, first: u64) -> anyhow::Result<Self> {
        let query = [
            ("batch", first.to_string()),
            ("latest", "1".to_owned()),
            ("state", UNSUCCESSFUL_STATES.to_owned()),
        ];
        let (members, _) = jobs::fetch_jobs(api, &query, usize::MAX).await?;
        let mut rest = Self::default();
        for member in &members {
            rest.add(&parse(api, member)?);
        }
        Ok(rest)
    }

    fn add(&mut self, job: &view::Job) {
        let list = match &*job.state {
            _ if job.member_of.is_some() => return,
            _ if !job.has_ended() => &mut self.live,
            "cancelled" => match CancelCause::of(&job.reason) {
                CancelCause::Skipped => return,
                CancelCause::MaxFailures => &mut self.failed,
                CancelCause::Predecessor => &mut self.unstarted,
                CancelCause::Replaced => &mut self.replaced,
                CancelCause::Request => &mut self.cancelled,
            },
            _ if !job.unresolved => &mut self.unknown,
            _ => &mut self.failed,
        };
        list.push(job.id);
    }

    /// True if all members have succeeded or were skipped.
    pub(super) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// The number of members that a retry of the batch may repeat.
    pub(super) const fn repeatable(&self) -> usize {
        self.failed.len() + self.unstarted.len()
    }

    /// True if all that is left was refused by the last retry.
    pub(super) const fn is_refused(&self, refused: u64) -> bool {
        let is_other = !self.cancelled.is_empty() || !self.replaced.is_empty();
        refused > 0 && !is_other && refused == self.repeatable() as u64
    }

    /// `2 members have not succeeded (jobs 4, 5), 1 was cancelled (job 6)`.
    pub(super) fn in_words(&self) -> String {
        let parts = [
            (&self.failed, "has not succeeded", "have not succeeded"),
            (
                &self.unstarted,
                "has not started, because a job before it did not end as required",
                "have not started, because jobs before them did not end as required",
            ),
            (&self.cancelled, "was cancelled", "were cancelled"),
            (&self.replaced, "was replaced by a newer job", "were replaced by newer jobs"),
        ];
        let parts = parts.into_iter().filter(|(ids, ..)| !ids.is_empty());
        let words = parts.enumerate().map(|(at, (ids, one, several))| {
            let noun = match (at, ids.len()) {
                (0, 1) => " member",
                (0, _) => " members",
                _ => "",
            };
            let told = if ids.len() == 1 { one } else { several };
            format!("{}{noun} {told} ({})", ids.len(), names(ids))
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// The next command of an operator.
    pub(super) fn next_step(&self, first: u64) -> String {
        match (self.repeatable(), self.cancelled.len()) {
            (0, 1..) => format!("to repeat these: longshore batch {first} retry --cancelled"),
            _ => format!("'longshore batch {first} results --latest' shows the members"),
        }
    }
}

/// `job 4`, or `jobs 4, 5, 6, 7, 8 and 20 more`.
pub(super) fn names(ids: &[u64]) -> String {
    let shown = ids.iter().take(NAMES_MAX).map(u64::to_string).collect::<Vec<_>>().join(", ");
    match ids.len() {
        1 => format!("job {shown}"),
        count if count <= NAMES_MAX => format!("jobs {shown}"),
        count => format!("jobs {shown} and {} more", count - NAMES_MAX),
    }
}

/// All states but success.
const UNSUCCESSFUL_STATES: &str =
    "scheduled,queued,assigned,running,quarantined,failed,cancelled,expired,lost";
/// Names in a message; the rest is counted.
const NAMES_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64, state: &'static str, reason: &str) -> view::Job {
        let (state, reason) = (state.into(), reason.to_owned());
        view::Job { id, state, reason, ..view::Job::default() }
    }

    #[test]
    fn the_rest_in_words_names_the_members() {
        assert!(Rest::default().is_nothing());
        let rest = Rest { failed: vec![4, 5], cancelled: vec![6], ..Rest::default() };
        assert_eq!(rest.in_words(), "2 members have not succeeded (jobs 4, 5), 1 was cancelled (job 6)");
        assert_eq!(rest.next_step(7), "'longshore batch 7 results --latest' shows the members");
        let rest = Rest { cancelled: (1..=7).collect(), ..Rest::default() };
        assert_eq!(rest.in_words(), "7 members were cancelled (jobs 1, 2, 3, 4, 5 and 2 more)");
        assert_eq!(rest.next_step(7), "to repeat these: longshore batch 7 retry --cancelled");
    }

    #[test]
    fn each_member_is_counted_by_its_latest_attempt() {
        let mut rest = Rest::default();
        let unresolved = view::Job { unresolved: true, ..job(1, "failed", "exit code 1") };
        for job in [
            unresolved,
            job(2, "failed", "exit code 1"),
            job(3, "running", ""),
            job(4, "cancelled", "cancelled: replaced by job 9 of the same unique key"),
            job(5, "cancelled", "cancelled by job 9"),
            job(6, "cancelled", "cancelled by http 10.0.0.7 token ann"),
            job(7, "cancelled", "skipped, because job 3 before it was skipped"),
            job(8, "cancelled", "job 1, which it comes after, failed"),
            job(9, "cancelled", "batch max_failures reached"),
            job(10, "cancelled", "cancelled by its batch, in which max_failures was reached"),
            view::Job { member_of: Some(1), ..job(11, "failed", "exit code 1") },
        ] {
            rest.add(&job);
        }
        let expected = Rest {
            live: vec![3],
            failed: vec![1, 9, 10],
            unstarted: vec![8],
            cancelled: vec![6],
            replaced: vec![4, 5],
            unknown: vec![2],
        };
        assert_eq!(rest, expected);
    }
}
