//! Regular expressions of parameters: matched in linear time against a whole value.

use regex_automata::meta::{BuildError, Config, Regex};

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// Compiles a pattern. It matches whole values, as if it stood between `^` and `$`.
    ///
    /// # Errors
    /// The pattern is not a regular expression, or compiles to more than a mebibyte.
    pub(crate) fn new(pattern: &str) -> Result<Self, Box<BuildError>> {
        // Compiled alone first: brackets that close too early must not pass because of those added below.
        build(pattern)?;
        Self::of_checked(pattern)
    }

    /// Compiles a pattern that has passed [`Self::new`] before.
    ///
    /// # Errors
    /// None, if that is so.
    pub(crate) fn of_checked(pattern: &str) -> Result<Self, Box<BuildError>> {
        build(&format!(r"\A(?:{pattern})\z")).map(Self)
    }

    pub(crate) fn matches(&self, value: &str) -> bool {
        self.0.is_match(value)
    }
}

/// The reason why a pattern cannot be compiled.
pub(crate) fn refusal_of_pattern(error: &BuildError) -> String {
    error.syntax_error().map_or_else(
        || "is too large".to_owned(),
        |error| {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default().trim();
            last.strip_prefix("error: ").unwrap_or(last).to_owned()
        },
    )
}

fn build(pattern: &str) -> Result<Regex, Box<BuildError>> {
    let config =
        Config::new().nfa_size_limit(Some(COMPILED_BYTES_MAX)).onepass_size_limit(Some(COMPILED_BYTES_MAX));
    Regex::builder().configure(config).build(pattern).map_err(Box::new)
}

/// `a{1000}{1000}` is a million states.
const COMPILED_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_whole_value() {
        let pattern = Pattern::new("a|b+").unwrap();
        assert!(pattern.matches("a") && pattern.matches("bb"));
        assert!(!pattern.matches("ab") && !pattern.matches("a\n") && !pattern.matches(""));
        assert!(Pattern::new(r"\d{4}-\w+").unwrap().matches("2026-é"));
    }

    #[test]
    fn what_is_no_pattern_or_too_large_is_refused() {
        for pattern in ["(", "a)(b", "[z-a]", "(?:a{1000}){1000}"] {
            assert!(Pattern::new(pattern).is_err(), "{pattern}");
        }
    }
}
