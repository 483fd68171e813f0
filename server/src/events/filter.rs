//! The selection of events by a reader.

use protocol::{JobId, WorkerId};

use super::record::EventRecord;

/// Selects events; an absent condition selects all.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Kinds, with `*` for any text; one of them fits. Empty: all.
    pub kinds: Vec<String>,
    /// Names of definitions, with `*` for any text; one of them fits. Empty: all.
    pub names: Vec<String>,
    /// States of the job or worker; one of them fits. Empty: all.
    pub states: Vec<String>,
    /// The worker concerned.
    pub worker: Option<WorkerId>,
    /// The batch of the job.
    pub batch: Option<JobId>,
}

impl EventFilter {
    /// True if the event fits every condition.
    #[must_use]
    pub fn selects(&self, event: &EventRecord) -> bool {
        let fits_any = |patterns: &[String], text: Option<&str>| {
            patterns.is_empty() || text.is_some_and(|text| patterns.iter().any(|it| matches(it, text)))
        };
        fits_any(&self.kinds, Some(event.kind))
            && fits_any(&self.names, event.name())
            && fits_any(&self.states, event.state())
            && self.worker.is_none_or(|worker| event.worker() == Some(worker))
            && self.batch.is_none_or(|batch| event.batch() == Some(batch))
    }
}

/// True if a name fits a pattern, in which `*` stands for any text.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    // Without a star the whole name was compared.
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name) in [
            ("*", "resize"),
            ("resize", "resize"),
            ("re*", "resize"),
            ("*size", "resize"),
            ("r*i*e", "resize"),
            ("resize*", "resize"),
            ("a*a", "aa"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("re*", "mail"), ("re", "resize"), ("*mail", "mailer"), ("a*a", "a"), ("r*z*z*e", "resize")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
