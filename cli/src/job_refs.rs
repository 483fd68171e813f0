//! Jobs as the command line names them: by id, or as members of a batch by their index. `1064[3]` is the member with the index 3 of batch
//! 1064; `1064[3-9]` and `1064[3,7]` are several.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use server::positions::Positions;

use crate::api::Api;
use crate::failure::{Exit, Failure};
use crate::jobs;

/// A job, or members of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobRef {
    /// The job with this id.
    Id(u64),
    /// Members of the batch whose first job this is.
    Members(u64, Vec<Positions>),
}

/// Parses the id of a job, or one member of a batch.
pub(crate) fn parse_one(text: &str) -> Result<JobRef, String> {
    match parse_several(text)? {
        JobRef::Members(_, positions) if positions.len() > 1 || positions[0].first != positions[0].last => {
            Err("one job is needed here: a member of a batch is written '1064[3]'".to_owned())
        }
        one => Ok(one),
    }
}

/// Parses the id of a job, or members of a batch.
pub(crate) fn parse_several(text: &str) -> Result<JobRef, String> {
    let Some((batch, rest)) = text.split_once('[') else { return jobs::parse_job_id(text).map(JobRef::Id) };
    let list = rest
        .strip_suffix(']')
        .ok_or_else(|| "members of a batch are written '1064[3]', '1064[3-9]' or '1064[3,7]'".to_owned())?;
    let batch = batch.parse().ok().filter(|number| *number > 0);
    let batch = batch.ok_or_else(|| "before the bracket stands the number of a batch".to_owned())?;
    Ok(JobRef::Members(batch, Positions::read(list)?))
}

impl JobRef {
    /// True if the server is asked for the ids.
    pub(crate) const fn needs_request(&self) -> bool {
        matches!(self, Self::Members(..))
    }

    /// The id of the one job that [`parse_one`] has read.
    ///
    /// # Errors
    /// There is no such member, and those of the requests.
    pub(crate) async fn id(&self, api: &Api) -> anyhow::Result<u64> {
        match self {
            Self::Id(id) => Ok(*id),
            Self::Members(batch, positions) => {
                let ids = member_ids(api, *batch, positions).await?;
                ids.first().copied().ok_or_else(|| api.unexpected_response().into())
            }
        }
    }
}

/// The ids of these jobs, in this order, each once.
///
/// # Errors
/// There is no such member, and those of the requests.
pub(crate) async fn ids(api: &Api, refs: &[JobRef]) -> anyhow::Result<Vec<u64>> {
    let mut ids = Vec::with_capacity(refs.len());
    let mut known = HashSet::new();
    for it in refs {
        match it {
            JobRef::Id(id) => ids.push(*id),
            JobRef::Members(batch, positions) => ids.extend(member_ids(api, *batch, positions).await?),
        }
    }
    ids.retain(|id| known.insert(*id));
    Ok(ids)
}

/// The ids of members of a batch, in the order of the positions.
async fn member_ids(api: &Api, batch: u64, positions: &[Positions]) -> anyhow::Result<Vec<u64>> {
    let query = [("batch", batch.to_string()), ("index", in_words(positions))];
    let (members, _) = jobs::fetch_jobs(api, &query, MEMBERS_MAX).await?;
    let mut by_index: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for member in &members {
        let index = member.get("index").and_then(Value::as_u64).ok_or_else(|| api.unexpected_response())?;
        by_index.entry(index).or_default().push(jobs::job_id(api, member)?);
    }
    let mut ids = Vec::with_capacity(members.len());
    for it in positions {
        let before = ids.len();
        for (index, found) in by_index.range(u64::from(it.first)..=u64::from(it.last)) {
            if let ([_, _, ..], true) = (&found[..], it.first == it.last) {
                let text = format!("several members of batch {batch} have the index {index}");
                let hint = format!("name one by its id: longshore ls --batch {batch}");
                return Err(Failure::new(Exit::Conflict, text).hint(hint).into());
            }
            ids.extend(found.iter().rev());
        }
        // The server knows that the batch has or had them.
        if ids.len() == before {
            let text = format!("no member of batch {batch} with the index {} is kept", in_words(&[*it]));
            let hint = format!("those that are kept: longshore ls --batch {batch}");
            return Err(Failure::new(Exit::NotFound, text).hint(hint).into());
        }
    }
    Ok(ids)
}

/// The positions as the API takes them.
fn in_words(positions: &[Positions]) -> String {
    let word = |it: &Positions| match it.first == it.last {
        true => it.first.to_string(),
        false => format!("{}-{}", it.first, it.last),
    };
    positions.iter().map(word).collect::<Vec<_>>().join(",")
}

/// The most members of a batch.
const MEMBERS_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_batch_stand_in_brackets() {
        let range = |first, last| Positions { first, last };
        assert_eq!(parse_several("12"), Ok(JobRef::Id(12)));
        assert_eq!(parse_one("12[3]"), Ok(JobRef::Members(12, vec![range(3, 3)])));
        let several = JobRef::Members(12, vec![range(3, 9), range(11, 11)]);
        assert_eq!(parse_several("12[3-9,11]"), Ok(several));
        assert!(parse_one("12[3-9]").unwrap_err().contains("one job"));
        assert!(parse_one("12[3,4]").unwrap_err().contains("one job"));
        assert!(parse_one("banana").unwrap_err().contains("a whole number from 1"));
        for bad in ["12[", "12[3", "12[]", "[3]", "0[3]", "12[a]", "12[3]4", "12]3["] {
            assert!(parse_several(bad).is_err(), "{bad}");
        }
        assert_eq!(in_words(&[range(3, 9), range(11, 11)]), "3-9,11");
    }
}
