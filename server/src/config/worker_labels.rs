//! Labels that workers may claim for themselves. All others are for operators to set.

/// Names of labels; a name that ends with `*` stands for all names with that beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerLabels(Vec<String>);

impl WorkerLabels {
    /// Parses names that are separated by commas; `*` alone stands for all labels, nothing for none.
    ///
    /// # Errors
    /// The entry that is no name.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        let checked = names.map(|name| {
            let stem = name.strip_suffix('*').unwrap_or(name);
            let fits = stem.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte));
            if fits { Ok(name.to_owned()) } else { Err(name.to_owned()) }
        });
        checked.collect::<Result<_, _>>().map(Self)
    }

    /// Workers may claim this label.
    #[must_use]
    pub fn allows(&self, label: &str) -> bool {
        self.0.iter().any(|name| match name.strip_suffix('*') {
            Some(beginning) => label.starts_with(beginning),
            None => name == label,
        })
    }
}

impl Default for WorkerLabels {
    /// All labels.
    fn default() -> Self {
        Self(vec!["*".to_owned()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_beginnings_are_allowed() {
        let labels = WorkerLabels::parse("zone, host/*,").expect("good names");
        let allowed = ["zone", "zones", "host/cpu", "gpu"].map(|label| labels.allows(label));
        assert_eq!(allowed, [true, false, true, false]);
        assert!(WorkerLabels::default().allows("gpu"));
        assert!(!WorkerLabels::parse("").expect("no names").allows("gpu"));
        assert_eq!(WorkerLabels::parse("zone,a b"), Err("a b".to_owned()));
    }
}
