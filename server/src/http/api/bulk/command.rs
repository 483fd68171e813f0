//! Commands to the engine about single jobs and whole batches.

use std::time::Duration;

use protocol::JobId;
use scheduler::step::Answer;

use super::Operation;
use crate::engine::Busy;
use crate::http::middleware::problem::Problem;

/// A command to the engine about one job, or about the batch with this first member.
pub(super) enum JobCommand {
    Cancel,
    CancelBatch,
    Release,
}

impl Operation {
    /// Sends a command to the engine, again while its inbox is full.
    pub(super) async fn ask_engine(&self, job: JobId, command: JobCommand) -> Result<Answer, Problem> {
        let engine = &self.state.services.engine;
        for _ in 0..ASKS_MAX {
            let answer = match command {
                JobCommand::Cancel => engine.cancel(job, self.by.clone()).await,
                JobCommand::CancelBatch => engine.cancel_batch(job, self.by.as_str().into()).await,
                JobCommand::Release => engine.release(job, self.by.clone()).await,
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(Busy) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
        Err(Busy.into())
    }
}

const ASKS_MAX: u32 = 20;
const ASK_AGAIN: Duration = Duration::from_millis(100);
