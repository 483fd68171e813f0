//! `longshore batch ID retry`: a new batch of the members that have not succeeded.

use reqwest::Method;
use serde_json::Value;

use super::made::print_made;
use super::{Flags, Output, follow};
use crate::api::{self, Api, parse};
use crate::bulk;
use crate::failure::{Exit, Failure};
use crate::outage::{Awaited, Outage, until_answered};
use crate::records;
use crate::screen::{self, Format};
use crate::view::RetriedBatch;

/// Makes the batch, prints it, and waits for it if asked to.
///
/// # Errors
/// Members were refused, the batch did not succeed, and those of the requests.
pub(super) async fn retry(api: &Api, flags: Flags) -> anyhow::Result<()> {
    let format = flags.common.format;
    flags.refuse_filters("retry")?;
    flags.refuse_lifting("retry")?;
    if flags.follow {
        records::refuse_records(format)?;
    }
    let id = flags.id.to_string();
    let path = ["api", "batches", &id, "retry"];
    if flags.dry_run {
        return count(api, &flags, &path).await;
    }
    let key = api::idempotency_key(flags.key.as_deref())?;
    let limit = flags.wait.or(flags.follow.then_some(None));
    let mut outage = limit.map(Outage::before_first_answer);
    let mut counts_only = None;
    if !flags.yes {
        let count = async || bulk::count(api, &path, &choice(&flags)).await;
        match until_answered(outage.as_mut(), Awaited::Nothing, count).await? {
            // With the key of an earlier command the server tells the batch that it made.
            0 if flags.key.is_some() => {}
            // A member that fails from now on was not counted, so nobody was asked about it.
            0 => counts_only = Some([("dry_run", "1")]),
            count => {
                bulk::ask("retry", "the batch has", &retriable(count))?;
                // The time for the answer of a person is not part of the wait.
                outage = limit.map(Outage::before_first_answer);
            }
        }
    }
    let request = api.request(Method::POST, &path).query(&limits(&flags));
    let request = request.query(&choice(&flags)).query(&counts_only);
    let made = api.create_job_until_interrupt(request, &key, outage.as_mut()).await?;
    let retried: RetriedBatch = parse(api, &made.json)?;
    if let (Some(_), Some(new)) = (&flags.key, &retried.batch) {
        made.note_batch_replay(new.batch);
    }
    for refusal in &retried.refusals {
        screen::note(&format!("longshore: job {}: {}", refusal.job, refusal.detail));
    }
    if retried.refused > 0 {
        screen::note(&format!("longshore: {} refused of {}", retried.refused, jobs(retried.matched)));
    }
    if let Some(new) = retried.batch.as_ref().filter(|new| new.count == 0 && new.duplicates > 0) {
        let text =
            format!("longshore: {} not created: others have their unique keys", jobs(new.duplicates.into()));
        screen::note(&text);
    }
    let left_out = others(&retried);
    if retried.batch.as_ref().is_some_and(|new| new.count > 0 && !new.existing) && !left_out.is_empty() {
        screen::note(&format!("longshore: not in the new batch{left_out}"));
    }
    match retried.batch.filter(|new| new.count > 0) {
        Some(new) if flags.follow => {
            screen::note(&format!("longshore: batch {} has {}", new.batch, jobs(new.count.into())));
            follow(api, format, new.batch).await?;
        }
        Some(_) => {
            print_made(api, &made.json, &flags.output(), outage).await?;
        }
        None => {
            let retried: RetriedBatch = parse(api, &made.json)?;
            print_nothing(&flags.output(), &id, &made.json, &retried)?;
        }
    }
    if retried.refused > 0 { Err(Failure::silent(Exit::Conflict).into()) } else { Ok(()) }
}

/// Tells how many members would be in the new batch.
async fn count(api: &Api, flags: &Flags, path: &[&str]) -> anyhow::Result<()> {
    let request = api.request(Method::POST, path).query(&limits(flags)).query(&choice(flags));
    let answer = api.json(request.query(&[("dry_run", "1")])).await?;
    if records::print(flags.common.format, &answer, "retry_of")? {
        return Ok(());
    }
    let counted: RetriedBatch = parse(api, &answer)?;
    let text = retriable(counted.matched.saturating_sub(counted.refused));
    let others = others(&counted);
    screen::line(&format!("batch {} has {text}: that is the size of the new batch{others}", flags.id))?;
    if counted.refused > 0 {
        screen::note(&format!("longshore: {} more cannot be retried", counted.refused));
    }
    Ok(())
}

/// The limits of the new batch that were given.
fn limits(flags: &Flags) -> Vec<(&'static str, u32)> {
    let limits = [("concurrency", flags.concurrency), ("max_failures", flags.max_failures)];
    limits.into_iter().filter_map(|(name, limit)| Some((name, limit?))).collect()
}

/// The query for members that somebody cancelled.
fn choice(flags: &Flags) -> Vec<(&'static str, String)> {
    Vec::from_iter(flags.cancelled.then(|| ("cancelled", "1".to_owned())))
}

/// Says that no batch was made.
fn print_nothing(output: &Output, id: &str, answer: &Value, retried: &RetriedBatch) -> anyhow::Result<()> {
    let text = match (retried.matched, &*others(retried)) {
        (0, "") => format!("no member of batch {id} is left to be retried"),
        (0, others) => format!("batch {id}: 0 members can be retried{others}"),
        _ => "no batch was made".to_owned(),
    };
    match output.format {
        Format::Table | Format::Wide if !output.quiet => screen::line(&text),
        Format::Table | Format::Wide | Format::Name => {
            screen::note(&format!("longshore: {text}"));
            Ok(())
        }
        format => records::print(format, answer, "batch").map(drop),
    }
}

/// The members that would be repeated: the batch has others, too.
fn retriable(count: u64) -> String {
    format!("{} that can be retried", screen::counted(count, "member"))
}

/// The members beside these that have not succeeded, as the end of a sentence; empty if there are none.
fn others(retried: &RetriedBatch) -> String {
    let cancelled = match retried.cancelled {
        0 => String::new(),
        1 => "; 1 was cancelled: add --cancelled".to_owned(),
        count => format!("; {count} were cancelled: add --cancelled"),
    };
    let unended = match retried.unended {
        0 => String::new(),
        1 => "; 1 has not ended".to_owned(),
        count => format!("; {count} have not ended"),
    };
    cancelled + &unended
}

fn jobs(count: u64) -> String {
    screen::counted(count, "job")
}
