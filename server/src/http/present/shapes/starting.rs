//! An assigned job whose container has not started, in words. The age is computed where it is shown: a list that is read later tells the
//! time until then.

use super::{Job, Phase};
use crate::http::present::span::span_ms;

impl Job {
    /// The step of an assigned job on its worker, and for how long it is there: `starting on w1 for 12m 3s (waits for Docker)`. `None` in other
    /// states, while it is being stopped, and from a server that does not tell the time.
    #[must_use]
    pub fn starting_in_words(&self, now_ms: i64) -> Option<String> {
        let (since, worker) = self.assigned_at.zip(self.worker.as_ref())?;
        if self.state != "assigned" || self.stopping.is_some() {
            return None;
        }
        let name = if worker.name.is_empty() { format!("worker {}", worker.id) } else { worker.name.clone() };
        let time = span_ms(u64::try_from(now_ms - since.0.0).unwrap_or(0));
        Some(match self.phase.as_ref() {
            Some(phase) if phase.name == "backlog" => {
                format!("in the backlog of {name} for {time} (waits for a slot there)")
            }
            phase => format!("starting on {name} for {time} ({})", step(phase)),
        })
    }

    /// Like [`Job::starting_in_words`], for a list: `None` if it takes no longer than starts mostly take.
    #[must_use]
    pub fn long_start_in_words(&self, now_ms: i64) -> Option<String> {
        let since = self.assigned_at?;
        self.starting_in_words(now_ms).filter(|_| now_ms - since.0.0 >= LONG_START_MS)
    }
}

/// The present step of a start.
fn step(phase: Option<&Phase>) -> String {
    match phase {
        Some(phase) if phase.name == "pulling" => {
            let percent = phase.percent.map(|percent| format!(", {percent} %")).unwrap_or_default();
            let failures = match phase.failures {
                None => String::new(),
                Some(1) => ", failed once".to_owned(),
                Some(times) => format!(", failed {times} times"),
            };
            format!("pulls its image{percent}{failures}")
        }
        Some(phase) if phase.name == "starting" => "waits for Docker".to_owned(),
        _ => "pulls its image or waits for Docker".to_owned(),
    }
}

/// A start with its image there takes a second.
const LONG_START_MS: i64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(more: &serde_json::Value) -> Job {
        let mut json = json!({"id": 7, "name": "resize", "state": "assigned", "created_at": "1970-01-01T00:00:00.000Z",
            "assigned_at": "1970-01-01T00:00:10.000Z", "worker": {"id": 1, "name": "w1"}});
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_start_tells_its_worker_its_age_and_its_step() {
        let text = |more| job(&more).starting_in_words(730_000);
        assert_eq!(
            text(json!({})).as_deref(),
            Some("starting on w1 for 12m 0s (pulls its image or waits for Docker)")
        );
        assert_eq!(
            text(json!({"phase": {"name": "pulling", "percent": 40, "failures": 2}})).as_deref(),
            Some("starting on w1 for 12m 0s (pulls its image, 40 %, failed 2 times)")
        );
        assert_eq!(
            text(json!({"phase": {"name": "starting"}, "worker": {"id": 1}})).as_deref(),
            Some("starting on worker 1 for 12m 0s (waits for Docker)")
        );
        assert_eq!(
            text(json!({"phase": {"name": "backlog"}})).as_deref(),
            Some("in the backlog of w1 for 12m 0s (waits for a slot there)")
        );
        for other in
            [json!({"state": "running"}), json!({"stopping": "cancel"}), json!({"assigned_at": null})]
        {
            assert_eq!(text(other), None);
        }
    }

    #[test]
    fn a_list_tells_starts_that_take_long() {
        let long = |now| job(&json!({})).long_start_in_words(now);
        assert_eq!(long(69_999), None);
        assert_eq!(
            long(70_000).as_deref(),
            Some("starting on w1 for 1m 0s (pulls its image or waits for Docker)")
        );
        assert_eq!(
            job(&json!({})).starting_in_words(0).as_deref().map(|it| &it[..19]),
            Some("starting on w1 for ")
        );
    }
}
