//! A batch that a verb has just made: prints it, and waits for its end if asked to.

use std::time::Duration;

use serde_json::Value;

use super::wait;
use crate::api::{Api, idempotency_key, parse};
use crate::outage::Outage;
use crate::records;
use crate::screen::{self, Format};
use crate::view;

/// Submits several jobs, and waits for them if asked to. There is an outage if the verb waits; the limit counts from its beginning.
pub(crate) async fn submit(
    api: &Api,
    request: reqwest::RequestBuilder,
    key: Option<&str>,
    output: &Output,
    mut outage: Option<Outage>,
) -> anyhow::Result<()> {
    let made = api.create_job_until_interrupt(request, &idempotency_key(key)?, outage.as_mut()).await?;
    // Without a key it is random, so only a repetition of this request can have used it.
    if key.is_some() {
        made.note_batch_replay(parse::<view::Batch>(api, &made.json)?.batch);
    }
    print_made(api, &made.json, output, outage).await
}

/// Prints a batch that was just made, and waits for its end if asked to, with the outage of the request that made it.
pub(super) async fn print_made(
    api: &Api,
    made: &Value,
    output: &Output,
    outage: Option<Outage>,
) -> anyhow::Result<()> {
    let batch: view::Batch = parse(api, made)?;
    note_left_out(&batch);
    note_key(&batch);
    if batch.count == 0 {
        // There is no batch to name.
        if output.format == Format::Name {
            return Ok(());
        }
        return records::print(output.format, made, "batch").map(drop);
    }
    if let Some(limit) = output.wait {
        if !output.quiet {
            let jobs = screen::counted(batch.count, "job");
            screen::note(&format!("longshore: batch {} has {jobs}", batch.batch));
        } else if output.format.is_text() {
            screen::line(&batch.batch.to_string())?;
        }
        return wait(api, batch.batch, limit, outage.unwrap_or_default(), output).await;
    }
    match output.format {
        Format::Table | Format::Wide if output.quiet => screen::line(&batch.batch.to_string()),
        Format::Table | Format::Wide => screen::line(&format!(
            "batch {id} has {}, {} to {}; follow it with: longshore batch {id} --wait",
            screen::counted(batch.count, "job"),
            batch.first,
            batch.last,
            id = batch.batch
        )),
        format => records::print(format, made, "batch").map(drop),
    }
}

/// Notes the server's warning about a batch that was just made, and the jobs that it does not have.
pub(super) fn note_left_out(batch: &view::Batch) {
    if let Some(warning) = &batch.warning {
        screen::note(&format!("warning: {}", warning.text));
    }
    if batch.duplicates > 0 {
        let jobs = screen::counted(batch.duplicates, "job");
        screen::note(&format!("longshore: {jobs} not created: others have their unique keys"));
    }
}

/// Notes that another batch had the unique key.
pub(super) fn note_key(batch: &view::Batch) {
    let id = batch.batch;
    if batch.existing {
        screen::note(&format!("longshore: batch {id} has the unique key; no second batch was created"));
    }
    if let Some(other) = batch.replaces {
        screen::note(&format!("longshore: batch {other} is being cancelled, because batch {id} replaces it"));
    }
}

/// The output of `longshore run` about a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) format: Format,
    pub(crate) quiet: bool,
    /// Wait for the end, at most this long.
    pub(crate) wait: Option<Option<Duration>>,
}
