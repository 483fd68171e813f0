//! YAML files of others as a tree that knows its lines.
//!
//! Merge keys and several documents are read here, which jobs.yaml does not have. An alias shares its value, so repeating one costs nothing.

use std::collections::HashMap;
use std::rc::Rc;

use serde_yaml::granit_parser::{Event, Options, Parser, ScalarStyle, StrInput};

use super::source::{Fault, Source};

/// A value, and the line on which it begins.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

/// Scalars are kept as they are written.
#[derive(Debug)]
pub(super) enum Value {
    Scalar { text: String, is_plain: bool },
    List(Vec<Rc<Node>>),
    Map(Vec<Pair>),
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) value: Rc<Node>,
}

impl Node {
    /// The scalar's text; nothing for lists, maps and null.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    /// True for `null` and for nothing at all.
    pub(super) fn is_null(&self) -> bool {
        let words = ["", "~", "null", "Null", "NULL"];
        matches!(&self.value, Value::Scalar { text, is_plain: true } if words.contains(&text.as_str()))
    }

    /// True for `true` and another word for it.
    pub(super) fn is_true(&self) -> bool {
        self.text()
            .is_some_and(|text| ["true", "yes", "on", "1"].contains(&text.to_ascii_lowercase().as_str()))
    }

    /// The items of a list; none for anything else.
    pub(super) fn items(&self) -> &[Rc<Self>] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The pairs of a map; none for anything else.
    pub(super) fn pairs(&self) -> &[Pair] {
        match &self.value {
            Value::Map(pairs) => pairs,
            _ => &[],
        }
    }

    /// True for a map, empty or not.
    pub(super) const fn is_map(&self) -> bool {
        matches!(self.value, Value::Map(_))
    }

    /// The value of a key, unless it is null.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let pair = self.pairs().iter().find(|pair| pair.key == key)?;
        (!pair.value.is_null()).then_some(&*pair.value)
    }

    /// The value at the end of a path of keys.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The text under a path of keys.
    pub(super) fn text_at(&self, path: &[&str]) -> Option<&str> {
        self.at(path)?.text()
    }
}

/// Reads all documents of a file.
///
/// # Errors
/// The first place where it is not YAML.
pub(super) fn read(source: &Source) -> Result<Vec<Rc<Node>>, Fault> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut builder = Builder { source, open: Vec::new(), anchors: HashMap::new(), documents: Vec::new() };
    for event in Parser::<StrInput<'_>>::new_from_str_with_options(&source.text, options) {
        let (event, span) = event.map_err(|error| {
            source.fault(error.marker().line().max(1), format!("not YAML: {}", error.info()))
        })?;
        builder.take(event, span.start.line().max(1))?;
    }
    Ok(builder.documents)
}

struct Builder<'s> {
    source: &'s Source,
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    documents: Vec<Rc<Node>>,
}

/// A list or a map that has not ended yet.
struct Open {
    line: usize,
    anchor: usize,
    items: Vec<Rc<Node>>,
    is_map: bool,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), Fault> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_plain = style == ScalarStyle::Plain;
                let value = Value::Scalar { text: text.into_owned(), is_plain };
                self.finish(Node { line, value }, anchor);
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open.push(Open { line, anchor, items: Vec::new(), is_map: false });
            }
            Event::MappingStart(_, anchor, _) => {
                self.open.push(Open { line, anchor, items: Vec::new(), is_map: true });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                // The parser ends only what it has begun.
                let Some(Open { line, anchor, items, is_map }) = self.open.pop() else { return Ok(()) };
                let value = if is_map { Value::Map(self.pairs(&items)?) } else { Value::List(items) };
                self.finish(Node { line, value }, anchor);
            }
            Event::Alias(anchor) => {
                let wrong = || self.source.fault(line, "an alias must not stand inside of what it repeats");
                let node = self.anchors.get(&anchor).cloned().ok_or_else(wrong)?;
                self.attach(node);
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, node: Node, anchor: usize) {
        let node = Rc::new(node);
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        self.attach(node);
    }

    fn attach(&mut self, node: Rc<Node>) {
        match self.open.last_mut() {
            Some(open) => open.items.push(node),
            None => self.documents.push(node),
        }
    }

    /// Keys and values in turn become pairs. What a merge key brings along comes after the map's own keys, and replaces none of them.
    fn pairs(&self, items: &[Rc<Node>]) -> Result<Vec<Pair>, Fault> {
        let mut pairs: Vec<Pair> = Vec::new();
        let mut merged = Vec::new();
        for pair in items.chunks(2) {
            let [key, value] = pair else { continue };
            let Value::Scalar { text, is_plain } = &key.value else {
                return Err(self.source.fault(key.line, "a key must be a word, not a list or a map"));
            };
            if text == "<<" && *is_plain {
                merged.extend(value.pairs().iter().cloned());
                merged.extend(value.items().iter().flat_map(|item| item.pairs().iter().cloned()));
                continue;
            }
            if let Some(first) = pairs.iter().find(|known| known.key == *text) {
                let said =
                    format!("the key \"{text}\" stands at line {} already; remove one of them", first.line);
                return Err(self.source.fault(key.line, said));
            }
            pairs.push(Pair { key: text.clone(), line: key.line, value: Rc::clone(value) });
        }
        for pair in merged {
            if pairs.iter().all(|known| known.key != pair.key) {
                pairs.push(pair);
            }
        }
        Ok(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_keys_and_documents_are_read_with_their_lines() {
        let text = "x: &x\n  a: 1\n  b: 2\ny:\n  <<: *x\n  b: 3\n---\n[z]\n";
        let source = Source { name: "f".into(), path: None, text: text.into() };
        let documents = read(&source).unwrap();
        let y = documents[0].get("y").unwrap();
        assert_eq!((y.text_at(&["a"]), y.text_at(&["b"]), y.line), (Some("1"), Some("3"), 5));
        assert_eq!(documents[1].items()[0].text(), Some("z"));
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_line() {
        let source = Source { name: "f".into(), path: None, text: "a: 1\nb: [\n".into() };
        assert!(read(&source).unwrap_err().to_string().starts_with("f:"));
        let source = Source { name: "f".into(), path: None, text: "a: 1\na: 2\n".into() };
        assert_eq!(
            read(&source).unwrap_err().to_string(),
            "f:2: the key \"a\" stands at line 1 already; remove one of them"
        );
    }
}
