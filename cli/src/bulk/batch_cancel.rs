//! The cancel of a whole batch. The server goes on with it by itself, so one request is enough, unless the token may not act on all members.

use super::{BulkResult, EndedBy, REFUSALS_SHOWN, Refusal, confirm, count, exit, send_all};
use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::error_output;
use crate::failure::{self, Exit, Failure};
use crate::screen::{self, Format};

/// Cancels the members of a batch, after a question unless `yes` is set.
pub(crate) async fn cancel_batch_if_confirmed(
    api: &Api,
    common: &CommonArgs,
    batch: u64,
    yes: bool,
) -> anyhow::Result<()> {
    if !yes {
        let path = ["api", "batches", &batch.to_string(), "cancel"];
        let counted = count(api, &path, &[]).await.map_err(|error| named(batch, error))?;
        // Without any, the answer says why: all have ended, or the token is for none of them.
        if counted > 0 {
            confirm("cancel", "the batch has", counted)?;
        }
    }
    cancel_batch(api, common, batch).await
}

/// Cancels what has not ended of a batch, and says of how many jobs. The caller has named the batch, so nothing is confirmed.
pub(crate) async fn cancel_batch(api: &Api, common: &CommonArgs, batch: u64) -> anyhow::Result<()> {
    let path = ["api", "batches", &batch.to_string(), "cancel"];
    let (mut total, ended_by) = send_all(api, &path, &[], &api::idempotency_key(None)?, None).await;
    match ended_by {
        EndedBy::Error(error) if total.matched == 0 => return Err(named(batch, error)),
        _ => {}
    }
    total.leave_out_finished();
    let is_whole = matches!(ended_by, EndedBy::LastJob);
    // A count of nothing would say that nothing is cancelled, which the server may do all the same.
    if total.matched > 0 || is_whole {
        print_batch(common, batch, &total, is_whole)?;
    }
    ended_by.note_open_request(common.format, &format!("batch {batch}"));
    exit(ended_by, total.refused)
}

/// Prints the effect of a cancel on a batch, of all requests or of those that were answered.
fn print_batch(common: &CommonArgs, batch: u64, total: &BulkResult, is_whole: bool) -> anyhow::Result<()> {
    if common.format.is_text() || common.format == Format::Name {
        for Refusal { job, code, detail } in &total.refusals {
            let text = format!("job {job}: {detail} [{code}]");
            error_output::report(&Failure::new(Exit::Conflict, text).into(), common.format);
        }
        let more = total.refused.saturating_sub(total.refusals.len() as u64);
        if more > 0 {
            let text = format!("{more} more refused; 'longshore ls --batch {batch}' shows their states");
            error_output::report(&Failure::new(Exit::Conflict, text).into(), common.format);
        }
        let so_far = if is_whole { "" } else { ", so far" };
        let counted = format!("batch {batch}{so_far}: {}", total.counted(is_whole));
        if common.format == Format::Name {
            screen::line(&batch.to_string())?;
            screen::note(&format!("longshore: {counted}"));
            Ok(())
        } else {
            screen::line(&counted)
        }
    } else {
        total.print("cancel", common.format)
    }
}

/// The error of a request about a batch, with a hint if there is none.
fn named(batch: u64, error: anyhow::Error) -> anyhow::Error {
    match failure::exit_of(&error) {
        Exit::NotFound => no_such_batch(batch).into(),
        _ => error,
    }
}

fn no_such_batch(batch: u64) -> Failure {
    let hint = format!(
        "a batch has the id of its first job, which 'longshore show' prints for each job; \
         for one job, use 'longshore cancel {batch}'"
    );
    Failure::new(Exit::NotFound, format!("there is no batch {batch}")).hint(hint)
}

impl BulkResult {
    /// Leaves out the refusals of jobs that had ended since the server read their states, and shortens the others. Those that
    /// the server did not show still count as refused.
    fn leave_out_finished(&mut self) {
        let shown = self.refusals.len();
        self.refusals.retain(|refusal| refusal.code != "already_finished");
        let finished = shown - self.refusals.len();
        self.refusals.truncate(REFUSALS_SHOWN);
        self.refused = self.refused.saturating_sub(finished as u64);
    }

    /// The effect of a cancel on a batch, in words. The server ends what is left by itself.
    fn counted(&self, is_whole: bool) -> String {
        let are = |count: u64| if count == 1 { "job is" } else { "jobs are" };
        let Self { matched, done, stopping, .. } = *self;
        match (done, stopping) {
            (0, 0) if matched == 0 && is_whole => "all jobs have ended".to_owned(),
            (done, 0) => format!("{done} {} cancelled", are(done)),
            (done, stopping) => format!("{} {} being cancelled", done + stopping, are(done + stopping)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effect_on_a_batch_is_counted() {
        let text = |matched, done, stopping| {
            BulkResult { matched, done, stopping, ..BulkResult::default() }.counted(true)
        };
        assert_eq!(text(0, 0, 0), "all jobs have ended");
        assert_eq!(text(1, 1, 0), "1 job is cancelled");
        assert_eq!(text(3, 0, 2), "2 jobs are being cancelled");
        assert_eq!(text(4, 3, 1), "4 jobs are being cancelled");
        assert_eq!(text(2, 0, 0), "0 jobs are cancelled");
    }
}
