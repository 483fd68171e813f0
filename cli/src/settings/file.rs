//! Parser of the settings file: a map of scalars and lists of scalars, each with its position.
//!
//! The meaning of keys and values is checked elsewhere. A key or value of the wrong kind does not end the parsing. A YAML syntax error does,
//! because later errors would be guesses.

use std::collections::HashMap;
use std::fmt;

use serde_yaml::granit_parser::{Event, Marker, Options, Parser, ScalarStyle, StrInput};

/// Line and column in the file, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) line: usize,
    column: usize,
}

/// An error and its position.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: Position,
    pub(super) code: &'static str,
    pub(super) text: String,
}

/// A key with its value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) key: String,
    pub(super) at: Position,
    pub(super) value: Value,
    pub(super) value_at: Position,
}

/// Scalars are kept as text, because a flag parses its value itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value {
    Scalar(String),
    List(Vec<String>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(text) => f.write_str(text),
            Self::List(texts) => f.write_str(&texts.join(",")),
        }
    }
}

/// The settings of a file that can be used, and its faults.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) settings: Vec<Setting>,
    pub(super) faults: Vec<Fault>,
}

/// Parses the text of a settings file.
pub(super) fn read(text: &str) -> Parsed {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut events = Events { parser: Parser::new_from_str_with_options(text, options) };
    let mut parsed = Parsed::default();
    if let Err(fault) = events.document(&mut parsed) {
        parsed.faults.push(fault);
    }
    parsed
}

struct Events<'t> {
    parser: Parser<'t, StrInput<'t>>,
}

impl<'t> Events<'t> {
    /// The next event with content.
    fn next(&mut self) -> Result<Option<(Event<'t>, Position)>, Fault> {
        for event in &mut self.parser {
            let (event, span) =
                event.map_err(|error| fault(Position::of(*error.marker()), "yaml_syntax", error.info()))?;
            match event {
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd | Event::StreamEnd => {}
                event => return Ok(Some((event, Position::of(span.start)))),
            }
        }
        Ok(None)
    }

    fn document(&mut self, parsed: &mut Parsed) -> Result<(), Fault> {
        match self.next()? {
            None => return Ok(()),
            Some((Event::MappingStart(..), _)) => self.settings(parsed)?,
            Some((Event::Scalar(text, ScalarStyle::Plain, ..), _)) if is_nothing(&text) => {}
            Some((_, at)) => {
                return Err(fault(at, "expected_map", "write settings as \"name: value\", a line each"));
            }
        }
        match self.next()? {
            None => Ok(()),
            Some((_, at)) => Err(fault(at, "yaml_syntax", "the file must hold one YAML document")),
        }
    }

    fn settings(&mut self, parsed: &mut Parsed) -> Result<(), Fault> {
        let mut lines: HashMap<String, usize> = HashMap::new();
        while let Some((event, at)) = self.next()? {
            let key = match event {
                Event::MappingEnd => break,
                Event::Scalar(key, ..) => key.into_owned(),
                _ => return Err(fault(at, "yaml_syntax", "a key must be plain text")),
            };
            let earlier = lines.insert(key.clone(), at.line);
            let value = self.value(at)?;
            match (earlier, value) {
                (Some(line), _) => {
                    let text = format!("it was first defined at line {line}");
                    parsed.faults.push(fault(at, "duplicate_key", text));
                }
                (None, Ok((value, value_at))) => parsed.settings.push(Setting { key, at, value, value_at }),
                (None, Err(fault)) => parsed.faults.push(fault),
            }
        }
        Ok(())
    }

    /// The value of a key, or why it is none; read to its end in both cases.
    ///
    /// # Errors
    /// The text is not YAML.
    fn value(&mut self, key_at: Position) -> Result<Result<(Value, Position), Fault>, Fault> {
        Ok(match self.next()? {
            Some((Event::Scalar(text, style, ..), at)) => match style {
                ScalarStyle::Plain if is_nothing(&text) => Err(fault(
                    key_at,
                    "missing_value",
                    "it has no value; remove the line to keep the default",
                )),
                _ => Ok((Value::Scalar(text.into_owned()), at)),
            },
            Some((Event::SequenceStart(..), at)) => self.words()?.map(|words| (Value::List(words), at)),
            Some((event, at)) => {
                self.skip(&event)?;
                Err(fault(at, "invalid_value", NEITHER))
            }
            None => Err(fault(key_at, "invalid_value", NEITHER)),
        })
    }

    /// Skips the rest of a map or list that began with this event.
    fn skip(&mut self, begun: &Event<'_>) -> Result<(), Fault> {
        let mut depth = depth_change(begun);
        while depth > 0 {
            let Some((event, _)) = self.next()? else { break };
            depth += depth_change(&event);
        }
        Ok(())
    }

    fn words(&mut self) -> Result<Result<Vec<String>, Fault>, Fault> {
        let (mut words, mut wrong) = (Vec::new(), None);
        while let Some((event, at)) = self.next()? {
            match event {
                Event::SequenceEnd => break,
                Event::Scalar(text, ..) => words.push(text.into_owned()),
                event => {
                    self.skip(&event)?;
                    wrong.get_or_insert_with(|| fault(at, "invalid_value", NEITHER));
                }
            }
        }
        Ok(wrong.map_or(Ok(words), Err))
    }
}

/// How many levels deeper the parser is after this event.
fn depth_change(event: &Event<'_>) -> i32 {
    match event {
        Event::MappingStart(..) | Event::SequenceStart(..) => 1,
        Event::MappingEnd | Event::SequenceEnd => -1,
        _ => 0,
    }
}

impl Position {
    fn of(marker: Marker) -> Self {
        Self { line: marker.line(), column: marker.col() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

pub(super) fn fault(at: Position, code: &'static str, text: impl Into<String>) -> Fault {
    Fault { at, code, text: text.into() }
}

fn is_nothing(text: &str) -> bool {
    matches!(text, "" | "~" | "null")
}

const NEITHER: &str = "a setting is a value or a list of values";

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        let parsed = read(text);
        let faults: Vec<_> = parsed.faults.iter().map(|it| format!("{} {}", it.at, it.code)).collect();
        if faults.is_empty() { format!("{} settings", parsed.settings.len()) } else { faults.join(", ") }
    }

    #[test]
    fn words_are_taken_as_they_are_written_and_keep_their_lines() {
        let settings = read("# ours\nslots: 08\nlabel: [a=1, 'b=2']\nlog: \"\"\n").settings;
        let shown: Vec<_> = settings.iter().map(|it| (&*it.key, it.at.line, &it.value)).collect();
        let list = Value::List(vec!["a=1".to_owned(), "b=2".to_owned()]);
        let (word, empty) = (Value::Scalar("08".to_owned()), Value::Scalar(String::new()));
        assert_eq!(shown, [("slots", 2, &word), ("label", 3, &list), ("log", 4, &empty)]);
    }

    #[test]
    fn what_is_no_flat_map_is_refused_where_that_shows() {
        for (text, expected) in [
            ("", "0 settings"),
            ("# nothing\n", "0 settings"),
            ("~", "0 settings"),
            ("slots", "1:1 expected_map"),
            ("- slots", "1:1 expected_map"),
            ("slots: 1\nslots: 2", "2:1 duplicate_key"),
            ("slots:\n", "1:1 missing_value"),
            ("a: { b: c }", "1:4 invalid_value"),
            ("a: [[b]]", "1:5 invalid_value"),
            ("[a]: b", "1:1 yaml_syntax"),
            ("a: 1\n---\nb: 2", "3:1 yaml_syntax"),
            ("a: [1", "1:4 yaml_syntax"),
            ("a: *b", "1:4 yaml_syntax"),
            // Each fault is told, and what follows it is read.
            (
                "a: { b: { c: [d] } }\nb:\nc: [[1, 2], {}, 3]\nb: 2\nd: 1",
                "1:4 invalid_value, 2:1 missing_value, 3:5 invalid_value, 4:1 duplicate_key",
            ),
            ("a: { b: c }\nd: [1", "1:4 invalid_value, 2:4 yaml_syntax"),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }
}
