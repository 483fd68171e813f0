//! Escape sequences of terminals (ECMA-48) in output, such as colours.
//!
//! Written by hand: parsers of terminals keep a state of the screen, and here sequences are only left out.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::str::Chars;

/// The text without escape sequences. Other control characters stay.
pub(crate) fn remove(text: &str) -> Cow<'_, str> {
    if !text.contains('\x1b') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\x1b' => skip(&mut chars),
            _ => plain.push(char),
        }
    }
    Cow::Owned(plain)
}

/// Skips the rest of an escape sequence, after its first character: `[31m` of a colour, `]0;title` up to BEL or `ESC \\`, or one character. No
/// sequence goes beyond the end of its line. Of one that does not end, only the beginning is skipped.
fn skip(chars: &mut Chars<'_>) {
    match chars.next() {
        Some('[') => skip_to_final(chars, '\x20'..='\x3f', '\x40'..='\x7e'),
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(chars),
        // Of a sequence with intermediate characters, such as a character set, the last one ends it.
        Some('\x20'..='\x2f') => skip_to_final(chars, '\x20'..='\x2f', '\x30'..='\x7e'),
        _ => {}
    }
}

/// Skips characters of the first range, and one of the second.
fn skip_to_final(chars: &mut Chars<'_>, within: RangeInclusive<char>, last: RangeInclusive<char>) {
    let rest = chars.as_str().trim_start_matches(|char| within.contains(&char));
    *chars = rest.strip_prefix(|char| last.contains(&char)).unwrap_or(rest).chars();
}

fn skip_string(chars: &mut Chars<'_>) {
    let mut ahead = chars.clone();
    for _ in 0..STRING_CHARS_MAX {
        match ahead.next() {
            Some('\x07') => return *chars = ahead,
            Some('\x1b') if ahead.clone().next() == Some('\\') => {
                ahead.next();
                return *chars = ahead;
            }
            Some('\n') | None => return,
            Some(_) => {}
        }
    }
}

/// Titles and links are shorter. Output of a job may begin one at each character.
const STRING_CHARS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_removed_and_nothing_else() {
        for (text, expected) in [
            ("\x1b[1;31merror\x1b[0m: no space\r", "error: no space\r"),
            ("\x1b]8;;https://x/\x1b\\link\x1b]8;;\x1b\\ \x1b(Bb", "link b"),
            ("\x1b]0;never ended\nan error", "0;never ended\nan error"),
            ("\x1b[31\nan error", "\nan error"),
            ("größer 🚢", "größer 🚢"),
        ] {
            assert_eq!(remove(text), expected, "{text:?}");
        }
    }
}
