//! A job that a verb has just made: prints it, follows its output, or waits for its end. `run` and `retry` share this. Batches are printed
//! and waited for in `batches`.

use std::time::Duration;

use serde_json::Value;

use crate::api::{Api, CreatedJob, parse};
use crate::failure::{Exit, Failure};
use crate::logs::{self, LogRequest, Notes};
use crate::outage::Outage;
use crate::screen::{self, Format};
use crate::view::{self, JobView as _};
use crate::{duration, progress, records};

/// Flags of a verb that makes jobs.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct NewJobArgs {
    /// Print the output as it comes, and exit with the job's exit code.
    #[arg(short = 'f', long, conflicts_with = "wait")]
    pub(crate) follow: bool,
    /// Wait until the job has ended, at most this long, and exit with its exit code, or 124 when the time is up.
    #[arg(short = 'w', long, value_name = "DURATION", num_args = 0..=1, require_equals = true, value_parser = duration::parse)]
    pub(crate) wait: Option<Option<Duration>>,
    /// Print only the job's id, at once. With --wait only the exit code tells how it ended.
    #[arg(short = 'q', long, conflicts_with = "follow")]
    pub(crate) quiet: bool,
}

impl NewJobArgs {
    /// Refuses formats that output of jobs cannot have.
    pub(crate) fn check(self, format: Format) -> Result<(), Failure> {
        if self.follow && !format.is_text() {
            let text = "--follow prints job output, which is not JSON, CSV or names";
            return Err(Failure::new(Exit::Usage, text).hint("use --wait -o json"));
        }
        Ok(())
    }

    /// The outage of a server that has not answered yet, if the verb waits.
    pub(crate) fn outage(self) -> Option<Outage> {
        let limit = self.wait.or(self.follow.then_some(None))?;
        Some(Outage::before_first_answer(limit))
    }

    /// True if the verb prints text for people about the job, and does not wait.
    pub(crate) fn prints_text(self, format: Format) -> bool {
        format.is_text() && !self.quiet && !self.follow && self.wait.is_none()
    }

    /// The format of a list of jobs.
    pub(crate) fn list_format(self, format: Format) -> Format {
        if self.quiet && format.is_text() { Format::Name } else { format }
    }

    /// Prints the job as the flags say, `text` for people. With --wait or --follow, returns after its end. The time of --wait counts from the
    /// beginning of the outage.
    ///
    /// # Errors
    /// The job did not succeed, the time is up, or the server was away for too long.
    pub(crate) async fn print(
        self,
        api: &Api,
        format: Format,
        made: &Value,
        text: &str,
        outage: Option<&Outage>,
    ) -> anyhow::Result<()> {
        let job: view::Job = parse(api, made)?;
        if !self.follow && self.wait.is_none() {
            return match self.list_format(format) {
                Format::Table | Format::Wide => screen::line(text),
                format => records::print(format, made, "id").map(drop),
            };
        }
        if !self.quiet {
            screen::note(&format!("longshore: job {} is {}", job.id, job.state_text()));
        } else if format.is_text() {
            screen::line(&job.id.to_string())?;
        }
        let left = outage.and_then(Outage::left);
        let ended = tokio::select! {
            // Its signal handler is there before the first note.
            biased;
            _ = tokio::signal::ctrl_c() => {
                screen::note(&format!("longshore: job {id} continues; follow it with 'longshore logs -f {id}', stop it with 'longshore cancel {id}'", id = job.id));
                return Err(Failure::silent(Exit::Interrupted).into());
            }
            ended = self.wait_for_end(api, format, job.id, left) => ended?,
        };
        records::print(format, &ended, "id")?;
        let job: view::Job = parse(api, &ended)?;
        if !self.quiet {
            screen::note(&format!("longshore: job {} {}", job.id, job.end_text()));
        }
        if let Some(note) = note_of_success(&ended) {
            screen::note(&format!("warning: job {}: {note}", job.id));
        }
        job.failure_exit().map_or(Ok(()), |exit| Err(Failure::silent(exit).into()))
    }

    /// Follows the job or waits for it for the rest of the time, and returns its final JSON.
    async fn wait_for_end(
        self,
        api: &Api,
        format: Format,
        id: u64,
        left: Option<Duration>,
    ) -> anyhow::Result<Value> {
        let mut notes = Notes::default();
        if self.follow {
            return logs::follow(api, &LogRequest::everything(id, false), &mut notes).await;
        }
        let end = async {
            let end = logs::wait_for_end(api, id);
            if self.quiet { end.await } else { notes.beside(api, id, end).await }
        };
        match self.wait.flatten() {
            None => end.await,
            Some(limit) => {
                if let Ok(ended) = tokio::time::timeout(left.unwrap_or(limit), end).await {
                    return ended;
                }
                progress::print_unended(api, format, "jobs", id).await?;
                let text = format!("job {id} has not ended after {limit:?}, and continues");
                Err(Failure::new(Exit::TimedOut, text).hint(format!("see 'longshore show {id}'")).into())
            }
        }
    }
}

impl CreatedJob {
    /// Notes that the key had created the job before.
    pub(crate) fn note_replay(&self, job: &view::Job) {
        if self.is_replay {
            let id = job.id;
            screen::note(&format!("longshore: this key created job {id} before; no second job was created"));
        }
    }

    /// Notes that the key had created the batch before.
    pub(crate) fn note_batch_replay(&self, batch: u64) {
        if self.is_replay {
            screen::note(&format!(
                "longshore: this key created batch {batch} before; no second batch was created"
            ));
        }
    }
}

/// Prints what an operator should know about a job that was just made, such as a pause that it waits for.
pub(crate) fn note_warning(job: &view::Job) {
    if let Some(warning) = &job.warning {
        screen::note(&format!("warning: {}", warning.text));
    }
}

/// Something that the worker noted about a job that succeeded nevertheless, such as a result that it could not keep.
fn note_of_success(job: &Value) -> Option<&str> {
    let last = job["attempts"].as_array()?.last()?;
    last["message"].as_str().filter(|message| job["state"] == "succeeded" && !message.is_empty())
}
