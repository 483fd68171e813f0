//! `longshore submit --resume`: a submitter that is run again goes on with the batch that its key has made.
//!
//! It waits for the batch and its retries, repeats once what has not succeeded, and waits for that. The server's retry of the first batch
//! knows the latest attempt of each member, so no member is repeated that has succeeded or goes on, whichever batch has it. If a retry may have
//! been removed by retention, nothing is repeated: it is not known how it ended.

use std::collections::BTreeSet;
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::made::note_left_out;
use super::resumed_rest::{Rest, names};
use super::{Output, show};
use crate::api::{Api, CreatedJob, idempotency_key, parse};
use crate::failure::{Exit, Failure, exit_of};
use crate::logs;
use crate::outage::{Awaited, Outage, until_answered};
use crate::progress::{self, Display};
use crate::records;
use crate::screen;
use crate::view::{self, BatchSummary, RetriedBatch};

/// Submits the jobs, or goes on with those that an earlier request with this key has made, until all have ended.
///
/// # Errors
/// Something of the batch has not succeeded in the end, the batch is no longer kept, the time is up, and those of the requests.
pub(crate) async fn resume(
    api: &Api,
    request: RequestBuilder,
    key: &str,
    output: &Output,
) -> anyhow::Result<()> {
    let limit = output.wait.flatten();
    let outage = Outage::before_first_answer(limit);
    let mut run = ResumedRun {
        api,
        output,
        outage,
        first: None,
        current: None,
        ended: BTreeSet::new(),
        live: Vec::new(),
        refused: 0,
    };
    let end = async {
        let end = run.perform(request, key);
        match limit {
            Some(limit) => tokio::time::timeout(limit, end).await.ok(),
            None => Some(end.await),
        }
    };
    let ended = tokio::select! {
        // Its signal handler is there before the first note.
        biased;
        _ = tokio::signal::ctrl_c() => Err(Exit::Interrupted),
        ended = end => ended.ok_or(Exit::TimedOut),
    };
    match ended {
        Ok(Err(error)) if exit_of(&error) == Exit::TimedOut => {
            run.broken_off(Exit::TimedOut, limit.unwrap_or_default()).await
        }
        Ok(ended) => ended.map_err(|error| explain_removed(error, key)),
        Err(exit) => run.broken_off(exit, limit.unwrap_or_default()).await,
    }
}

struct ResumedRun<'a> {
    api: &'a Api,
    output: &'a Output,
    outage: Outage,
    /// The batch of the key, once it is known.
    first: Option<u64>,
    /// The batch that is waited for.
    current: Option<u64>,
    /// The batches whose end is known: it is displayed once.
    ended: BTreeSet<u64>,
    /// The retries that are waited for after the batches.
    live: Vec<u64>,
    /// Members that the retry has left out, because they cannot be repeated.
    refused: u64,
}

/// A batch after its end, and the last of its retries.
struct EndedChain {
    first: BatchSummary,
    /// The number and the JSON of the last retry, or of the batch itself.
    last: (u64, Value),
    /// The batch has succeeded, or all members of it and of its retries are kept.
    is_known: bool,
}

impl ResumedRun<'_> {
    /// # Cancel safety
    /// A request to make jobs may have been sent; its key is the same in the next run.
    async fn perform(&mut self, request: RequestBuilder, key: &str) -> anyhow::Result<()> {
        let header = idempotency_key(Some(key))?;
        let made = self.api.create_job(request, &header, Some(&mut self.outage)).await?;
        let batch: view::Batch = parse(self.api, &made.json)?;
        if batch.count == 0 {
            return Err(no_batch(&batch).into());
        }
        self.first = Some(batch.batch);
        self.tell_start(&made, &batch)?;
        let mut may_repeat = made.is_replay;
        loop {
            let ended = self.wait_for_batches(batch.batch).await?;
            let api = self.api;
            let ask = async || Rest::of(api, batch.batch).await;
            // Everything that is left by one list: a member does not change its place between two.
            let mut rest = until_answered(Some(&mut self.outage), Awaited::Batch(batch.batch), ask).await?;
            self.live = std::mem::take(&mut rest.live);
            if !self.live.is_empty() {
                self.wait_for_retries(batch.batch).await?;
                continue;
            }
            if !ended.is_known || !rest.unknown.is_empty() {
                return Err(not_known(batch.batch, &rest).into());
            }
            if !may_repeat || rest.repeatable() == 0 {
                return self.finish(&ended, &rest);
            }
            may_repeat = false;
            self.repeat(batch.batch, ended.last.0).await?;
        }
    }

    fn tell_start(&self, made: &CreatedJob, batch: &view::Batch) -> anyhow::Result<()> {
        note_left_out(batch);
        if self.output.quiet {
            return if self.output.format.is_text() {
                screen::line(&batch.batch.to_string())
            } else {
                Ok(())
            };
        }
        let jobs = screen::counted(batch.count, "job");
        screen::note(&match made.is_replay {
            true => format!("longshore: this key created batch {} before: going on with it", batch.batch),
            // An expired key is as unknown as a new one.
            false => {
                format!("longshore: no batch of this key is known: made batch {} of {jobs}", batch.batch)
            }
        });
        Ok(())
    }

    /// Waits until the batch and its retries have ended.
    async fn wait_for_batches(&mut self, first: u64) -> anyhow::Result<EndedChain> {
        let (mut chain, mut next) = (None::<EndedChain>, Some(first));
        let mut is_whole = true;
        for _ in 0..RETRIES_FOLLOWED {
            let Some(id) = next else { break };
            self.current = Some(id);
            let is_quiet = self.output.quiet || self.ended.contains(&id);
            let display = if is_quiet { Display::Quiet } else { Display::new() };
            let json = match progress::wait_for_end(self.api, id, &mut self.outage, display).await {
                // A retry of which no member is kept.
                Err(error) if exit_of(&error) == Exit::NotFound && chain.is_some() => {
                    is_whole = false;
                    break;
                }
                ended => ended?,
            };
            self.ended.insert(id);
            let batch: BatchSummary = parse(self.api, &json)?;
            is_whole &= batch.removed == 0;
            next = batch.retried_as;
            let first = chain.map_or(batch, |chain| chain.first);
            chain = Some(EndedChain { first, last: (id, json), is_known: true });
        }
        let Some(chain) = chain else { return Err(self.api.unexpected_response().into()) };
        // Nothing of a batch that has succeeded was left for a retry.
        let is_known = is_whole || chain.first.state == "succeeded";
        Ok(EndedChain { is_known, ..chain })
    }

    /// Waits for retries that are in none of the batches.
    async fn wait_for_retries(&self, first: u64) -> anyhow::Result<()> {
        let members = screen::counted(self.live.len() as u64, "member");
        screen::note(&format!("longshore: batch {first}: retries of {members} have not ended"));
        for job in &self.live {
            match logs::wait_for_end(self.api, *job).await {
                // It was removed meanwhile: the next list shows what stands for the member.
                Err(error) if exit_of(&error) == Exit::NotFound => tokio::time::sleep(REMOVED_PAUSE).await,
                ended => drop(ended?),
            }
        }
        Ok(())
    }

    /// Makes a batch of what is left. The key is the same for all requests of this round, also of another run that has lost the answer.
    async fn repeat(&mut self, first: u64, last: u64) -> anyhow::Result<()> {
        let key = idempotency_key(Some(&format!("longshore-resume-{first}-{last}")))?;
        let request = self.api.request(Method::POST, &["api", "batches", &first.to_string(), "retry"]);
        let made = self.api.create_job(request, &key, Some(&mut self.outage)).await?;
        let retried: RetriedBatch = parse(self.api, &made.json)?;
        for refusal in &retried.refusals {
            screen::note(&format!("longshore: job {}: {}", refusal.job, refusal.detail));
        }
        self.refused = retried.refused;
        if let Some(new) = retried.batch.filter(|new| new.count > 0) {
            self.current = Some(new.batch);
            let members = screen::counted(new.count, "member");
            screen::note(&format!("longshore: batch {} repeats {members} of batch {first}", new.batch));
        }
        Ok(())
    }

    /// Prints the last batch, and says whether anything of the first one is left.
    fn finish(&self, ended: &EndedChain, rest: &Rest) -> anyhow::Result<()> {
        let (first, (last, json)) = (ended.first.id, &ended.last);
        if !self.output.format.is_text() {
            records::print(self.output.format, json, "id")?;
        } else if !self.output.quiet {
            show(&parse(self.api, json)?)?;
        }
        if rest.is_nothing() {
            if *last != first && !self.output.quiet {
                let text =
                    format!("longshore: batch {first}: all members have succeeded, with their retries");
                screen::note(&text);
            }
            return Ok(());
        }
        let exit = if rest.is_refused(self.refused) { Exit::Conflict } else { Exit::Failed };
        if self.output.quiet {
            return Err(Failure::silent(exit).into());
        }
        let (text, hint) = (rest.in_words(), rest.next_step(first));
        Err(Failure::new(exit, format!("batch {first}: {text}")).hint(hint).into())
    }

    /// Ends the program when the time is up, or after Ctrl-C.
    async fn broken_off(self, exit: Exit, limit: Duration) -> anyhow::Result<()> {
        if let (Exit::TimedOut, Some(failure)) = (exit, self.outage.into_failure()) {
            return Err(failure);
        }
        let Some(id) = self.current.or(self.first) else {
            let text = "the server has not answered; it may have made the batch";
            return match exit {
                Exit::TimedOut => Err(Failure::new(exit, text).hint(GO_ON).into()),
                exit => {
                    screen::note(&format!("longshore: interrupted: {text}; {GO_ON}"));
                    Err(Failure::silent(exit).into())
                }
            };
        };
        if exit == Exit::TimedOut {
            progress::print_unended(self.api, self.output.format, "batches", id).await?;
            let text = match &self.live[..] {
                [] => format!("batch {id} has not ended after {limit:?}, and continues"),
                [job] => format!("job {job}, a retry, has not ended after {limit:?}, and continues"),
                jobs => format!(
                    "{}, which are retries, have not ended after {limit:?}, and continue",
                    names(jobs)
                ),
            };
            return Err(Failure::new(exit, text).hint(GO_ON).into());
        }
        screen::note(&match &self.live[..] {
            [] => format!("longshore: batch {id} continues; {GO_ON}"),
            [job] => format!("longshore: job {job}, a retry, continues; {GO_ON}"),
            jobs => format!("longshore: {}, which are retries, continue; {GO_ON}", names(jobs)),
        });
        Err(Failure::silent(exit).into())
    }
}

/// Retention has removed members or retries, so nothing is repeated: the removed ones may have done the work.
fn not_known(first: u64, rest: &Rest) -> Failure {
    let why = match &rest.unknown[..] {
        [] => "members of it or of its retries are no longer kept".to_owned(),
        [job] => format!("job {job} has failed, and was acknowledged, or its retry is no longer kept"),
        jobs => {
            format!("{} have failed, and were acknowledged, or their retries are no longer kept", names(jobs))
        }
    };
    let text = format!("batch {first}: it is not known what of it is left: {why}; nothing is repeated");
    let hint = format!(
        "look at 'longshore batch {first} results --latest'; 'longshore batch {first} retry' repeats what has failed there"
    );
    Failure::new(Exit::NotFound, text).hint(hint)
}

/// Says that the batch of the key is no longer kept. The work is not done again, because nobody knows how much of it was.
fn explain_removed(error: anyhow::Error, key: &str) -> anyhow::Error {
    match exit_of(&error) {
        Exit::NotFound if error.downcast_ref::<Failure>().is_some_and(is_about_batch) => {
            let text = format!(
                "the batch of the key {key} is no longer kept: it is not known what of it is left, and nothing was made"
            );
            let hint = "to make all of its jobs again, give another --key; 'longshore server --keep-jobs' says how long they are kept";
            Failure::new(Exit::NotFound, text).hint(hint).into()
        }
        _ => error,
    }
}

/// The batch was removed, or its first job. Another 404 is about a definition.
fn is_about_batch(failure: &Failure) -> bool {
    let code = failure.document().and_then(|problem| problem["code"].as_str());
    code.is_some_and(|code| matches!(code, "pruned" | "batch_not_found"))
}

/// All jobs of the list have unique keys that others hold, which may be those of an earlier run with another key.
fn no_batch(batch: &view::Batch) -> Failure {
    let text = "no batch was made: other jobs have the unique keys of all jobs of the list";
    let hint = match batch.duplicate_of {
        Some(job) => format!("wait for them: longshore wait {job}"),
        None => "'longshore ls' shows them".to_owned(),
    };
    Failure::new(Exit::Conflict, text).hint(hint)
}

/// The next step after a run that has not come to its end.
const GO_ON: &str = "the same command goes on with it";
/// Before the members are read again after a job that was removed.
const REMOVED_PAUSE: Duration = Duration::from_secs(1);
/// Retries of retries that are followed; as many as the server follows.
const RETRIES_FOLLOWED: usize = 100;
