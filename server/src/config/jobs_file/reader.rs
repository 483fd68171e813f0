//! Reading single values: the right kind of node, `${VAR}` replaced, checked against its grammar.
//!
//! A reading that fails notes a fault and yields nothing; the caller goes on with a default, because a file with one fault is
//! thrown away as a whole. So every fault of a file is met in one pass.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::fault::{Code, Collector, Place, quoted};
use super::grammar::{self, Wrong};
use super::keys::Range;
use super::quantity;
use super::source;
use super::substitute::{self, Environment};
use super::tree::{Meaning, Node, Scalar, Value};

/// What the reading of one file needs at hand.
pub(super) struct Reader<'a> {
    pub(super) environment: &'a Environment,
    /// What relative paths in the file are relative to.
    pub(super) directory: &'a Path,
    pub(super) collector: &'a mut Collector,
    /// How long all jobs so far are with everything resolved, in bytes.
    pub(super) resolved_bytes: usize,
    /// How long they may be.
    pub(super) resolved_bytes_max: usize,
    /// Values that hold variables, as they are written.
    substituted: HashMap<Place, String>,
    /// Environment files that were read: each once, however many jobs name it.
    files: HashMap<PathBuf, Rc<str>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        environment: &'a Environment,
        directory: &'a Path,
        collector: &'a mut Collector,
        resolved_bytes_max: usize,
    ) -> Self {
        let (substituted, files) = (HashMap::new(), HashMap::new());
        Self { environment, directory, collector, resolved_bytes: 0, resolved_bytes_max, substituted, files }
    }

    pub(super) fn fault(&mut self, at: Place, code: Code, text: impl Into<String>) {
        self.collector.fault(at, code, text);
    }

    pub(super) fn wrong_type(&mut self, node: &Node, expected: &str) {
        self.fault(node.at, Code::ExpectedType, format!("expected {expected}, found {}", node.describe()));
    }

    /// The value, or nothing after noting what is wrong with it.
    pub(super) fn accept<T>(&mut self, at: Place, checked: Result<T, Wrong>) -> Option<T> {
        checked.map_err(|wrong| self.refuse(at, wrong)).ok()
    }

    /// Notes what is wrong. An input that came from a variable is shown as it is written in the file: its value may be secret.
    fn refuse(&mut self, at: Place, mut wrong: Wrong) {
        wrong.input = wrong.input.map(|input| self.as_written(at, &input));
        self.fault(at, wrong.code, wrong.to_string());
    }

    /// A value as it is to be shown: what came from a variable stays in it.
    pub(super) fn as_written(&self, at: Place, value: &str) -> String {
        self.substituted.get(&at).map_or(value, String::as_str).to_owned()
    }

    /// Text: a number, a boolean or nothing at all must be quoted to be one.
    pub(super) fn text(&mut self, node: &Node) -> Option<String> {
        let scalar = self.word(node, "a string")?;
        self.substitute(node.at, &scalar.text)
    }

    /// Text that satisfies a grammar.
    pub(super) fn checked_text(
        &mut self,
        node: &Node,
        check: fn(&str) -> Result<(), Wrong>,
    ) -> Option<String> {
        let text = self.text(node)?;
        self.accept(node.at, check(&text))?;
        Some(text)
    }

    /// Text of which a number may be one, as it is written: `1000`, `1.20`.
    pub(super) fn loose_text(&mut self, node: &Node) -> Option<String> {
        if let Value::Scalar(scalar) = &node.value
            && scalar.meaning() == Meaning::Number
        {
            return Some(scalar.text.clone());
        }
        self.text(node)
    }

    /// A list of texts, or one.
    pub(super) fn texts(&mut self, node: &Node) -> Vec<(Place, String)> {
        match &node.value {
            Value::List(items) => items.iter().filter_map(|item| Some((item.at, self.text(item)?))).collect(),
            Value::Scalar(_) => self.text(node).map(|text| (node.at, text)).into_iter().collect(),
            Value::Map(_) => {
                self.wrong_type(node, "string or list of strings");
                Vec::new()
            }
        }
    }

    /// A list of words, or one string that is split like a shell would; variables are replaced after the splitting, so that no
    /// value of a variable ever becomes two words or opens a quote.
    pub(super) fn words(&mut self, node: &Node) -> Option<Vec<String>> {
        let words = match node.value {
            Value::Scalar(_) => self.split_words(node)?,
            Value::List(_) | Value::Map(_) => self.texts(node),
        };
        for (at, word) in &words {
            self.accept(*at, grammar::argument(word));
        }
        Some(words.into_iter().map(|(_, word)| word).collect())
    }

    pub(super) fn bool(&mut self, node: &Node) -> Option<bool> {
        let text = self.bare(node, "true or false")?;
        match (Scalar { text, plain: true }).meaning() {
            Meaning::Bool(value) => return Some(value),
            Meaning::Ambiguous => self.fault(node.at, Code::AmbiguousScalar, "write true or false"),
            _ => self.wrong_type(node, "true or false"),
        }
        None
    }

    pub(super) fn integer(&mut self, node: &Node, range: Range) -> Option<i64> {
        let text = self.bare(node, "a whole number")?;
        if (Scalar { text: text.clone(), plain: true }).meaning() != Meaning::Number {
            self.wrong_type(node, "a whole number");
            return None;
        }
        let number = text.parse().ok().filter(|number| (range.from..=range.to).contains(number));
        if number.is_none() {
            let form = format!("is not a whole number in {}..{}", range.from, range.to);
            self.refuse(node.at, Wrong::input(Code::OutOfRange, &text, form));
        }
        number
    }

    /// A list of integers, or one.
    pub(super) fn integers(&mut self, node: &Node, range: Range) -> Vec<i64> {
        match &node.value {
            Value::List(items) => items.iter().filter_map(|item| self.integer(item, range)).collect(),
            _ => self.integer(node, range).into_iter().collect(),
        }
    }

    /// A number with up to three decimals, in thousandths.
    pub(super) fn thousandths(&mut self, node: &Node, from: u32, to: u32) -> Option<u32> {
        let text = self.bare(node, "a number")?;
        self.accept(node.at, quantity::thousandths(&text, from, to))
    }

    pub(super) fn duration(&mut self, node: &Node, from: Duration, to: Duration) -> Option<Duration> {
        let text = self.loose_text(node)?;
        self.accept(node.at, quantity::duration(&text, from, to))
    }

    pub(super) fn size(&mut self, node: &Node, from: u64, to: u64) -> Option<u64> {
        let text = self.loose_text(node)?;
        self.accept(node.at, quantity::size(&text, from, to))
    }

    pub(super) fn choice<T: Clone>(&mut self, node: &Node, choices: &[(&'static str, T)]) -> Option<T> {
        let text = self.text(node)?;
        self.choose(node.at, &text, choices)
    }

    pub(super) fn choose<T: Clone>(
        &mut self,
        at: Place,
        text: &str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let found = choices.iter().find(|(name, _)| *name == text).map(|(_, value)| value.clone());
        if found.is_none() {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            let form = format!("is none of {}", names.join(", "));
            self.refuse(at, Wrong::input(Code::InvalidChoice, text, form));
        }
        found
    }

    /// The text of a file beside the jobs file.
    pub(super) fn file(&mut self, name: &str, bytes_max: usize) -> Result<Rc<str>, Wrong> {
        let path = self.directory.join(name);
        if let Some(text) = self.files.get(&path) {
            return Ok(text.clone());
        }
        let text: Rc<str> = source::read(&path, bytes_max)?.into();
        self.files.insert(path, text.clone());
        Ok(text)
    }

    pub(super) fn substitute(&mut self, at: Place, text: &str) -> Option<String> {
        let replaced = substitute::replace(text, self.environment).map(Cow::into_owned);
        let replaced = self.accept(at, replaced)?;
        if text.contains("${") {
            self.substituted.insert(at, text.to_owned());
        }
        Some(replaced)
    }

    fn split_words(&mut self, node: &Node) -> Option<Vec<(Place, String)>> {
        let scalar = self.word(node, "string or list of strings")?;
        let words = self.accept(node.at, grammar::words(&scalar.text))?;
        words.iter().map(|word| Some((node.at, self.substitute(node.at, word)?))).collect()
    }

    /// A scalar that stands for text.
    fn word<'n>(&mut self, node: &'n Node, expected: &str) -> Option<&'n Scalar> {
        let Value::Scalar(scalar) = &node.value else {
            self.wrong_type(node, expected);
            return None;
        };
        match scalar.meaning() {
            Meaning::Text => return Some(scalar),
            Meaning::Ambiguous | Meaning::Bool(_) => {
                let text = format!("{} may be taken for a boolean: quote it", quoted(&scalar.text));
                self.fault(node.at, Code::AmbiguousScalar, text);
            }
            Meaning::Null => {
                let text = "expected a string, found nothing: write one, or remove it; \
                            a word such as null is one if you quote it";
                self.fault(node.at, Code::ExpectedString, text);
            }
            Meaning::Number => {
                self.fault(node.at, Code::ExpectedString, "expected a string, found a number: quote it")
            }
        }
        None
    }

    /// The text of an unquoted scalar. A quoted one is refused unless a variable makes it what it is.
    fn bare(&mut self, node: &Node, expected: &str) -> Option<String> {
        match &node.value {
            Value::Scalar(scalar) if scalar.plain || scalar.text.contains("${") => {
                self.substitute(node.at, &scalar.text)
            }
            Value::Scalar(_) => {
                self.fault(
                    node.at,
                    Code::ExpectedType,
                    format!("expected {expected}, found text: remove the quotes"),
                );
                None
            }
            _ => {
                self.wrong_type(node, expected);
                None
            }
        }
    }
}
