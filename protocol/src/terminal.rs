//! Characters that a terminal acts on instead of showing them. Untrusted text must not contain them.

/// Control characters, and those that change the writing direction.
#[must_use]
pub const fn is_terminal_control(c: char) -> bool {
    matches!(c, '\0'..='\x1f' | '\x7f'..='\u{9f}') || changes_direction(c)
}

/// Marks, embeddings, overrides and isolates of bidirectional text (Unicode Standard Annex 9, section 2): they change the direction of what
/// follows.
#[must_use]
pub const fn changes_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
