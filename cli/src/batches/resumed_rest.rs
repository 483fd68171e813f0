//! The members of a batch that have not succeeded after its retries.

use reqwest::Method;
use serde_json::Value;

use crate::api::{Api, parse};
use crate::jobs;
use crate::view::{BatchSummary, RetriedBatch};

/// Members of which the latest attempt has not succeeded. Members that were skipped are none of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rest {
    /// Those that a retry of the batch would repeat.
    pub(super) retriable: u64,
    /// Those that somebody cancelled.
    cancelled: u64,
    /// Those that have not ended.
    unended: u64,
    /// Those in whose place a job of another request runs, by a unique key or a limit.
    replaced: u64,
    /// Those that are no longer kept: their retries are not known.
    removed: u64,
}

impl Rest {
    /// Asks the server for the rest of a batch that has ended.
    ///
    /// # Errors
    /// Those of the requests.
    pub(super) async fn of(api: &Api, first: &BatchSummary) -> anyhow::Result<Self> {
        if first.state == "succeeded" {
            return Ok(Self::default());
        }
        let id = first.id.to_string();
        let request = api.request(Method::POST, &["api", "batches", &id, "retry"]).query(&[("dry_run", "1")]);
        let counted: RetriedBatch = parse(api, &api.json(request).await?)?;
        let mut rest = Self {
            retriable: counted.matched,
            cancelled: counted.cancelled,
            unended: counted.unended.into(),
            ..Self::default()
        };
        if rest.is_nothing() {
            let cancelled = members(api, &id, "cancelled", &[("latest", "1".to_owned())]).await?;
            rest.replaced = cancelled.iter().filter(|member| is_replaced(member)).count() as u64;
        }
        if first.removed > 0 {
            let kept = members(api, &id, "failed,expired,lost,cancelled", &[]).await?;
            let counted = u64::from(first.counts.failures()) + u64::from(first.counts.cancelled);
            rest.removed = counted.saturating_sub(kept.len() as u64);
        }
        Ok(rest)
    }

    /// True if all members have succeeded or were skipped.
    pub(super) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// `2 members have not succeeded, 1 was cancelled`.
    pub(super) fn in_words(&self) -> String {
        let parts = [
            (self.retriable, "has not succeeded", "have not succeeded"),
            (self.cancelled, "was cancelled", "were cancelled"),
            (self.unended, "has not ended", "have not ended"),
            (self.replaced, "was replaced by a newer job", "were replaced by newer jobs"),
            (
                self.removed,
                "is no longer kept, and it is not known whether it was repeated",
                "are no longer kept, and it is not known whether they were repeated",
            ),
        ];
        let parts = parts.into_iter().filter(|(count, ..)| *count > 0);
        let words = parts.enumerate().map(|(at, (count, one, several))| {
            let noun = match (at, count) {
                (0, 1) => " member",
                (0, _) => " members",
                _ => "",
            };
            format!("{count}{noun} {}", if count == 1 { one } else { several })
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// The next command of an operator.
    pub(super) fn next_step(&self, first: u64) -> String {
        match (self.retriable, self.cancelled) {
            (0, 1..) => format!("to repeat these: longshore batch {first} retry --cancelled"),
            _ => format!("'longshore batch {first} results --latest' shows the members"),
        }
    }
}

/// The members of a batch in these states.
async fn members(
    api: &Api,
    batch: &str,
    states: &str,
    more: &[(&'static str, String)],
) -> anyhow::Result<Vec<Value>> {
    let query = [&[("batch", batch.to_owned()), ("state", states.to_owned())][..], more].concat();
    Ok(jobs::fetch_jobs(api, &query, usize::MAX).await?.0)
}

/// A newer job has the unique key of the job, or its place in a limit. A retry of the batch leaves it out.
fn is_replaced(job: &Value) -> bool {
    let reason = job["reason"].as_str().unwrap_or_default();
    ["cancelled by job ", "cancelled: replaced by "].iter().any(|it| reason.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_in_words_names_the_members_once() {
        assert!(Rest::default().is_nothing());
        let rest = Rest { retriable: 2, cancelled: 1, ..Rest::default() };
        assert_eq!(rest.in_words(), "2 members have not succeeded, 1 was cancelled");
        assert_eq!(rest.next_step(7), "'longshore batch 7 results --latest' shows the members");
        let rest = Rest { cancelled: 1, ..Rest::default() };
        assert_eq!(rest.in_words(), "1 member was cancelled");
        assert_eq!(rest.next_step(7), "to repeat these: longshore batch 7 retry --cancelled");
    }

    #[test]
    fn a_replaced_member_is_told_by_its_reason() {
        for (reason, expected) in [
            ("cancelled: replaced by job 9, which has its unique key", true),
            ("cancelled by job 9", true),
            ("cancelled by http 10.0.0.7 token ann", false),
            ("skipped: job 3 succeeded", false),
        ] {
            assert_eq!(is_replaced(&serde_json::json!({ "reason": reason })), expected, "{reason}");
        }
    }
}
