//! The workers that a list leaves out, counted by state.

use std::collections::{BTreeMap, HashSet};

use super::fetch;
use crate::api::{self, Api};
use crate::screen;
use crate::view;

/// Tells how many workers a list leaves out. The list is printed: an answer that does not come takes nothing from it.
pub(super) async fn note(api: &Api, listed: &[view::Worker]) {
    if let Ok(all) = fetch(api, true).await
        && let Ok(all) = api::parse::<Vec<view::Worker>>(api, &all)
    {
        let listed: HashSet<u64> = listed.iter().map(|worker| worker.id).collect();
        // One that is connected has come since.
        let hidden = all.iter().filter(|worker| !worker.connected && !listed.contains(&worker.id));
        if let Some(text) = hidden_text(hidden) {
            screen::note(&text);
        }
    }
}

/// The number of these workers by state; nothing if there are none.
fn hidden_text<'w>(hidden: impl Iterator<Item = &'w view::Worker>) -> Option<String> {
    let mut by_state: BTreeMap<&str, u64> = BTreeMap::new();
    for worker in hidden {
        *by_state.entry(&worker.state).or_default() += 1;
    }
    let count: u64 = by_state.values().sum();
    let states: Vec<String> = by_state.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let are = if count == 1 { "is" } else { "are" };
    (count > 0).then(|| {
        format!(
            "{} without connection and jobs {are} not listed ({}); see all with: longshore workers --all",
            screen::counted(count, "worker"),
            states.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn hidden_workers_are_counted_by_state() {
        let worker = |state: &str| {
            let json = json!({"id": 1, "name": "w", "state": state, "slots": 1, "busy": 0,
                "since": "2026-01-02T03:04:05.000Z"});
            view::Worker::deserialize(&json).unwrap()
        };
        let text = |states: &[&str]| {
            let workers: Vec<_> = states.iter().map(|state| worker(state)).collect();
            hidden_text(workers.iter())
        };
        assert_eq!(text(&[]), None);
        let see = "see all with: longshore workers --all";
        let one = format!("1 worker without connection and jobs is not listed (1 gone); {see}");
        assert_eq!(text(&["gone"]), Some(one));
        let three =
            format!("3 workers without connection and jobs are not listed (1 drained, 2 gone); {see}");
        assert_eq!(text(&["gone", "drained", "gone"]), Some(three));
    }
}
