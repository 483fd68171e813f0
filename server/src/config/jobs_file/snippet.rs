//! The line of a fault with a mark under its position, without values that may be secret.
//!
//! Hidden are the values of keys whose name sounds like a secret, in the line of the key and in the block below it. `environment` is such a key.

use super::fault::{Position, QUOTED_CHARS_MAX};

/// The line at a position, cut on both sides if it is long. For a private fault the line is cut at the position.
pub(super) fn quote(lines: &[&str], at: Position, private: bool) -> Option<String> {
    let number = (at.line as usize).checked_sub(1)?;
    let line = *lines.get(number)?;
    let position = at.column.saturating_sub(1) as usize;
    let mut shown_chars = secret_offset(line).min(block_offset(lines, number));
    if private {
        shown_chars = shown_chars.min(position);
    }
    Some(mark(line, at.line, position, shown_chars))
}

/// The part of a line around a position, with a mark under it. One character stands for all that are hidden, and has the mark if the position is
/// behind it.
fn mark(line: &str, number: u32, position: usize, shown_chars: usize) -> String {
    let mut chars: Vec<char> =
        line.chars().take(shown_chars).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let position = position.min(chars.len());
    if shown_chars < line.chars().count() {
        chars.push('…');
    }
    let start = (position + 1).saturating_sub(QUOTED_CHARS_MAX * 3 / 4);
    let end = chars.len().min(start + QUOTED_CHARS_MAX);
    let cut = |is_cut| if is_cut { "…" } else { "" };
    let from = start + usize::from(start > 0);
    let visible: String = chars.get(from..end).unwrap_or_default().iter().collect();
    let (left, right) = (cut(start > 0), cut(end < chars.len()));
    let number = number.to_string();
    let (gutter, indent) = (" ".repeat(number.len()), " ".repeat(position - start));
    format!("  {number} | {left}{visible}{right}\n  {gutter} | {indent}^")
}

/// The first character of a line that must be hidden: the end of a value is not looked for, since the YAML may be broken.
fn secret_offset(line: &str) -> usize {
    // The positions stay the same: all words are ASCII.
    let lower = line.to_ascii_lowercase();
    let after = |word: &&str| {
        let start = lower.find(word)?;
        let separator = lower[start..].find([':', '='])?;
        Some(lower[..start + separator].chars().count() + 1)
    };
    SECRET_WORDS.iter().filter_map(after).min().unwrap_or(usize::MAX)
}

/// The first character that must be hidden in a line of the block below a key that sounds like a secret: the one after the key, or the
/// first of all if the line goes on with a value that began above it. Works on text alone, because the YAML may be broken.
fn block_offset(lines: &[&str], number: usize) -> usize {
    let is_text = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let mut depth = depth_of(lines[number]);
    let mut offset = None;
    for line in lines[..number].iter().rev().filter(is_text) {
        if depth_of(line) >= depth {
            continue;
        }
        depth = depth_of(line);
        // Only the nearest one can have a value that goes on here.
        let has_value = line.chars().skip(end_of_key(line)).any(|c| !c.is_whitespace());
        let offset = *offset.get_or_insert(if has_value { 0 } else { end_of_key(lines[number]) });
        if secret_offset(line) != usize::MAX {
            return offset;
        }
    }
    usize::MAX
}

/// The indentation of a line. List items may have the indentation of their key, but belong to it.
fn depth_of(line: &str) -> usize {
    let text = line.trim_start();
    (line.len() - text.len()) * 2 + usize::from(text.starts_with('-'))
}

fn end_of_key(line: &str) -> usize {
    line.chars().position(|c| c == ':' || c == '=').map_or(0, |separator| separator + 1)
}

const SECRET_WORDS: [&str; 10] = [
    "password",
    "passwd",
    "secret",
    "token",
    "credential",
    "api_key",
    "environment",
    // URLs of services are secrets as well.
    "notify",
    "webhook",
    "slack",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn quote_last(text: &str, column: u32) -> String {
        let lines: Vec<_> = text.lines().collect();
        let line = u32::try_from(lines.len()).expect("a short text");
        quote(&lines, Position { line, column, ..Position::FILE }, false).expect("the line exists")
    }

    #[test]
    fn a_snippet_marks_the_place() {
        let shown = quote_last("jobs:\n  a:\n    imgae: busybox", 5);
        assert_eq!(shown, "  3 |     imgae: busybox\n    |     ^");
    }

    #[test]
    fn a_secret_is_never_quoted() {
        for text in [
            "  DB_PASSWORD: hunter2: x",
            "- {name: a, environment: {A: hunter2}, x}",
            "environment:\n  A: hunter2: x",
            "    environment:\n    - A=hunter2",
            "  - environment:\n\n      A: b\n      # c\n      C: hunter2",
            "  environment:\n    A: |\n      hunter2",
            "    environment:\n# note\n      PIN: hunter2",
            "    environment:\n      A: b\n  # off\n      PIN: hunter2",
            "    \"environment\":\n      PIN: hunter2",
            "      api_token:\n        default: hunter2",
            "environment:\n  KEY: abc\n    hunter2: ghi",
            "environment:\n  KEY: \"abc\n    hunter2==\\q",
            "    \"DB_İİİİPASSWORD\": hunter2",
            "  a: {environment: {A: b}hunter2}, c: d}",
            "  a: {environment: {A: \"b\\\"}, c: hunter2\"}, d: e}",
            "  a: {environment: {A: 'b}', c: 'hunter2'}, d: e}",
            "  a: {environment: [A=b}, c: hunter2], d: e}",
            "  a: {environment: {A: {B: c}, D: hunter2}, d: e}",
            "  a: {environment: {A: b}, api_token: hunter2, c: d}",
            "  a: {environment: {PW: ab}, PIN: hunter2}, c: d}",
            "  a: {environment: {A: it's, B: '}, c: hunter2', D: x}}",
        ] {
            for column in [1, 8, 200] {
                let shown = quote_last(text, column);
                assert!(!shown.contains("hunter2"), "{shown}");
            }
        }
    }

    #[test]
    fn a_long_line_is_cut_on_both_sides_of_the_mark() {
        let line = format!("  a: {{image: {}, timeout: soon, x: {}}}", "i".repeat(90), "y".repeat(90));
        let column = u32::try_from(line.find("soon").expect("it is there") + 1).expect("a short text");
        let shown = quote_last(&line, column);
        let (text, mark) = shown.split_once('\n').expect("two lines");
        assert!(text.starts_with("  1 | …iii") && text.ends_with("y…"), "{shown}");
        let place = mark.chars().position(|c| c == '^').expect("a mark");
        assert!(text.chars().skip(place).collect::<String>().starts_with("soon, x: "), "{shown}");
        assert!(text.chars().count() < 90, "{shown}");
    }

    #[test]
    fn a_mark_in_a_hidden_value_is_under_the_dots() {
        let line = "  a: {x: b, environment: {A: hunter2}, timeout: soon}";
        let mark = format!("    | {}^", " ".repeat("  a: {x: b, environment:".len()));
        for column in [25, 46, 200] {
            assert_eq!(quote_last(line, column), format!("  1 |   a: {{x: b, environment:…\n{mark}"));
        }
    }

    #[test]
    fn values_beside_an_environment_are_shown() {
        let shown = quote_last("    environment:\n      A: b\n    imgae: busybox", 5);
        assert!(shown.contains("imgae: busybox"), "{shown}");
    }
}
