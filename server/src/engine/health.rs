//! Conditions that an operator should know and that do not stop the server: `GET /readyz` lists them, and stays ready.

use std::sync::{Mutex, PoisonError};

/// The warnings of the moment.
#[derive(Debug, Default)]
pub struct Health {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The error of the last step of retention; none if it succeeded.
    retention: Option<String>,
    suspected: usize,
    blocked: usize,
}

impl Health {
    /// Notes the result of a step of retention.
    pub fn note_retention<E: ToString>(&self, result: Result<(), E>) {
        self.with(|state| state.retention = result.err().map(|error| error.to_string()));
    }

    /// Notes how many inputs are suspected and blocked, because the store refused their groups.
    pub(super) fn note_refused(&self, suspected: usize, blocked: usize) {
        self.with(|state| (state.suspected, state.blocked) = (suspected, blocked));
    }

    /// The warnings, a line each; empty if there are none.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.with(|state| {
            let mut warnings = Vec::new();
            if let Some(error) = &state.retention {
                warnings.push(format!("retention: old jobs are not deleted: {error}"));
            }
            if state.suspected + state.blocked > 0 {
                warnings.push(format!(
                    "refused groups: {} inputs are suspected, {} are blocked; see refused-inputs.txt and refused-group-*.txt in the data directory",
                    state.suspected, state.blocked
                ));
            }
            warnings
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_last_until_their_cause_is_gone() {
        let health = Health::default();
        assert_eq!(health.warnings(), [""; 0]);
        health.note_retention(Err("the disk is full"));
        health.note_refused(2, 1);
        let warnings = health.warnings();
        assert_eq!(warnings[0], "retention: old jobs are not deleted: the disk is full");
        assert!(
            warnings[1].starts_with("refused groups: 2 inputs are suspected, 1 are blocked"),
            "{warnings:?}"
        );
        health.note_retention(Ok::<_, String>(()));
        health.note_refused(0, 0);
        assert_eq!(health.warnings(), [""; 0]);
    }
}
