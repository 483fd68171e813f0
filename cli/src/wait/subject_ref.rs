//! The subjects of a wait as the command line names them.

use super::Subject;
use crate::api::Api;
use crate::job_refs::{self, JobRef};
use crate::jobs;
use crate::outage::{Awaited, Outage, until_answered};

/// Jobs or a batch, as the command line names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SubjectRef {
    Jobs(JobRef),
    Batch(u64),
}

/// Parses the id of a job, members of a batch, or a batch.
pub(super) fn parse(text: &str) -> Result<SubjectRef, String> {
    match text.strip_prefix("batch:") {
        Some(id) => jobs::parse_job_id(id)
            .map(SubjectRef::Batch)
            .map_err(|_| "a batch is written batch:100; 'longshore batches' lists them".to_owned()),
        None => job_refs::parse_several(text).map(SubjectRef::Jobs),
    }
}

/// The jobs and batches, in this order.
///
/// # Errors
/// There is no such member, and those of the requests; the server was away for too long.
pub(super) async fn resolve(
    api: &Api,
    refs: &[SubjectRef],
    outage: &mut Outage,
) -> anyhow::Result<Vec<Subject>> {
    let mut subjects = Vec::with_capacity(refs.len());
    for it in refs {
        match it {
            SubjectRef::Batch(id) => subjects.push(Subject::Batch(*id)),
            SubjectRef::Jobs(JobRef::Id(id)) => subjects.push(Subject::Job(*id)),
            SubjectRef::Jobs(members) => {
                let members = std::slice::from_ref(members);
                let ask = async || job_refs::ids(api, members).await;
                let ids = until_answered(Some(&mut *outage), Awaited::Nothing, ask).await?;
                subjects.extend(ids.into_iter().map(Subject::Job));
            }
        }
    }
    Ok(subjects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_a_job_or_a_batch() {
        assert_eq!(parse("12"), Ok(SubjectRef::Jobs(JobRef::Id(12))));
        assert_eq!(parse("batch:7"), Ok(SubjectRef::Batch(7)));
        assert!(matches!(parse("7[0-3]"), Ok(SubjectRef::Jobs(JobRef::Members(7, _)))));
        assert!(parse("batch:0").unwrap_err().contains("written batch:100"));
        assert!(parse("banana").unwrap_err().contains("a whole number from 1"));
    }
}
