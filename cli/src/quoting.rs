//! Quoting of command lines.

/// Joins arguments into one line that a shell would split into the same arguments.
pub(crate) fn shell_join<'w>(words: impl IntoIterator<Item = &'w String>) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    let quoted = |word: &'w String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_with_special_characters_are_quoted() {
        let list = ["sh", "-c", "echo hi; it's", "", "a=b"].map(str::to_owned);
        assert_eq!(shell_join(&list), r"sh -c 'echo hi; it'\''s' '' a=b");
    }
}
