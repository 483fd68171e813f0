//! Commands to the engine about single jobs.

use std::time::Duration;

use protocol::JobId;
use scheduler::step::Answer;

use super::Operation;
use crate::engine::Busy;
use crate::http::middleware::problem::Problem;

/// A command to the engine about one job.
pub(super) enum JobCommand {
    Cancel,
    Release,
}

impl Operation {
    /// Sends a command to the engine, again while its inbox is full.
    pub(super) async fn ask_engine(&self, job: JobId, command: JobCommand) -> Result<Answer, Problem> {
        let engine = &self.state.services.engine;
        for _ in 0..ASKS_MAX {
            let answer = match command {
                JobCommand::Cancel => engine.cancel(job, self.by.clone()).await,
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
