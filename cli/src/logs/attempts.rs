//! The output of all attempts of a job, one after the other, each below a heading.

use server::http::present::ending::attempt_heading;

use super::notes::{ReportedEnds, tell_unstarted};
use super::request::LogRequest;
use super::show;
use crate::api::{Api, parse};
use crate::failure::{Exit, Failure};
use crate::screen;
use crate::view::{FullJob, WorkerRefView as _};

/// The attempts whose output is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptChoice {
    All,
    Number(u32),
}

impl AttemptChoice {
    /// The one attempt; `None` for all.
    pub(super) const fn number(self) -> Option<u32> {
        match self {
            Self::Number(number) => Some(number),
            Self::All => None,
        }
    }
}

/// Reads the value of `--attempt`.
pub(super) fn parse_choice(text: &str) -> Result<AttemptChoice, String> {
    if text == "all" {
        return Ok(AttemptChoice::All);
    }
    text.parse()
        .map(AttemptChoice::Number)
        .map_err(|_| "it is the number of an attempt, or \"all\"".to_owned())
}

/// Prints the output of all attempts that there are, the first one first.
pub(super) async fn show_all(api: &Api, wanted: &LogRequest) -> anyhow::Result<()> {
    let json = api.json(api.get(&["api", "jobs", &wanted.id.to_string()])).await?;
    let details: FullJob = parse(api, &json)?;
    let id = details.job.id;
    if details.job.members.is_some() {
        let text = format!("job {id} runs on several workers, and has no attempts of its own");
        return Err(Failure::new(Exit::Usage, text)
            .hint(format!("'longshore logs {id}' shows the output of its members"))
            .into());
    }
    if details.job.attempt_count == 0 {
        tell_unstarted(api, wanted).await;
        return Ok(());
    }
    for number in 1..=details.job.attempt_count {
        if !wanted.as_json {
            let separator = if number > 1 { "\n" } else { "" };
            screen::line(&format!("{separator}==> {} <==", heading(&details, number)))?;
        }
        let one = LogRequest { attempt: Some(number), names_attempt: true, ..wanted.clone() };
        match show(api, &one, false, &ReportedEnds::default()).await {
            Ok(_) => {}
            Err(error) if is_removed(&error) => {
                screen::note(&format!("longshore: the output of attempt {number} was removed"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// `attempt 1 on w1: failed, exit 3`
fn heading(details: &FullJob, number: u32) -> String {
    let Some(attempt) = details.attempts.iter().find(|attempt| attempt.number == number) else {
        return format!("attempt {number}");
    };
    attempt_heading(number, &attempt.worker.label(), attempt.outcome.as_deref(), attempt.exit_code)
}

/// The output, or the attempt itself, is no longer kept.
fn is_removed(error: &anyhow::Error) -> bool {
    let document = error.downcast_ref::<Failure>().and_then(Failure::document);
    document
        .is_some_and(|document| document["code"] == "output_removed" || document["code"] == "unknown_attempt")
}
