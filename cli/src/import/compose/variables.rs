//! Variables in values of compose files, in the form of jobs.yaml: `${NAME}` alone, with `$$` for a dollar.

/// A value of jobs.yaml, and the variables whose default had to be written in their place.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Translated {
    pub(super) text: String,
    pub(super) replaced: Vec<String>,
}

/// Translates all variables of a value.
pub(super) fn translate(text: &str) -> Translated {
    let mut translated = Translated::default();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        translated.text.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        rest = if let Some(after) = after.strip_prefix('$') {
            translated.text.push_str("$$");
            after
        } else if let Some((inner, after)) = after.strip_prefix('{').and_then(braced) {
            add_braced(inner, &mut translated);
            after
        } else {
            let end = name_length(after);
            match end {
                0 => translated.text.push_str("$$"),
                end => translated.text.push_str(&format!("${{{}}}", &after[..end])),
            }
            &after[end..]
        };
    }
    translated.text.push_str(rest);
    translated
}

/// The texts before and after the closing brace.
fn braced(text: &str) -> Option<(&str, &str)> {
    let mut depth = 1_u32;
    for (offset, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&text[..offset], &text[offset + 1..]));
        }
    }
    None
}

fn add_braced(inner: &str, translated: &mut Translated) {
    let (name, form) = inner.split_at(name_length(inner));
    let default = form.strip_prefix(":-").or_else(|| form.strip_prefix('-'));
    let is_required = form.starts_with(":?") || form.starts_with('?');
    match default {
        _ if form.is_empty() || is_required => translated.text.push_str(&format!("${{{name}}}")),
        Some(default) => {
            let inner = translate(default);
            translated.text.push_str(&inner.text);
            translated.replaced.push(name.to_owned());
            translated.replaced.extend(inner.replaced);
        }
        // A value that depends on another variable being set: as if it was not.
        None => translated.replaced.push(name.to_owned()),
    }
}

fn name_length(text: &str) -> usize {
    let is_start = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    if is_start { end } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_keep_their_meaning_or_are_named() {
        for (text, expected, replaced) in [
            ("a:${TAG}", "a:${TAG}", &[][..]),
            ("$HOME/x", "${HOME}/x", &[]),
            ("$$HOME", "$$HOME", &[]),
            ("cost: 5$", "cost: 5$$", &[]),
            ("${TAG:-1.2}", "1.2", &["TAG"]),
            ("${A-${B:-c}}", "c", &["A", "B"]),
            ("${A:?must be set}", "${A}", &[]),
            ("${A:+x}", "", &["A"]),
            ("${", "$${", &[]),
        ] {
            let translated = translate(text);
            assert_eq!(translated.text, expected, "{text}");
            assert_eq!(translated.replaced, replaced, "{text}");
        }
    }
}
