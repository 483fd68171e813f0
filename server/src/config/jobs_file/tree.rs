//! The YAML text as a tree with the position of every value.
//!
//! A serde derive would stop at the first fault and lose the positions. This tree lets the readers report all faults. It refuses YAML
//! features that a jobs file does not need (tags, merge keys, several documents) and bounds the cost of aliases and nesting.

use std::collections::HashMap;

use serde_yaml::granit_parser::{
    ErrorKind, Event, Marker, Options, Parser, ScalarStyle, ScanError, Span, StrInput, Tag,
};

use super::advice;
use super::collector::Collector;
use super::fault::{FaultCode, FileIndex, Position, quoted};

/// A value and its position.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Map),
}

/// A scalar: its text, and whether it is unquoted.
#[derive(Clone, Debug)]
pub(super) struct Scalar {
    pub(super) text: String,
    pub(super) plain: bool,
}

/// The pairs of a map in their order; keys are unique.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    pub(super) pairs: Vec<Pair>,
}

#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) key: String,
    pub(super) key_at: Position,
    pub(super) value: Node,
}

/// The meaning of an unquoted word to YAML readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScalarMeaning {
    Text,
    Null,
    Bool(bool),
    /// `yes`, `no`, `on`, `off`: booleans to some readers, words to others.
    Ambiguous,
    Number,
}

impl Node {
    /// The kind of the value, for messages.
    pub(super) fn describe(&self) -> &'static str {
        match &self.value {
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
            Value::Scalar(scalar) => match scalar.meaning() {
                ScalarMeaning::Text => "text",
                ScalarMeaning::Null => "nothing",
                ScalarMeaning::Bool(_) | ScalarMeaning::Ambiguous => "a boolean",
                ScalarMeaning::Number => "a number",
            },
        }
    }

    /// True if a text in it has a variable of the server, `${NAME}`.
    pub(super) fn has_variable(&self) -> bool {
        match &self.value {
            Value::List(items) => items.iter().any(Self::has_variable),
            Value::Map(map) => map.pairs.iter().any(|pair| pair.value.has_variable()),
            Value::Scalar(scalar) => scalar.text.contains("${"),
        }
    }

    /// An empty list, map or text.
    pub(super) fn is_empty(&self) -> bool {
        match &self.value {
            Value::List(items) => items.is_empty(),
            Value::Map(map) => map.pairs.is_empty(),
            Value::Scalar(scalar) => scalar.text.trim().is_empty(),
        }
    }

    pub(super) fn is_empty_list(&self) -> bool {
        matches!(&self.value, Value::List(items) if items.is_empty())
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar) if scalar.meaning() == ScalarMeaning::Null)
    }
}

impl Scalar {
    pub(super) fn meaning(&self) -> ScalarMeaning {
        if !self.plain {
            return ScalarMeaning::Text;
        }
        match self.text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => ScalarMeaning::Null,
            "true" | "True" | "TRUE" => ScalarMeaning::Bool(true),
            "false" | "False" | "FALSE" => ScalarMeaning::Bool(false),
            word if ["yes", "no", "on", "off"].iter().any(|known| word.eq_ignore_ascii_case(known)) => {
                ScalarMeaning::Ambiguous
            }
            word if is_number(word) => ScalarMeaning::Number,
            _ => ScalarMeaning::Text,
        }
    }
}

impl Map {
    pub(super) fn find(&self, key: &str) -> Option<&Pair> {
        self.pairs.iter().find(|pair| pair.key == key)
    }
}

/// Reads the one document of `text`, the file that the collector is at. Returns `None` if it is empty, or if its YAML is broken, which is
/// recorded in the collector. `copied` counts on from file to file.
pub(super) fn read(text: &str, copied: &mut Size, collector: &mut Collector) -> Option<Node> {
    let file = collector.current();
    if let Some((before, _)) = text.split_once('\0') {
        let text = "a NUL character cannot be passed on; remove it, and save the file as UTF-8 text";
        collector.fault(position_after(before, file), FaultCode::NulByte, text);
        return None;
    }
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut builder =
        Builder { collector, frames: Vec::new(), anchors: HashMap::new(), copied, root: None, file };
    for event in Parser::<StrInput<'_>>::new_from_str_with_options(text, options) {
        match event {
            Ok((Event::DocumentStart(..), span)) if builder.root.is_some() => {
                let text = "the file must hold one YAML document; remove the line \"---\" or split the file";
                builder.collector.fault(position_of(span.start, file), FaultCode::MultipleDocuments, text);
                return None;
            }
            Ok((event, span)) => builder.take(event, span)?,
            Err(error) => {
                builder.refuse(&error);
                return None;
            }
        }
    }
    builder.root.filter(|root| !root.is_null())
}

struct Builder<'a> {
    collector: &'a mut Collector,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Built>,
    copied: &'a mut Size,
    root: Option<Node>,
    file: FileIndex,
}

/// A list or map that has not ended yet.
struct Frame {
    at: Position,
    anchor: usize,
    size: Size,
    height: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { map: Map, places: HashMap<String, Position>, key: Option<Key> },
}

/// A key that waits for its value. The value of a refused key is dropped.
enum Key {
    Wanted(String, Position),
    Refused,
}

/// A node and the cost of copying it.
#[derive(Clone)]
struct Built {
    node: Node,
    size: Size,
    height: usize,
}

/// The number of values and the length of their texts.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    nodes: usize,
    bytes: usize,
}

impl std::ops::AddAssign for Size {
    fn add_assign(&mut self, more: Self) {
        self.nodes += more.nodes;
        self.bytes += more.bytes;
    }
}

impl Builder<'_> {
    /// Takes one event; `None` ends the reading.
    fn take(&mut self, event: Event<'_>, span: Span) -> Option<()> {
        let at = position_of(span.start, self.file);
        let tag_at = span.tag_start().map_or(at, |marker| position_of(marker, self.file));
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let forced_text = self.check_tag(tag.as_deref(), tag_at);
                if text.contains('\0') {
                    self.collector.fault(at, FaultCode::NulByte, "a NUL character cannot be passed on");
                }
                let plain = style == ScalarStyle::Plain && !forced_text;
                let size = Size { nodes: 1, bytes: text.len() };
                let value = Value::Scalar(Scalar { text: text.into_owned(), plain });
                self.finish(Built { node: Node { at, value }, size, height: 0 }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), tag_at);
                self.open(at, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), tag_at);
                self.open(at, anchor, Content::Map { map: Map::default(), places: HashMap::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.repeat(anchor, at),
            _ => Some(()),
        }
    }

    fn open(&mut self, at: Position, anchor: usize, content: Content) -> Option<()> {
        if self.frames.len() >= DEPTH_MAX {
            self.too_deep(at);
            return None;
        }
        let size = Size { nodes: 1, bytes: 0 };
        self.frames.push(Frame { at, anchor, size, height: 1, content });
        Some(())
    }

    fn close(&mut self) -> Option<()> {
        let frame = self.frames.pop()?;
        let value = match frame.content {
            Content::List(items) => Value::List(items),
            Content::Map { map, .. } => Value::Map(map),
        };
        let built = Built { node: Node { at: frame.at, value }, size: frame.size, height: frame.height };
        self.finish(built, frame.anchor)
    }

    fn repeat(&mut self, anchor: usize, at: Position) -> Option<()> {
        let Some(built) = self.anchors.get(&anchor) else {
            self.collector.fault(
                at,
                FaultCode::YamlBudget,
                "an alias must not stand inside of what it repeats",
            );
            return None;
        };
        if self.frames.len() + built.height > DEPTH_MAX {
            self.too_deep(at);
            return None;
        }
        self.count_copies(built.size, at)?;
        let built = self.anchors.get(&anchor)?.clone();
        self.attach(built)
    }

    fn finish(&mut self, built: Built, anchor: usize) -> Option<()> {
        if anchor != 0 {
            self.count_copies(built.size, built.node.at)?;
            self.anchors.insert(anchor, built.clone());
        }
        self.attach(built)
    }

    fn attach(&mut self, built: Built) -> Option<()> {
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(built.node);
            return Some(());
        };
        frame.size += built.size;
        frame.height = frame.height.max(built.height + 1);
        match &mut frame.content {
            Content::List(items) => items.push(built.node),
            Content::Map { map, places, key } => match key.take() {
                None => *key = Some(check_key(built.node, places, self.collector)),
                Some(Key::Wanted(key, key_at)) => map.pairs.push(Pair { key, key_at, value: built.node }),
                Some(Key::Refused) => {}
            },
        }
        Some(())
    }

    fn count_copies(&mut self, size: Size, at: Position) -> Option<()> {
        *self.copied += size;
        if self.copied.nodes > COPIES_MAX || self.copied.bytes > COPIED_BYTES_MAX {
            let text = format!(
                "alias expansion over limit: aliases may repeat at most {COPIES_MAX} values and {} MiB in all",
                COPIED_BYTES_MAX >> 20
            );
            self.collector.fault(at, FaultCode::YamlBudget, text);
            return None;
        }
        Some(())
    }

    fn too_deep(&mut self, at: Position) {
        self.collector.fault(
            at,
            FaultCode::TooDeep,
            format!("lists and maps may be nested {DEPTH_MAX} deep"),
        );
    }

    /// Refuses every tag but `!!str`; returns true for that one.
    fn check_tag(&mut self, tag: Option<&Tag>, at: Position) -> bool {
        let Some(tag) = tag else { return false };
        if tag.is_yaml_core_schema_tag("str") {
            return true;
        }
        let text = format!("the tag {} is not supported; remove it", quoted(&tag.original()));
        self.collector.fault(at, FaultCode::UnsupportedTag, text);
        false
    }

    fn refuse(&mut self, error: &ScanError) {
        let at = position_of(*error.marker(), self.file);
        match error.kind() {
            ErrorKind::RecursionLimitExceeded => self.too_deep(at),
            kind => {
                let advice = advice::hint_for(kind).map_or_else(String::new, |advice| format!("; {advice}"));
                self.collector.fault(at, FaultCode::YamlSyntax, format!("{}{advice}", error.info()));
            }
        }
    }
}

fn check_key(node: Node, places: &mut HashMap<String, Position>, collector: &mut Collector) -> Key {
    let Value::Scalar(scalar) = node.value else {
        collector.fault(node.at, FaultCode::YamlSyntax, "a key must be a word, not a list or a map");
        return Key::Refused;
    };
    if scalar.plain && scalar.text == "<<" {
        let text = "merge keys (<<) are not supported; use \"defaults\", or an alias for the whole value";
        collector.fault(node.at, FaultCode::UnsupportedTag, text);
        return Key::Refused;
    }
    if let Some(first) = places.get(&scalar.text) {
        let text = format!("{} was first defined at line {}", quoted(&scalar.text), first.line);
        collector.fault(node.at, FaultCode::DuplicateKey, text);
        return Key::Refused;
    }
    places.insert(scalar.text.clone(), node.at);
    Key::Wanted(scalar.text, node.at)
}

fn is_number(word: &str) -> bool {
    let digits = word.strip_prefix(['-', '+']).unwrap_or(word);
    let starts_like_one = digits.starts_with(|c: char| c.is_ascii_digit())
        || digits.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let by_prefix = |prefix: &str, radix: u32| {
        digits
            .strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_digit(radix)))
    };
    (starts_like_one && digits.parse::<f64>().is_ok())
        || by_prefix("0x", 16)
        || by_prefix("0o", 8)
        || [".inf", ".nan"].iter().any(|known| digits.eq_ignore_ascii_case(known))
}

/// The position after this part of the text.
fn position_after(before: &str, file: FileIndex) -> Position {
    let (lines, line) =
        before.rsplit_once('\n').map_or((0, before), |(lines, line)| (1 + lines.matches('\n').count(), line));
    Position { file, line: number(lines + 1), column: number(line.chars().count() + 1) }
}

fn position_of(marker: Marker, file: FileIndex) -> Position {
    Position { file, line: number(marker.line().max(1)), column: number(marker.col() + 1) }
}

fn number(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

/// How deeply lists and maps may be nested, aliases included. The deepest key of the format is at 6.
const DEPTH_MAX: usize = 32;
/// Values that anchors and aliases may copy in all.
const COPIES_MAX: usize = 200_000;
/// Bytes that anchors and aliases may copy in all.
const COPIED_BYTES_MAX: usize = 32 << 20;
