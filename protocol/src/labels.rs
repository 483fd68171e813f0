//! The names of labels, of workers and of jobs.

/// True for a name: letters, digits, `.`, `_`, `-` and `/`. Each place where names stand has its own limit of their length.
#[must_use]
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte))
}

/// Bytes of the longest name by which a job can ask for a label of workers.
pub const ASKED_NAME_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn names_have_no_blanks() {
        assert!(["a", "example.org/rack-7", "A_b"].into_iter().all(is_name));
        assert!(!["", "a b", "a=b", "ä"].into_iter().any(is_name));
    }
}
