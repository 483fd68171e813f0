//! Waits for the start and the end of a shim and its program. All looks at the attempt's directory are taken on blocking threads: while the
//! disk hangs, only this attempt waits.

use std::time::Duration;

use protocol::Uptime;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use worker::input::{Exit, RuntimeEvent, StartFailure};

use super::attempt::{Attempt, has_shim, start_of, started_program};
use super::{ProcessState, not_started};
use crate::attempt_dir::{AttemptDir, ProgramState};
use crate::clock;
use crate::runtime::blocking::read_until_possible;
use crate::runtime::blocking::run_blocking;
use crate::runtime::{process_id, shim};
use crate::usage::Source;

impl ProcessState {
    /// Reads the start of the program from the shim's output, until the shim closes it.
    pub(super) async fn wait_for_start(&self, attempt: &Attempt, shim: &mut Child) {
        let Some(stdout) = shim.stdout.take() else { return };
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(pid) = line.strip_prefix(shim::STARTED) {
                let dir = attempt.dir.clone();
                let recorded = run_blocking(move || Ok(dir.start())).await.flatten();
                let at = recorded.unwrap_or_else(|| clock::now().up);
                self.report_start(attempt, format!("pid{pid}"), at).await;
            }
        }
    }

    async fn report_start(&self, attempt: &Attempt, container: String, at: Uptime) {
        let output = attempt.output(&self.logs).clone();
        if attempt.started.set(()).is_ok() {
            let (usage, token, dir) = (self.config.usage.clone(), attempt.token(), attempt.dir.clone());
            let start = move || {
                output.start();
                if let Ok(Some(ProgramState::Started(program))) = dir.program() {
                    usage.watch(token, &dir, Source::Process(program));
                }
                Ok(())
            };
            run_blocking(start).await;
            self.send_event(RuntimeEvent::Started { token: attempt.token(), container, at });
        }
    }

    /// Follows the output of an attempt of an earlier process from here on. It opens files.
    pub(super) fn mark_started(&self, attempt: &Attempt) {
        if attempt.started.set(()).is_ok() {
            attempt.output(&self.logs).start();
        }
    }

    /// Waits for the end of the shim and of the program, and reports the end.
    pub(super) async fn wait_for_end(&self, attempt: &Attempt) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            let dir = attempt.dir.clone();
            let look = move || Ok((has_shim(&dir), started_program(&dir)));
            // A directory that cannot be looked at says nothing about its shim.
            let (has_shim, program) = run_blocking(look).await.unwrap_or((true, None));
            if !has_shim {
                break;
            }
            if let Some((program, at)) = program {
                self.report_start(attempt, format!("pid {}", program.pid), at).await;
            }
            looks.tick().await;
        }
        let program = read_until_possible(&attempt.dir, AttemptDir::program).await;
        if let Some(ProgramState::Started(program)) = program {
            let dir = attempt.dir.clone();
            let at = run_blocking(move || Ok(start_of(&dir, program))).await;
            let at = at.unwrap_or_else(|| clock::now().up);
            self.report_start(attempt, format!("pid {}", program.pid), at).await;
            process_id::wait(program).await;
        }
        match read_until_possible(&attempt.dir, AttemptDir::end).await {
            Some(ending) => self.end(attempt, ending.exit, Some((ending.at, ending.usage))).await,
            // The shim was killed, so the exit is unknown.
            None if program.is_some() => self.end(attempt, Exit::Vanished, None).await,
            None => {
                let why = "the shim ended before it started anything";
                self.end(attempt, not_started(StartFailure::Host, why), None).await;
            }
        }
    }
}

/// Pause between two checks of a shim that is not our child.
const LOOK_EVERY: Duration = Duration::from_millis(100);
