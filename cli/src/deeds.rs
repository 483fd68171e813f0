//! `longshore cancel`, `release`, `retry`: what is done to jobs, one after the other.
//!
//! Of each is told as soon as it is done, or is refused: whoever presses Ctrl-C has read what has happened so far. The first refusal says
//! how the verb ends.

use std::pin::pin;

use reqwest::Method;
use serde_json::Value;

use crate::api::{self, Api};
use crate::failure::{self, Exit, Failure};
use crate::screen::{self, Format};
use crate::{Asking, jobs, run, view};

/// End jobs: at once if they wait, else by stopping their containers.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore cancel 12
  longshore cancel 12 13 14
  longshore cancel --batch 100       all jobs of the batch that have not ended")]
pub(crate) struct CancelFlags {
    #[command(flatten)]
    asking: Asking,
    /// Which jobs.
    #[arg(required_unless_present = "batch", value_name = "ID", value_parser = jobs::number)]
    ids: Vec<u64>,
    /// All jobs that have not ended of the batch whose first job this is.
    #[arg(long, value_name = "ID", conflicts_with = "ids", value_parser = jobs::number)]
    batch: Option<u64>,
}

/// Let jobs go on that wait for a person.
///
/// A quarantined job is queued again. An attempt whose worker is unreachable, or cannot reach its Docker, is given up: it is not
/// believed any more, and the job gets another one. The old container may still run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore ls --state quarantined
  longshore release 12")]
pub(crate) struct ReleaseFlags {
    #[command(flatten)]
    asking: Asking,
    /// Which jobs.
    #[arg(required = true, value_name = "ID", value_parser = jobs::number)]
    ids: Vec<u64>,
}

/// Make new jobs like some that have ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore retry 12
  longshore retry 12 13 14
  longshore logs -f \"$(longshore retry 12 -o json | jq .id)\"")]
pub(crate) struct RetryFlags {
    #[command(flatten)]
    asking: Asking,
    /// Which jobs.
    #[arg(required = true, value_name = "ID", value_parser = jobs::number)]
    ids: Vec<u64>,
    /// Make no second job if one was made with this key [default: a new one, for sending the request again]. For one job only.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// Cancels jobs; goes on after one that cannot be cancelled.
pub(crate) async fn cancel(flags: CancelFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.asking.door)?;
    if let Some(batch) = flags.batch {
        return cancel_batch(&api, &flags.asking, batch).await;
    }
    let effect = |job: &view::Job| if job.has_ended() { "is cancelled" } else { "is being stopped" };
    each(&api, &flags.asking, &flags.ids, "cancel", effect).await
}

/// Releases jobs; goes on after one that cannot be released.
pub(crate) async fn release(flags: ReleaseFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.asking.door)?;
    // What was being cancelled ends by it.
    let effect = |job: &view::Job| if job.has_ended() { "is cancelled" } else { "goes on" };
    each(&api, &flags.asking, &flags.ids, "release", effect).await
}

/// Makes new jobs like ended ones; goes on after one that cannot be tried again.
pub(crate) async fn retry(flags: RetryFlags) -> anyhow::Result<()> {
    if flags.key.is_some() && flags.ids.len() > 1 {
        let text = "--key names the request for one job, not for several";
        return Err(Failure::new(Exit::Usage, text).hint("retry them one by one").into());
    }
    let api = Api::new(&flags.asking.door)?;
    let mut deeds = Deeds::new(&flags.asking);
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    for id in &flags.ids {
        let request = api.request(Method::POST, &["api", "jobs", &id.to_string(), "retry"]);
        let key = run::key(flags.key.as_deref())?;
        let made = tokio::select! {
            made = api.make(request, &key) => made,
            _ = &mut interrupt => return deeds.broken_off(*id),
        };
        // A single one needs no name.
        let made = if flags.ids.len() == 1 { made } else { named(*id, made) };
        if let Some(made) = deeds.done(made) {
            let job: view::Job = api::read(&api, &made.json)?;
            if flags.key.is_some() {
                made.tell_replay(&job);
            }
            deeds.tell(
                made.json,
                &format!("job {} tries job {id} again; {}", job.id, run::follow_it(job.id)),
            )?;
        }
    }
    match &mut deeds {
        // It is no list: programs take its id.
        Deeds { format: Format::Json, answers, first: None } if flags.ids.len() == 1 => {
            screen::json(&answers.pop().unwrap_or_default())
        }
        // Of one that was refused there is nothing to show.
        Deeds { first: Some(exit), .. } if flags.ids.len() == 1 => Err(Failure::silent(*exit).into()),
        _ => deeds.end(),
    }
}

/// Wants the same of each job.
async fn each(
    api: &Api,
    asking: &Asking,
    ids: &[u64],
    verb: &str,
    effect: impl Fn(&view::Job) -> &'static str,
) -> anyhow::Result<()> {
    let mut deeds = Deeds::new(asking);
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    for id in ids {
        let request = api.request(Method::POST, &["api", "jobs", &id.to_string(), verb]);
        let answer = tokio::select! {
            answer = api.json(request) => answer,
            _ = &mut interrupt => return deeds.broken_off(*id),
        };
        if let Some(json) = deeds.done(named(*id, answer)) {
            let job: view::Job = api::read(api, &json)?;
            deeds.tell(json, &format!("job {} {}", job.id, effect(&job)))?;
        }
    }
    deeds.end()
}

/// Cancels what has not ended of a batch, and says of how many jobs.
async fn cancel_batch(api: &Api, asking: &Asking, batch: u64) -> anyhow::Result<()> {
    let unended = [("state", UNENDED.to_owned()), ("batch", batch.to_string())];
    let (jobs, _) = jobs::gather(api, &unended, usize::MAX).await?;
    if jobs.is_empty() {
        must_be_a_batch(api, batch).await?;
    }
    let mut deeds = Deeds::new(asking);
    let (mut cancelled, mut stopping) = (0_usize, 0_usize);
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    for job in &jobs {
        let id = jobs::id(api, job)?;
        let request = api.request(Method::POST, &["api", "jobs", &id.to_string(), "cancel"]);
        let answer = tokio::select! {
            answer = api.json(request) => answer,
            _ = &mut interrupt => {
                if asking.format == Format::Table {
                    screen::line(&format!("batch {batch}, so far: {}", counted(cancelled, stopping, 1)))?;
                }
                return deeds.broken_off(id);
            }
        };
        // It may have ended since.
        if answer.as_ref().is_err_and(|error| failure::exit_of(error) == Exit::Conflict) {
            continue;
        }
        let is_away = answer.as_ref().is_err_and(|error| failure::exit_of(error) == Exit::Unavailable);
        if let Some(json) = deeds.done(named(id, answer)) {
            let job: view::Job = api::read(api, &json)?;
            *(if job.has_ended() { &mut cancelled } else { &mut stopping }) += 1;
            deeds.answers.push(json);
        }
        // Nobody would answer for the next one either.
        if is_away {
            break;
        }
    }
    if asking.format == Format::Table {
        let others = jobs.len() - cancelled - stopping;
        screen::line(&format!("batch {batch}: {}", counted(cancelled, stopping, others)))?;
    }
    deeds.end()
}

/// Tells a batch all of whose jobs have ended from a number that is none.
async fn must_be_a_batch(api: &Api, batch: u64) -> anyhow::Result<()> {
    let (any, _) = jobs::gather(api, &[("batch", batch.to_string())], 1).await?;
    if !any.is_empty() {
        return Ok(());
    }
    let hint = format!(
        "a batch has the number of its first job, which 'longshore show' tells of each; \
                        for one job, use 'longshore cancel {batch}'"
    );
    Err(Failure::new(Exit::NotFound, format!("there is no batch {batch}")).hint(hint).into())
}

/// What became of the jobs of a batch. Those that were refused are told of one by one.
fn counted(cancelled: usize, stopping: usize, others: usize) -> String {
    let are = |count: usize| if count == 1 { "job is" } else { "jobs are" };
    match (cancelled, stopping) {
        (0, 0) if others == 0 => "no job that has not ended".to_owned(),
        (cancelled, 0) => format!("{cancelled} {} cancelled", are(cancelled)),
        (0, stopping) => format!("{stopping} {} being stopped", are(stopping)),
        (cancelled, stopping) => {
            format!("{cancelled} {} cancelled, {stopping} {} being stopped", are(cancelled), are(stopping))
        }
    }
}

/// What has been done so far.
struct Deeds {
    format: Format,
    answers: Vec<Value>,
    /// Why the first was refused that was.
    first: Option<Exit>,
}

impl Deeds {
    const fn new(asking: &Asking) -> Self {
        Self { format: asking.format, answers: Vec::new(), first: None }
    }

    /// What was answered; a refusal is told at once.
    fn done<T>(&mut self, answer: anyhow::Result<T>) -> Option<T> {
        answer
            .inspect_err(|error| {
                failure::report(error, self.format);
                self.first = self.first.or(Some(failure::exit_of(error)));
            })
            .ok()
    }

    /// Tells people of a deed; programs get all of them in the end.
    fn tell(&mut self, json: Value, words: &str) -> anyhow::Result<()> {
        if self.format == Format::Table {
            screen::line(words)?;
        }
        self.answers.push(json);
        Ok(())
    }

    fn end(self) -> anyhow::Result<()> {
        if self.format == Format::Json {
            screen::json(&Value::Array(self.answers))?;
        }
        self.first.map_or(Ok(()), |exit| Err(Failure::silent(exit).into()))
    }

    /// Ctrl-C, while the server was asked for this job.
    fn broken_off(mut self, id: u64) -> anyhow::Result<()> {
        screen::note(&format!(
            "longshore: broken off: nobody knows of job {id}, and those behind it were not asked for"
        ));
        self.first = Some(Exit::Interrupted);
        self.end()
    }
}

/// Says of which job an error tells, unless it says so itself.
fn named<T>(id: u64, answer: anyhow::Result<T>) -> anyhow::Result<T> {
    answer.map_err(|error| {
        let name = format!("job {id}");
        if error.to_string().starts_with(&format!("{name} ")) { error } else { error.context(name) }
    })
}

/// The states of jobs that can be cancelled.
const UNENDED: &str = "scheduled,queued,assigned,running,quarantined";

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn what_became_of_a_batch_is_counted() {
        assert_eq!(counted(0, 0, 0), "no job that has not ended");
        assert_eq!(counted(1, 0, 0), "1 job is cancelled");
        assert_eq!(counted(0, 2, 1), "2 jobs are being stopped");
        assert_eq!(counted(3, 1, 0), "3 jobs are cancelled, 1 job is being stopped");
        assert_eq!(counted(0, 0, 2), "0 jobs are cancelled");
    }
}
