//! Characters that a terminal acts on instead of showing them. Untrusted text must not contain them.

/// Control characters, and those that change the writing direction.
#[must_use]
pub const fn is_terminal_control(c: char) -> bool {
    matches!(c, '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
