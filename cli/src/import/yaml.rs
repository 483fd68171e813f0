//! Values of jobs.yaml and their text.
//!
//! The writer is written by hand, because the result is for people: it needs comments above each job, keys in a chosen order, and lists that stay
//! on one line while they are short. No YAML library of the workspace writes comments. Quoting is cautious: only text that no YAML reader
//! could take for something else stands without quotes.

/// A value of jobs.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Yaml {
    /// Text as it is meant. A dollar is written as `$$`, so that the server replaces nothing in it.
    Text(String),
    /// Text that may hold `${NAME}` and `$$` already.
    Template(String),
    /// A number, a boolean or a duration, written as it is.
    Plain(String),
    /// A list.
    List(Vec<Self>),
    /// A map; its order is kept.
    Map(Vec<(String, Self)>),
}

impl Yaml {
    /// Text as it is meant.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A number, a boolean or a duration.
    pub(super) fn plain(text: impl ToString) -> Self {
        Self::Plain(text.to_string())
    }

    /// A list of texts.
    pub(super) fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    /// The scalar's text before quoting, with dollars doubled.
    fn content(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.replace('$', "$$")),
            Self::Template(text) | Self::Plain(text) => Some(text.clone()),
            Self::List(_) | Self::Map(_) => None,
        }
    }

    /// The scalar on one line.
    fn scalar(&self) -> Option<String> {
        match self {
            Self::Plain(text) => Some(text.clone()),
            scalar => scalar.content().map(|text| quoted(&text)),
        }
    }
}

/// Appends `key: value`.
pub(super) fn write_pair(out: &mut String, indent: usize, key: &str, value: &Yaml) {
    out.push_str(&" ".repeat(indent));
    out.push_str(&quoted(key));
    out.push(':');
    write_after_key(out, indent, value);
}

/// Appends a value after its key, with the line break at its end.
fn write_after_key(out: &mut String, indent: usize, value: &Yaml) {
    if let Some(block) = block_literal(value, indent + 2) {
        out.push_str(&format!(" {block}"));
    } else if let Some(scalar) = value.scalar().or_else(|| flow_list(value)) {
        out.push_str(&format!(" {scalar}\n"));
    } else {
        match value {
            Yaml::Map(pairs) if pairs.is_empty() => out.push_str(" {}\n"),
            Yaml::Map(pairs) => {
                out.push('\n');
                pairs.iter().for_each(|(key, value)| write_pair(out, indent + 2, key, value));
            }
            Yaml::List(items) => {
                out.push('\n');
                items.iter().for_each(|item| write_item(out, indent + 2, item));
            }
            // A scalar was written above.
            Yaml::Text(_) | Yaml::Template(_) | Yaml::Plain(_) => {}
        }
    }
}

fn write_item(out: &mut String, indent: usize, item: &Yaml) {
    let dash = format!("{}- ", " ".repeat(indent));
    match item {
        Yaml::Map(pairs) if !pairs.is_empty() => {
            let mut text = String::new();
            pairs.iter().for_each(|(key, value)| write_pair(&mut text, indent + 2, key, value));
            // The dash takes the place of the first line's indentation.
            out.push_str(&dash);
            out.push_str(text.trim_start_matches(' '));
        }
        _ => {
            out.push_str(dash.trim_end());
            write_after_key(out, indent, item);
        }
    }
}

/// The list in brackets, if it is short and holds nothing but scalars of one line.
fn flow_list(value: &Yaml) -> Option<String> {
    let Yaml::List(items) = value else { return None };
    if items.iter().any(|item| block_literal(item, 0).is_some()) {
        return None;
    }
    let items: Vec<String> = items.iter().map(Yaml::scalar).collect::<Option<_>>()?;
    let line = format!("[{}]", items.join(", "));
    (line.chars().count() <= FLOW_CHARS_MAX).then_some(line)
}

/// Text of several lines after `|` or `|-`, if it can be written so without a change.
fn block_literal(value: &Yaml, indent: usize) -> Option<String> {
    if matches!(value, Yaml::Plain(_)) {
        return None;
    }
    let text = value.content()?;
    let is_fit = text.contains('\n')
        && !text.starts_with([' ', '\n', '\t'])
        && !text.ends_with("\n\n")
        && text.chars().all(|c| c == '\n' || !needs_escape(c))
        && text.lines().all(|line| line.trim_end() == line);
    let margin = " ".repeat(indent);
    let line = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("{margin}{line}\n") };
    let head = if text.ends_with('\n') { "|" } else { "|-" };
    is_fit.then(|| format!("{head}\n{}", text.lines().map(line).collect::<String>()))
}

/// The text on one line, with the quotes that it needs.
pub(super) fn quoted(text: &str) -> String {
    if is_unmistakable(text) {
        text.to_owned()
    } else if text.chars().any(needs_escape) {
        format!("\"{}\"", text.chars().map(escaped).collect::<String>())
    } else if text.contains(['"', '\\']) {
        format!("'{}'", text.replace('\'', "''"))
    } else {
        format!("\"{text}\"")
    }
}

/// True if every reader of YAML takes it for this very text without quotes, in lists of one line, too.
fn is_unmistakable(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '/' || c == '_';
    let is_option =
        |dashes| text.strip_prefix(dashes).is_some_and(|option: &str| option.starts_with(is_letter));
    let starts_well = text.starts_with(is_letter) || is_option("-") || is_option("--");
    let holds_only_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || " _./@%+=$-".contains(c));
    let has_colon_inside = text.contains(':') && !text.ends_with(':') && !text.contains(": ");
    let without_colons: String = text.chars().filter(|c| *c != ':').collect();
    let is_plain = holds_only_plain || (has_colon_inside && is_unmistakable(&without_colons));
    starts_well && is_plain && !text.ends_with(' ') && !is_reserved(text)
}

/// A word that some reader takes for a boolean, for nothing, or for a number.
fn is_reserved(text: &str) -> bool {
    let words = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

const fn needs_escape(c: char) -> bool {
    protocol::terminal::is_terminal_control(c) || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

fn escaped(c: char) -> String {
    match c {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        c if needs_escape(c) => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    }
}

/// Appends comment lines, wrapped. Characters that could end the comment are replaced.
pub(super) fn write_comment(out: &mut String, indent: usize, text: &str) {
    let text: String = text.chars().map(|c| if needs_escape(c) { ' ' } else { c }).collect();
    let head = format!("{}#", " ".repeat(indent));
    let mut line = head.clone();
    for word in text.split_whitespace() {
        if line.len() > head.len() && line.chars().count() + word.chars().count() >= COMMENT_CHARS_MAX {
            out.push_str(&format!("{line}\n"));
            line = format!("{head}  ");
        }
        line.push_str(&format!(" {word}"));
    }
    out.push_str(&format!("{line}\n"));
}

/// The longest list on one line.
const FLOW_CHARS_MAX: usize = 90;
/// The longest line of a comment, unless one word is longer.
const COMMENT_CHARS_MAX: usize = 110;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &Yaml) -> String {
        let mut out = String::new();
        write_pair(&mut out, 0, "k", value);
        out
    }

    #[test]
    fn text_has_quotes_where_a_reader_could_mistake_it() {
        for (text, expected) in [
            ("echo", "echo"),
            ("/srv/a b:/c", "/srv/a b:/c"),
            ("1000:1000", "\"1000:1000\""),
            ("no", "\"no\""),
            ("NULL", "\"NULL\""),
            ("1.20", "\"1.20\""),
            ("", "\"\""),
            ("a: b", "\"a: b\""),
            ("a #b", "\"a #b\""),
            ("it's", "\"it's\""),
            ("say \"it's\"", "'say \"it''s\"'"),
            ("a\tb", "\"a\\tb\""),
            ("@daily", "\"@daily\""),
            ("- a", "\"- a\""),
            ("--all", "--all"),
            ("---", "\"---\""),
            ("größer", "\"größer\""),
            ("a\u{202e}b", "\"a\\u202eb\""),
            ("$HOME", "\"$$HOME\""),
        ] {
            assert_eq!(written(&Yaml::text(text)), format!("k: {expected}\n"), "{text}");
        }
        assert_eq!(written(&Yaml::Template("${TAG}".into())), "k: \"${TAG}\"\n");
    }

    #[test]
    fn short_lists_stay_on_one_line_and_long_texts_keep_their_lines() {
        assert_eq!(written(&Yaml::texts(["sh", "-c", "a, b"])), "k: [sh, -c, \"a, b\"]\n");
        assert_eq!(written(&Yaml::texts(["sh", "a\nb"])), "k:\n  - sh\n  - |-\n    a\n    b\n");
        assert_eq!(written(&Yaml::text("a\n\nb")), "k: |-\n  a\n\n  b\n");
        assert_eq!(written(&Yaml::text("a\nb\n")), "k: |\n  a\n  b\n");
        assert_eq!(written(&Yaml::text("a\n\n")), "k: \"a\\n\\n\"\n");
        assert_eq!(written(&Yaml::text("a \nb")), "k: \"a \\nb\"\n");
        let rule =
            |text: &str| Yaml::Map(vec![("cron".into(), Yaml::text(text)), ("id".into(), Yaml::text("x"))]);
        assert_eq!(written(&Yaml::List(vec![rule("* * * * *")])), "k:\n  - cron: \"* * * * *\"\n    id: x\n");
    }

    #[test]
    fn a_comment_stays_a_comment() {
        let mut out = String::new();
        write_comment(&mut out, 2, "a\nb\u{2028}c");
        assert_eq!(out, "  # a b c\n");
        let mut out = String::new();
        write_comment(&mut out, 0, &"word ".repeat(30));
        assert!(out.lines().count() == 2 && out.lines().all(|line| line.starts_with("# ")), "{out}");
    }

    proptest::proptest! {
        /// A reader of YAML gets every text back as it was, in each place where the writer puts texts.
        #[test]
        fn texts_survive_being_written(text in "[a-z0-9:#,'\"\\\\ \n\t|>&*!%@`~{}\\[\\]?$-]{0,12}|\\PC{0,8}|(yes|No|1e3|0x1f|null|\\.5|2026-01-01|=|<<)") {
            let value = Yaml::Template(text.clone());
            let list = Yaml::List(vec![value.clone(), Yaml::Map(vec![(text.clone(), value.clone())]), value.clone()]);
            let flow = Yaml::List(vec![value.clone(), value.clone()]);
            let mut out = String::new();
            for (key, value) in [("scalar", &value), ("list", &list), ("flow", &flow)] {
                write_pair(&mut out, 0, key, value);
            }
            #[derive(serde::Deserialize)]
            struct Read {
                scalar: String,
                list: (String, std::collections::BTreeMap<String, String>, String),
                flow: Vec<String>,
            }
            let read: Read = serde_yaml::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
            proptest::prop_assert_eq!(&read.scalar, &text);
            proptest::prop_assert_eq!(&read.flow, &vec![text.clone(), text.clone()]);
            let map = std::collections::BTreeMap::from([(text.clone(), text.clone())]);
            proptest::prop_assert_eq!(read.list, (text.clone(), map, text));
        }
    }
}
