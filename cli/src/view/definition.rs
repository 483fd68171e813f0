//! Definitions as table rows, and the result of a reload as a sentence.

use server::http::present::shapes::{Definition, Pause, Reloaded, Time};

use super::shortened;
use crate::quoting;

/// Texts about a definition.
pub(crate) trait DefinitionView {
    /// The columns of [`DefinitionView::row`].
    const HEADING: [&str; 7];

    /// Its name, and what is unusual about it.
    fn name_with_conditions(&self) -> String;

    /// A row of the table of definitions.
    fn row(&self) -> Vec<String>;

    /// The same row with its cells in full.
    fn wide_row(&self) -> Vec<String>;
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

    const HEADING: [&str; 7] = ["NAME", "RUNTIME", "IMAGE", "COMMAND", ">WAITING", "REVISION", "DESCRIPTION"];

    fn row(&self) -> Vec<String> {
        row(self, [40, 12, 40])
    }

    fn wide_row(&self) -> Vec<String> {
        row(self, [usize::MAX; 3])
    }
}

/// `paused`, with the end of the last of these pauses if all of them end by themselves.
fn paused(pauses: &[Pause]) -> Option<String> {
    let ends: Option<Vec<Time>> = pauses.iter().map(|pause| pause.until).collect();
    let last = ends.and_then(|ends| ends.into_iter().max());
    let until = last.map(|end| format!(" until {end}")).unwrap_or_default();
    (!pauses.is_empty()).then(|| format!("paused{until}"))
}

/// A row whose command, revision and description have at most so many characters.
fn row(definition: &Definition, [command, revision, description]: [usize; 3]) -> Vec<String> {
    let words = definition.entrypoint.iter().flatten().chain(&definition.command);
    vec![
        definition.name_with_conditions(),
        definition.runtime.to_string(),
        definition.image.clone(),
        shortened(&quoting::shell_join(words), command),
        definition.waiting.iter().map(|waiting| waiting.count).sum::<u64>().to_string(),
        shortened(&definition.revision, revision),
        shortened(definition.description.as_deref().unwrap_or_default(), description),
    ]
}

/// Texts about a reload.
pub(crate) trait ReloadedView {
    /// The number of definitions and their changes, in one line.
    fn summary(&self) -> String;
}

impl ReloadedView for Reloaded {
    fn summary(&self) -> String {
        let parts = [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)];
        let changes: Vec<String> = parts
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{what}: {}", names.join(", ")))
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
        let definition = serde_json::json!({"name": "a", "revision": "5c1e", "enabled": true, "runtime": "docker",
            "entrypoint": ["/bin/sh", "-c"], "command": ["a b"]});
        assert_eq!(Definition::deserialize(&definition).unwrap().row()[3], "/bin/sh -c 'a b'");
    }
}
