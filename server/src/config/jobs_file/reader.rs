//! Reads single values: checks the kind of node, replaces `${VAR}`, checks the grammar.
//!
//! A failed read records a fault and returns nothing. The caller continues with a default, because a file with one fault is refused as a
//! whole. So one pass finds every fault.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use scheduler::params::Word;

use super::collector::Collector;
use super::fault::{FaultCode, Position, quoted};
use super::grammar::{self, ValueFault};
use super::hook_graph::HookGraph;
use super::keys::Range;
use super::limits::GroupLimit;
use super::quantity;
use super::rule_cache::RuleCache;
use super::source;
use super::substitute::{self, Environment};
use super::tree::{Node, Scalar, ScalarMeaning, Value};

/// The context of reading a file, or the files of a directory.
pub(super) struct Reader<'a> {
    pub(super) environment: &'a Environment,
    /// The name of the file that is being read, if it is one of a directory.
    pub(super) file: Option<Arc<str>>,
    /// The directory to which paths in the files are relative.
    pub(super) directory: &'a Path,
    pub(super) collector: &'a mut Collector,
    /// Bytes of all resolved jobs so far.
    pub(super) resolved_bytes: usize,
    /// The limit of `resolved_bytes`.
    pub(super) resolved_bytes_max: usize,
    /// The position of each name.
    pub(super) names: HashMap<String, Position>,
    /// True if jobs of the files could not be read, so that a name may be missing.
    pub(super) misses_jobs: bool,
    /// The limit of each group, and the first job that said it.
    pub(super) group_limits: HashMap<String, GroupLimit>,
    /// The jobs of the file and the hooks between them.
    pub(super) hooks: HookGraph,
    /// The cron rules and zones that were read.
    pub(super) rules: RuleCache,
    /// Parameters of the definition that is being read whose types have values with variables.
    pub(super) params_with_variables: HashSet<String>,
    /// Names of jobs with variables, each as written in the file.
    pub(super) names_with_variables: HashMap<String, String>,
    /// Values with variables as written in the file.
    substituted: HashMap<Position, String>,
    /// Values with variables that only the server knows, of a file that is checked elsewhere.
    pub(super) left_out: HashSet<Position>,
    /// Environment files that were read: each once, for all jobs that name it.
    files: HashMap<PathBuf, Rc<str>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        environment: &'a Environment,
        directory: &'a Path,
        collector: &'a mut Collector,
        resolved_bytes_max: usize,
    ) -> Self {
        let (substituted, files, group_limits) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self {
            environment,
            file: None,
            directory,
            collector,
            resolved_bytes: 0,
            resolved_bytes_max,
            names: HashMap::new(),
            misses_jobs: false,
            group_limits,
            hooks: HookGraph::default(),
            rules: RuleCache::default(),
            params_with_variables: HashSet::new(),
            names_with_variables: HashMap::new(),
            substituted,
            left_out: HashSet::new(),
            files,
        }
    }

    pub(super) fn fault(&mut self, at: Position, code: FaultCode, text: impl Into<String>) {
        self.collector.fault(at, code, text);
    }

    pub(super) fn wrong_type(&mut self, node: &Node, expected: &str) {
        let text = format!("expected {expected}, found {}", node.describe());
        self.fault(node.at, FaultCode::ExpectedType, text);
    }

    /// Returns the value, or records the fault.
    pub(super) fn accept<T>(&mut self, at: Position, checked: Result<T, ValueFault>) -> Option<T> {
        checked.map_err(|wrong| self.refuse(at, wrong)).ok()
    }

    /// Records a fault. Input that came from a variable is shown as written in the file: the variable may be secret.
    pub(super) fn refuse(&mut self, at: Position, mut wrong: ValueFault) {
        wrong.input = wrong.input.map(|input| self.as_written(at, &input));
        self.fault(at, wrong.code, wrong.to_string());
    }

    /// A value as it may be shown: a variable is shown by its name.
    pub(super) fn as_written(&self, at: Position, value: &str) -> String {
        self.substituted.get(&at).map_or(value, String::as_str).to_owned()
    }

    /// A value in a message: quoted, with variables shown by their names.
    pub(super) fn shown(&self, at: Position, value: &str) -> String {
        quoted(&self.as_written(at, value))
    }

    /// True if the value that was read at this position has a variable in it.
    pub(super) fn has_variable(&self, at: Position) -> bool {
        self.substituted.contains_key(&at)
    }

    /// Reads text: numbers, booleans and nulls must be quoted.
    pub(super) fn text(&mut self, node: &Node) -> Option<String> {
        let scalar = self.word(node, "a string")?;
        self.substitute(node.at, &scalar.text)
    }

    /// Reads text without replacing variables in it.
    pub(super) fn verbatim(&mut self, node: &Node) -> Option<String> {
        self.word(node, "a string").map(|scalar| scalar.text.clone())
    }

    /// Reads text and checks its grammar.
    pub(super) fn checked_text(
        &mut self,
        node: &Node,
        check: fn(&str) -> Result<(), ValueFault>,
    ) -> Option<String> {
        let text = self.text(node)?;
        self.accept(node.at, check(&text))?;
        Some(text)
    }

    /// Reads text; a bare number is taken as written: `1000`, `1.20`.
    pub(super) fn loose_text(&mut self, node: &Node) -> Option<String> {
        if let Value::Scalar(scalar) = &node.value
            && scalar.meaning() == ScalarMeaning::Number
        {
            return Some(scalar.text.clone());
        }
        self.text(node)
    }

    /// A list of texts, or one.
    pub(super) fn texts(&mut self, node: &Node) -> Vec<(Position, String)> {
        match &node.value {
            Value::List(items) => items.iter().filter_map(|item| Some((item.at, self.text(item)?))).collect(),
            Value::Scalar(_) => self.text(node).map(|text| (node.at, text)).into_iter().collect(),
            Value::Map(_) => {
                self.wrong_type(node, "string or list of strings");
                Vec::new()
            }
        }
    }

    /// Reads a list of words, or one string that is split like a shell does. Variables are replaced after the splitting, so their values
    /// never become two words or open a quote.
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

    /// Reads a command: words as [`Self::words`] reads them, or references to parameters.
    pub(super) fn command(&mut self, node: &Node) -> Option<Vec<(Position, Word)>> {
        let is_reference = |text: &str| substitute::param_reference(text).map(str::to_owned);
        let words: Vec<(Position, Word)> = match &node.value {
            Value::Scalar(_) => {
                let scalar = self.word(node, "string or list of strings")?;
                let words = self.accept(node.at, grammar::words(&scalar.text))?;
                let word = |text: &String| match is_reference(text) {
                    Some(name) => Some((node.at, Word::Param(name))),
                    None => Some((node.at, Word::Text(self.substitute(node.at, text)?))),
                };
                words.iter().map(word).collect::<Option<_>>()?
            }
            Value::List(items) => {
                let word = |item: &Node| match &item.value {
                    Value::Scalar(scalar) if is_reference(&scalar.text).is_some() => {
                        Some((item.at, Word::Param(is_reference(&scalar.text)?)))
                    }
                    _ => Some((item.at, Word::Text(self.text(item)?))),
                };
                items.iter().filter_map(word).collect()
            }
            Value::Map(_) => {
                self.wrong_type(node, "string or list of strings");
                Vec::new()
            }
        };
        for (at, word) in &words {
            if let Word::Text(text) = word {
                self.accept(*at, grammar::argument(text));
            }
        }
        Some(words)
    }

    pub(super) fn bool(&mut self, node: &Node) -> Option<bool> {
        let text = self.bare(node, "true or false")?;
        match (Scalar { text, plain: true }).meaning() {
            ScalarMeaning::Bool(value) => return Some(value),
            ScalarMeaning::Ambiguous => {
                self.fault(node.at, FaultCode::AmbiguousScalar, "write true or false")
            }
            _ => self.wrong_type(node, "true or false"),
        }
        None
    }

    pub(super) fn integer(&mut self, node: &Node, range: Range) -> Option<i64> {
        let text = self.bare(node, "a whole number")?;
        if (Scalar { text: text.clone(), plain: true }).meaning() != ScalarMeaning::Number {
            self.wrong_type(node, "a whole number");
            return None;
        }
        let number = text.parse().ok().filter(|number| (range.from..=range.to).contains(number));
        if number.is_none() {
            let form = format!("is not a whole number in {}..{}", range.from, range.to);
            self.refuse(node.at, ValueFault::input(FaultCode::OutOfRange, &text, form));
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

    /// A number from 0 to 1 with up to three decimals, in thousandths, or a word that stands for one.
    pub(super) fn share(&mut self, node: &Node, words: &[(&'static str, u32)]) -> Option<u32> {
        let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let names = names.join(" or ");
        let find = |text: &str| words.iter().find(|(word, _)| *word == text).map(|(_, share)| *share);
        // A word may be quoted, a number may not.
        if let Value::Scalar(scalar) = &node.value
            && let Some(share) = find(&scalar.text)
        {
            return Some(share);
        }
        let text = self.bare(node, &format!("a number, {names}"))?;
        if let Some(share) = find(&text) {
            return Some(share);
        }
        let share = quantity::thousandths(&text, 0, 1_000);
        self.accept(
            node.at,
            share.map_err(|wrong| ValueFault { text: format!("{}, or {names}", wrong.text), ..wrong }),
        )
    }

    pub(super) fn duration(&mut self, node: &Node, from: Duration, to: Duration) -> Option<Duration> {
        let text = self.loose_text(node)?;
        self.accept(node.at, quantity::duration(&text, from, to))
    }

    /// A duration; absent for the word `none`.
    pub(super) fn duration_or_none(&mut self, node: &Node, from: Duration, to: Duration) -> Option<Duration> {
        let text = self.loose_text(node)?;
        if text == "none" {
            return None;
        }
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
        at: Position,
        text: &str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let found = choices.iter().find(|(name, _)| *name == text).map(|(_, value)| value.clone());
        if found.is_none() {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            let form = format!("is none of {}", names.join(", "));
            self.refuse(at, ValueFault::input(FaultCode::InvalidChoice, text, form));
        }
        found
    }

    /// The text of a file beside the jobs file.
    pub(super) fn file(&mut self, name: &str, bytes_max: usize) -> Result<Rc<str>, ValueFault> {
        let path = self.directory.join(name);
        if let Some(text) = self.files.get(&path) {
            return Ok(text.clone());
        }
        let text: Rc<str> = source::read(&path, bytes_max)?.into();
        self.files.insert(path, text.clone());
        Ok(text)
    }

    /// The text with its variables replaced; nothing if it is left out.
    pub(super) fn replaced(&mut self, at: Position, text: &str) -> Option<Result<String, ValueFault>> {
        let replaced = substitute::replace(text, self.environment).map(Cow::into_owned);
        let is_unset = replaced.as_ref().is_err_and(|wrong| wrong.code == FaultCode::UnsetVariable);
        if is_unset && self.environment.is_elsewhere() {
            self.left_out.insert(at);
            return None;
        }
        Some(replaced)
    }

    pub(super) fn substitute(&mut self, at: Position, text: &str) -> Option<String> {
        let replaced = self.replaced(at, text)?;
        let replaced = self.accept(at, replaced)?;
        if text.contains("${") {
            self.substituted.insert(at, text.to_owned());
        }
        Some(replaced)
    }

    fn split_words(&mut self, node: &Node) -> Option<Vec<(Position, String)>> {
        let scalar = self.word(node, "string or list of strings")?;
        let words = self.accept(node.at, grammar::words(&scalar.text))?;
        words.iter().map(|word| Some((node.at, self.substitute(node.at, word)?))).collect()
    }

    /// Reads a scalar that stands for text.
    fn word<'n>(&mut self, node: &'n Node, expected: &str) -> Option<&'n Scalar> {
        let Value::Scalar(scalar) = &node.value else {
            self.wrong_type(node, expected);
            return None;
        };
        match scalar.meaning() {
            ScalarMeaning::Text => return Some(scalar),
            ScalarMeaning::Ambiguous | ScalarMeaning::Bool(_) => {
                let text = format!("{} may be taken for a boolean: quote it", quoted(&scalar.text));
                self.fault(node.at, FaultCode::AmbiguousScalar, text);
            }
            ScalarMeaning::Null => {
                let text = "expected a string, found nothing: write one, or remove it; \
                            a word such as null is one if you quote it";
                self.fault(node.at, FaultCode::ExpectedString, text);
            }
            ScalarMeaning::Number => {
                self.fault(node.at, FaultCode::ExpectedString, "expected a string, found a number: quote it")
            }
        }
        None
    }

    /// Reads the text of an unquoted scalar. A quoted one is refused unless a variable supplies its value.
    fn bare(&mut self, node: &Node, expected: &str) -> Option<String> {
        match &node.value {
            Value::Scalar(scalar) if scalar.plain || scalar.text.contains("${") => {
                self.substitute(node.at, &scalar.text)
            }
            Value::Scalar(_) => {
                self.fault(
                    node.at,
                    FaultCode::ExpectedType,
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
