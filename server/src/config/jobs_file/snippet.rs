//! The line of a fault with a mark under its position, without values that may be secret.
//!
//! Hidden are the values of keys whose name sounds like a secret, in the line of the key and in the block below it. `environment` is such a key.

use std::ops::Range;

use super::fault::{Position, QUOTED_CHARS_MAX};

/// The line at a position, cut on both sides if it is long. For a private fault the line is cut at the position.
pub(super) fn quote(lines: &[&str], at: Position, private: bool) -> Option<String> {
    let number = (at.line as usize).checked_sub(1)?;
    let line: Vec<char> = lines.get(number)?.chars().collect();
    let position = at.column.saturating_sub(1) as usize;
    let mut hidden = secret_values(&line);
    hidden.push(block_offset(lines, number)..usize::MAX);
    if private {
        hidden.push(position..usize::MAX);
    }
    Some(mark(&line, at.line, position, &hidden))
}

fn mark(line: &[char], number: u32, position: usize, hidden: &[Range<usize>]) -> String {
    let is_hidden = |index: usize| hidden.iter().any(|range| range.contains(&index));
    // One character stands for all that are hidden in a row.
    let is_left_out = |index: usize| index > 0 && is_hidden(index) && is_hidden(index - 1);
    let shown = (0..line.len()).filter(|index| !is_left_out(*index)).map(|index| match line[index] {
        _ if is_hidden(index) => '…',
        c if c.is_control() => ' ',
        c => c,
    });
    let shown: Vec<char> = shown.collect();
    let left_out = (0..line.len().min(position + 1)).filter(|index| is_left_out(*index)).count();
    let marked = position.min(line.len()) - left_out;
    let start = (marked + 1).saturating_sub(QUOTED_CHARS_MAX * 3 / 4);
    let end = shown.len().min(start + QUOTED_CHARS_MAX);
    let cut = |is_cut| if is_cut { "…" } else { "" };
    let from = start + usize::from(start > 0);
    let visible: String = shown.get(from..end).unwrap_or_default().iter().collect();
    let (left, right) = (cut(start > 0), cut(end < shown.len()));
    let number = number.to_string();
    let (gutter, indent) = (" ".repeat(number.len()), " ".repeat(marked - start));
    format!("  {number} | {left}{visible}{right}\n  {gutter} | {indent}^")
}

/// The characters of a line that must be hidden: the values of keys that sound like a secret. A value is taken to reach to the end of the line,
/// unless it is a flow collection that ends before another key or the end of the collection around it.
fn secret_values(line: &[char]) -> Vec<Range<usize>> {
    let mut values = Vec::new();
    let mut from = 0;
    while let Some(start) = secret_offset(line, from) {
        let end = end_of_collection(line, start).unwrap_or(usize::MAX);
        values.push(start..end);
        from = end;
    }
    values
}

/// The first character after the separator of the next key that sounds like a secret.
fn secret_offset(line: &[char], from: usize) -> Option<usize> {
    let rest = line.get(from..)?;
    let is_at = |index: usize, word: &str| {
        let mut rest = rest[index..].iter();
        word.chars().all(|c| rest.next().is_some_and(|other| other.eq_ignore_ascii_case(&c)))
    };
    let after = |word: &str| {
        let word = (0..rest.len()).find(|index| is_at(*index, word))?;
        let separator = rest[word..].iter().position(|c| matches!(c, ':' | '='))?;
        Some(from + word + separator + 1)
    };
    SECRET_WORDS.into_iter().filter_map(after).min()
}

/// The end of the flow collection that is the value at this place. `None` if there is none, it does not end in the line, or the text behind it
/// is not that of a collection around it: then its end may be a part of a value.
fn end_of_collection(line: &[char], start: usize) -> Option<usize> {
    let open = start + line.get(start..)?.iter().position(|c| *c != ' ')?;
    let mut closers = Vec::new();
    let mut quote = None;
    for (index, c) in line.iter().copied().enumerate().skip(open) {
        match (quote, c) {
            // An escaped quote would end the text too early.
            (Some('"'), '\\') => return None,
            (Some(opened), c) if c == opened => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            // A comment may begin here.
            (None, '#') => return None,
            (None, '{') => closers.push('}'),
            (None, '[') => closers.push(']'),
            (None, '}' | ']') if closers.pop() != Some(c) => return None,
            (None, _) => {}
        }
        if closers.is_empty() {
            return (index > open && is_followed_by_key(&line[index + 1..])).then_some(index + 1);
        }
    }
    None
}

/// True if another key of the same map follows, or the end of the map.
fn is_followed_by_key(rest: &[char]) -> bool {
    let text: String = rest.iter().collect();
    let Some(next) = text.trim_start().strip_prefix(',') else {
        return text.trim().chars().all(|c| matches!(c, '}' | ']' | ' '));
    };
    let key = next.trim_start();
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let after = key.trim_start_matches(is_of_key);
    after.len() < key.len() && after.starts_with(": ")
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
        let line: Vec<char> = line.chars().collect();
        if secret_offset(&line, 0).is_some() {
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
    fn keys_behind_a_hidden_collection_in_the_same_line_are_shown() {
        let line = "  a: {environment: {A: hunter2, B: [hunter2]}, timeout: soon, token: hunter2}";
        let column = u32::try_from(line.find("soon").expect("it is there") + 1).expect("a short text");
        let mark = format!("    | {}^", " ".repeat("  a: {environment:…, timeout: ".chars().count()));
        assert_eq!(
            quote_last(line, column),
            format!("  1 |   a: {{environment:…, timeout: soon, token:…\n{mark}")
        );
        let at_end = quote_last("  a: {x: b, environment: {A: hunter2}}", 8);
        assert!(at_end.starts_with("  1 |   a: {x: b, environment:…}\n"), "{at_end}");
    }

    #[test]
    fn values_beside_an_environment_are_shown() {
        let shown = quote_last("    environment:\n      A: b\n    imgae: busybox", 5);
        assert!(shown.contains("imgae: busybox"), "{shown}");
    }
}
