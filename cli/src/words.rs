//! Words of a command line, as people would write them.

/// Words in one line, so that a shell would read them as the same words.
pub(crate) fn in_shell<'w>(words: impl IntoIterator<Item = &'w String>) -> String {
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
    fn words_stay_what_they_are() {
        let list = ["sh", "-c", "echo hi; it's", "", "a=b"].map(str::to_owned);
        assert_eq!(in_shell(&list), r"sh -c 'echo hi; it'\''s' '' a=b");
    }
}
