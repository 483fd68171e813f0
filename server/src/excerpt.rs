//! Text of a client, made safe to be shown in errors and logs.

/// The text with control characters escaped, cut to 80 characters.
#[must_use]
pub fn excerpt(text: &str) -> String {
    excerpt_of(text, CHARS_MAX)
}

/// The text with control characters escaped, cut to this many characters.
#[must_use]
pub fn excerpt_of(text: &str, chars_max: usize) -> String {
    let mut short: String = text.escape_debug().take(chars_max).collect();
    if text.escape_debug().nth(chars_max).is_some() {
        short.push('…');
    }
    short
}

const CHARS_MAX: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_and_control_characters_are_escaped() {
        assert_eq!(excerpt("a\n\u{1b}[31m\"b"), "a\\n\\u{1b}[31m\\\"b");
        assert_eq!(excerpt(&"x".repeat(500)).chars().count(), 81);
    }
}
