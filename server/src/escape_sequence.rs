//! Escape sequences of terminals (ECMA-48) in output, such as colours.
//!
//! Written by hand: parsers of terminals keep a state of the screen, and here sequences are only left out.

use std::borrow::Cow;
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

/// Skips the rest of an escape sequence, after its first character: `[31m` of a colour, `]0;title` up to BEL or `ESC \`, or one character.
pub(crate) fn skip(chars: &mut Chars<'_>) {
    match chars.next() {
        Some('[') => {
            chars.find(|char| ('\x40'..='\x7e').contains(char));
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(char) = chars.next() {
                if char == '\x07' || (char == '\x1b' && chars.next().is_none_or(|next| next == '\\')) {
                    return;
                }
            }
        }
        // Of a sequence with intermediate characters, such as a character set, the last one ends it.
        Some('\x20'..='\x2f') => {
            chars.find(|char| ('\x30'..='\x7e').contains(char));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_removed_and_nothing_else() {
        for (text, expected) in [
            ("\x1b[1;31merror\x1b[0m: no space\r", "error: no space\r"),
            ("\x1b]8;;https://x/\x1b\\link\x1b]8;;\x1b\\ \x1b(Bb", "link b"),
            ("größer 🚢", "größer 🚢"),
        ] {
            assert_eq!(remove(text), expected, "{text:?}");
        }
    }
}
