//! The key `log`: how much output is kept, and what is masked in it.

use protocol::container::{LOG_MASK_BYTES_MAX, LOG_MASK_COMPILED_BYTES_MAX, LOG_MASKS_MAX};
use regex_automata::meta::{Config, Regex};

use super::fault::{FaultCode, Position, quoted};
use super::grammar;
use super::keys;
use super::reader::Reader;
use super::scope::Scope;
use super::tree::{Node, Value};
use crate::logs::{BYTES_MAX, BYTES_MAX_FROM, BYTES_MAX_TO};
use crate::params::refusal_of_pattern;

/// The rules for the output of an attempt.
pub(super) struct LogRules {
    /// How much of it is kept, in bytes.
    pub(super) bytes_max: u64,
    /// Regular expressions, sorted: the order has no meaning.
    pub(super) mask: Vec<String>,
}

pub(super) fn read(scope: Scope<'_>, reader: &mut Reader<'_>) -> LogRules {
    let part = scope.part("log", keys::LOG, reader);
    let bytes_max = part.find("max_bytes").and_then(|node| reader.size(node, BYTES_MAX_FROM, BYTES_MAX_TO));
    let mask = part.find("mask").map(|node| mask(node, reader)).unwrap_or_default();
    LogRules { bytes_max: bytes_max.unwrap_or(BYTES_MAX), mask }
}

fn mask(node: &Node, reader: &mut Reader<'_>) -> Vec<String> {
    let nodes: Vec<&Node> = match &node.value {
        Value::List(items) => items.iter().collect(),
        Value::Scalar(_) => vec![node],
        Value::Map(_) => {
            reader.wrong_type(node, "a regular expression or a list of them");
            return Vec::new();
        }
    };
    if nodes.len() > LOG_MASKS_MAX {
        let text = format!("there are {} patterns, at most {LOG_MASKS_MAX} are allowed", nodes.len());
        reader.fault(node.at, FaultCode::TooLong, text);
        return Vec::new();
    }
    let mut patterns: Vec<String> = nodes.into_iter().filter_map(|node| pattern(node, reader)).collect();
    patterns.sort();
    patterns.dedup();
    patterns
}

fn pattern(node: &Node, reader: &mut Reader<'_>) -> Option<String> {
    // A dollar is common in patterns, so variables of the server are not replaced here.
    let text = reader.verbatim(node)?;
    reader.accept(node.at, grammar::at_most(&text, LOG_MASK_BYTES_MAX))?;
    if text.is_empty() {
        return refuse(node.at, "a pattern of log.mask must not be empty".to_owned(), reader);
    }
    // As the worker compiles it.
    let config = Config::new()
        .nfa_size_limit(Some(LOG_MASK_COMPILED_BYTES_MAX))
        .onepass_size_limit(Some(LOG_MASK_COMPILED_BYTES_MAX))
        .utf8_empty(false);
    match Regex::builder().configure(config).build(&text) {
        Ok(_) => Some(text),
        Err(error) => {
            let reason = refusal_of_pattern(&error);
            refuse(node.at, format!("{} is not a regular expression: {reason}", quoted(&text)), reader)
        }
    }
}

fn refuse(at: Position, text: String, reader: &mut Reader<'_>) -> Option<String> {
    reader.fault(at, FaultCode::InvalidValue, text);
    None
}
