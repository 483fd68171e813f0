//! Patterns in which `*` stands for any text: names of definitions, kinds of events, images.

/// True if a name fits a pattern, in which `*` stands for any text.
#[must_use]
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
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
