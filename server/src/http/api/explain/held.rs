//! The reason of a job that a worker has.

use scheduler::job::State;

use super::display_name;
use crate::http::present::presenter::Presenter;
use crate::http::present::shapes::{Phase, Time};
use crate::http::present::timeline::worker_of;
use crate::store::{AttemptRow, JobRow};

/// The worker of the current attempt. Until its container has started, also what the worker does for it, and since when it has the attempt.
pub(super) fn text(presenter: &Presenter, row: &JobRow, attempt: &AttemptRow) -> String {
    let worker = display_name(&worker_of(attempt));
    let held = format!("it is {} on {worker}, as its attempt {}", row.state.name(), row.attempts);
    let phase = presenter.phase(row.job).filter(|_| row.state == State::Assigned);
    match phase.and_then(|phase| before_start(&phase)) {
        Some(doing) => format!("{held}, since {}; {doing}", Time(attempt.assigned_at)),
        None => held,
    }
}

/// A sentence about a phase before the start of the container.
fn before_start(phase: &Phase) -> Option<String> {
    match phase.name.as_ref() {
        "backlog" => Some("it waits there for a free slot".to_owned()),
        "pulling" => {
            let progress = phase.percent.map(|percent| format!(" ({percent} %)")).unwrap_or_default();
            let failed = match phase.failures {
                None => String::new(),
                Some(1) => ", after a failed pull".to_owned(),
                Some(failures) => format!(", after {failures} failed pulls"),
            };
            Some(format!("its image is being pulled{progress}{failed}"))
        }
        "starting" => Some("its container is being made and started".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_before_the_start_has_its_sentence() {
        let sentence = |name: &'static str, percent, failures| {
            before_start(&Phase { name: name.into(), percent, failures }).unwrap_or_default()
        };
        assert_eq!(sentence("backlog", None, None), "it waits there for a free slot");
        assert_eq!(sentence("pulling", Some(40), None), "its image is being pulled (40 %)");
        assert_eq!(sentence("pulling", None, Some(1)), "its image is being pulled, after a failed pull");
        assert_eq!(sentence("pulling", None, Some(3)), "its image is being pulled, after 3 failed pulls");
        assert_eq!(sentence("starting", None, None), "its container is being made and started");
        assert_eq!(sentence("running", None, None), "");
    }
}
