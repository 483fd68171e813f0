//! Definitions as table rows, and the result of a reload as a sentence.

use jiff::Timestamp;
use server::http::present::shapes::{Definition, Pause, Reloaded, Time};

use super::{JobView as _, optional, shortened, since, until};
use crate::quoting;

/// Texts about a definition.
pub(crate) trait DefinitionView {
    /// The columns of [`DefinitionView::row`].
    const HEADING: [&str; 7];

    /// Its name, and what is unusual about it.
    fn name_with_conditions(&self) -> String;

    /// A row of the table of definitions.
    fn row(&self, now: Timestamp) -> Vec<String>;

    /// The columns of [`DefinitionView::wide_row`].
    fn wide_heading() -> Vec<&'static str>;

    /// The same row with its cells in full, and further ones.
    fn wide_row(&self, now: Timestamp) -> Vec<String>;
}

impl DefinitionView for Definition {
    fn name_with_conditions(&self) -> String {
        let missed = self.expect.as_ref().map(|expect| expect.condition.as_ref()).filter(|it| *it != "met");
        let paused = paused(&self.pauses);
        let missing = self.missing_secret.as_ref().map(|_| "a secret is missing");
        let disabled = (!self.enabled).then_some("disabled");
        let conditions: Vec<&str> =
            disabled.into_iter().chain(paused.as_deref()).chain(missing).chain(missed).collect();
        match conditions.is_empty() {
            true => self.name.clone(),
            false => format!("{} ({})", self.name, conditions.join(", ")),
        }
    }

    const HEADING: [&str; 7] = ["NAME", "LAST", "NEXT", ">WAITING", "IMAGE", "COMMAND", "DESCRIPTION"];

    fn row(&self, now: Timestamp) -> Vec<String> {
        row(self, now, [40, 40])
    }

    fn wide_heading() -> Vec<&'static str> {
        [&Self::HEADING[..], &["RUNTIME", "REVISION", "LAST JOB", "ENDED", "NEXT SLOT"]].concat()
    }

    fn wide_row(&self, now: Timestamp) -> Vec<String> {
        let last = self.last_ended.as_ref();
        let more = [
            self.runtime.to_string(),
            self.revision.clone(),
            optional(last.map(|job| job.id).as_ref()),
            optional(last.and_then(|job| job.ended_at).as_ref()),
            optional(self.next_fire_at.as_ref()),
        ];
        row(self, now, [usize::MAX; 2]).into_iter().chain(more).collect()
    }
}

/// `paused`, with the end of the last of these pauses if all of them end by themselves.
fn paused(pauses: &[Pause]) -> Option<String> {
    let ends: Option<Vec<Time>> = pauses.iter().map(|pause| pause.until).collect();
    let last = ends.and_then(|ends| ends.into_iter().max());
    let until = last.map(|end| format!(" until {end}")).unwrap_or_default();
    (!pauses.is_empty()).then(|| format!("paused{until}"))
}

/// A row whose command and description have at most this number of characters.
fn row(definition: &Definition, now: Timestamp, [command, description]: [usize; 2]) -> Vec<String> {
    let words = definition.entrypoint.iter().flatten().chain(&definition.command);
    let next = definition.next_fire_at.map(|slot| format!("in {}", until(slot, now)));
    vec![
        definition.name_with_conditions(),
        last_end(definition, now),
        next.unwrap_or_default(),
        definition.waiting.iter().map(|waiting| waiting.count).sum::<u64>().to_string(),
        definition.image.clone(),
        shortened(&quoting::shell_join(words), command),
        shortened(definition.description.as_deref().unwrap_or_default(), description),
    ]
}

/// The end of the job that ended last, and its age; empty if none has ended.
fn last_end(definition: &Definition, now: Timestamp) -> String {
    let Some(job) = &definition.last_ended else { return String::new() };
    let age = job.ended_at.map(|at| format!(" {} ago", since(at, now))).unwrap_or_default();
    let exit = job.exit_code.filter(|code| *code != 0).map(|code| format!(" (exit {code})"));
    format!("{}{age}{}", job.state_text(), exit.unwrap_or_default())
}

/// Texts about a reload.
pub(crate) trait ReloadedView {
    /// The number of definitions and their changes, in one line.
    fn summary(&self) -> String;
}

impl ReloadedView for Reloaded {
    fn summary(&self) -> String {
        let parts = [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)];
        let policy = self.policy_changed.then(|| "the policy has changed".to_owned());
        let changes: Vec<String> = parts
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{what}: {}", names.join(", ")))
            .chain(policy)
            .collect();
        let noun = if self.definitions == 1 { "definition" } else { "definitions" };
        let changes = if changes.is_empty() { "nothing has changed".to_owned() } else { changes.join("; ") };
        let revision = match self.revision.as_str() {
            // Of an older server.
            "" => String::new(),
            revision => format!("; revision {revision}"),
        };
        format!("{} {noun}; {changes}{revision}", self.definitions)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;

    use super::*;

    #[test]
    fn the_command_of_a_row_begins_with_the_entrypoint() {
        let definition = definition(serde_json::json!({"entrypoint": ["/bin/sh", "-c"], "command": ["a b"]}));
        assert_eq!(definition.row(now())[5], "/bin/sh -c 'a b'");
    }

    #[test]
    fn a_reload_of_the_policy_alone_has_changed_something() {
        let reloaded = Reloaded { definitions: 2, policy_changed: true, ..Reloaded::default() };
        assert_eq!(reloaded.summary(), "2 definitions; the policy has changed");
    }

    #[test]
    fn a_row_tells_how_the_last_job_ended_and_when_the_next_is_made() {
        let last = serde_json::json!({"id": 7, "name": "a", "state": "failed", "outcome": "failed", "exit_code": 3,
            "created_at": "2026-03-01T08:00:00.000Z", "ended_at": "2026-03-01T08:30:00.000Z"});
        let next = "2026-03-01T11:00:00.000Z";
        let shown = definition(serde_json::json!({ "last_ended": last, "next_fire_at": next }));
        assert_eq!(shown.row(now())[1..3], ["failed 1h00m ago (exit 3)", "in 1h30m"]);
        assert_eq!(shown.wide_row(now())[9..], ["7", "2026-03-01T08:30:00.000Z", next]);
        assert_eq!(Definition::wide_heading().len(), shown.wide_row(now()).len());
        assert_eq!(definition(serde_json::json!({})).row(now())[1..3], ["", ""]);
    }

    fn now() -> Timestamp {
        "2026-03-01T09:30:00Z".parse().unwrap()
    }

    /// A definition with these further fields.
    fn definition(fields: serde_json::Value) -> Definition {
        let mut json =
            serde_json::json!({"name": "a", "revision": "5c1e", "enabled": true, "runtime": "docker"});
        json.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Definition::deserialize(&json).unwrap()
    }
}
