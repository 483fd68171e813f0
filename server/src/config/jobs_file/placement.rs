//! Placement keys of a job: `requires`, `prefers`, `workers`, `strategy`. `run_on` has a file of its own.
//!
//! A condition on a label is one text, `zone in (a, b)`, as in the selectors of Kubernetes. `requires` may also be a map of labels to values.

use protocol::{WorkerId, labels};
use scheduler::placement::rules::{
    Comparison, Condition, LabelRule, PlacementRules, Preference, WorkerSelector,
};

use super::fault::{FaultCode, Position};
use super::grammar::{self, ValueFault};
use super::keys;
use super::reader::Reader;
use super::run_on;
use super::scope::Scope;
use super::tree::{Node, Value};

/// Reads the placement keys of a job.
pub(super) fn read(scope: Scope<'_>, reader: &mut Reader<'_>) -> PlacementRules {
    let strategy = scope.find("strategy").and_then(|node| reader.choice(node, &keys::strategies()));
    PlacementRules {
        requires: scope.find("requires").map(|node| requires(node, reader)).unwrap_or_default(),
        prefers: scope.find("prefers").map(|node| prefers(node, reader)).unwrap_or_default(),
        workers: scope.find("workers").map(|node| workers(node, reader)).unwrap_or_default(),
        strategy: strategy.unwrap_or_default(),
        run_on: run_on::read(scope, reader),
    }
}

fn requires(node: &Node, reader: &mut Reader<'_>) -> Vec<LabelRule> {
    let rules: Vec<LabelRule> = match &node.value {
        Value::Map(map) => map
            .pairs
            .iter()
            .filter_map(|pair| {
                reader.accept(pair.key_at, check_label_name(&pair.key))?;
                let values = loose_texts(&pair.value, reader);
                if pair.value.is_empty_list() {
                    reader.fault(pair.value.at, FaultCode::InvalidValue, "name at least one value");
                }
                values.iter().for_each(|(at, value)| warn_of_condition(&pair.key, value, *at, reader));
                let values = values.into_iter().map(|(_, value)| value).collect();
                Some(LabelRule { label: pair.key.clone(), condition: Condition::In(values) })
            })
            .collect(),
        Value::List(_) | Value::Scalar(_) => {
            let texts = reader.texts(node);
            texts.iter().filter_map(|(at, text)| reader.accept(*at, label_rule(text))).collect()
        }
    };
    check_count(rules, node, reader)
}

/// Warns of a value that is meant as a condition: in a map, a value is what the label must be equal to.
fn warn_of_condition(label: &str, value: &str, at: Position, reader: &mut Reader<'_>) {
    let condition = format!("{label} {}", value.trim());
    let is_sign = value.trim_start().starts_with(['<', '>', '!', '=']);
    let Some(shown) =
        label_rule(&condition).ok().map(|rule| rule.to_string()).or(is_sign.then_some(condition))
    else {
        return;
    };
    let shown = if reader.has_variable(at) { "cores >= 8" } else { &shown };
    let text = format!(
        "{} is compared with the value of the label {label} as it stands. For a condition write a list, such as requires: [\"{shown}\"]",
        reader.shown(at, value)
    );
    reader.collector.warning(at, FaultCode::LooksLikeCondition, text);
}

fn prefers(node: &Node, reader: &mut Reader<'_>) -> Vec<Preference> {
    let Value::Map(map) = &node.value else {
        reader.wrong_type(node, "a map of conditions to weights, such as {zone=a: 10}");
        return Vec::new();
    };
    let preferences = map.pairs.iter().filter_map(|pair| {
        let weight = reader.integer(&pair.value, keys::WEIGHTS)?;
        let rule = reader.accept(pair.key_at, label_rule(&pair.key))?;
        Some(Preference { rule, weight: i32::try_from(weight).ok()? })
    });
    let preferences = preferences.collect();
    check_count(preferences, node, reader)
}

fn workers(node: &Node, reader: &mut Reader<'_>) -> Vec<WorkerSelector> {
    let selectors = loose_texts(node, reader).into_iter().filter_map(|(at, text)| {
        // A number is an id, as in every command and URL.
        if let Ok(id) = text.parse() {
            return Some(WorkerSelector::Id(WorkerId(id)));
        }
        if text.is_empty() || text.chars().any(char::is_control) {
            reader.fault(at, FaultCode::InvalidValue, "expected the id or the name of a worker");
            return None;
        }
        reader.accept(at, grammar::at_most(&text, WORKER_NAME_BYTES_MAX))?;
        Some(WorkerSelector::Name(text))
    });
    let mut selectors: Vec<WorkerSelector> = selectors.collect();
    selectors.sort();
    selectors.dedup();
    check_count(selectors, node, reader)
}

fn check_count<T>(list: Vec<T>, node: &Node, reader: &mut Reader<'_>) -> Vec<T> {
    if list.len() > ENTRIES_MAX {
        let text = format!("{} entries are too many (max {ENTRIES_MAX})", list.len());
        reader.fault(node.at, FaultCode::TooLong, text);
    }
    list
}

/// A list of texts, or one; bare numbers are taken as written.
fn loose_texts(node: &Node, reader: &mut Reader<'_>) -> Vec<(Position, String)> {
    match &node.value {
        Value::List(items) => {
            items.iter().filter_map(|item| Some((item.at, reader.loose_text(item)?))).collect()
        }
        Value::Scalar(_) | Value::Map(_) => {
            reader.loose_text(node).map(|text| (node.at, text)).into_iter().collect()
        }
    }
}

/// Parses a condition: `gpu`, `!gpu`, `zone=a`, `zone!=a`, `zone in (a, b)`, `zone not in (a, b)`, `cores >= 8`.
///
/// # Errors
/// It is none of these.
pub(crate) fn label_rule(text: &str) -> Result<LabelRule, ValueFault> {
    let rule = |label: &str, condition| {
        check_label_name(label.trim())?;
        Ok(LabelRule { label: label.trim().to_owned(), condition })
    };
    let trimmed = text.trim();
    if let Some(label) = trimmed.strip_prefix('!') {
        return rule(label, Condition::Absent);
    }
    if let Some((label, list)) = trimmed.split_once('(') {
        let values = list.strip_suffix(')').ok_or_else(|| wrong(text))?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        if values.iter().any(String::is_empty) {
            return Err(wrong(text));
        }
        let words: Vec<&str> = label.split_whitespace().collect();
        return match words[..] {
            [label, "in"] => rule(label, Condition::In(values)),
            [label, "not", "in"] | [label, "notin"] => rule(label, Condition::NotIn(values)),
            _ => Err(wrong(text)),
        };
    }
    if let Some((label, value)) = trimmed.split_once("!=") {
        return rule(label, Condition::NotIn(vec![value.trim().to_owned()]));
    }
    // The longer signs first: "<" is the beginning of "<=".
    let signs = [Comparison::AtMost, Comparison::AtLeast, Comparison::Less, Comparison::Greater];
    for comparison in signs {
        if let Some((label, bound)) = trimmed.split_once(comparison.sign()) {
            let bound = bound.trim().parse().map_err(|_| {
                ValueFault::input(
                    FaultCode::InvalidValue,
                    text,
                    "compares with something that is not a whole number",
                )
            })?;
            return rule(label, Condition::Compare(comparison, bound));
        }
    }
    if let Some((label, value)) = trimmed.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        return rule(label, Condition::In(vec![value.trim().to_owned()]));
    }
    match trimmed.contains(char::is_whitespace) {
        true => Err(wrong(text)),
        false => rule(trimmed, Condition::Exists),
    }
}

fn wrong(text: &str) -> ValueFault {
    let form =
        "is not a condition, such as gpu, !gpu, zone=a, zone in (a, b), zone not in (a, b) or cores >= 8";
    ValueFault::input(FaultCode::InvalidValue, text, form)
}

/// Checks the name of a label.
///
/// # Errors
/// It is none.
pub(crate) fn check_label_name(text: &str) -> Result<(), ValueFault> {
    match labels::is_name(text) && text.len() <= labels::ASKED_NAME_BYTES_MAX {
        true => Ok(()),
        false => {
            Err(ValueFault::input(FaultCode::InvalidValue, text, "is not a label: letters, digits, . _ - /"))
        }
    }
}

/// As for the name of a worker.
pub(crate) const WORKER_NAME_BYTES_MAX: usize = 128;
/// Conditions, preferences or workers of one definition. Each is matched with each class of workers when the file is read.
pub(crate) const ENTRIES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_as_they_are_shown() {
        for (text, shown) in [
            ("gpu", "a label gpu"),
            ("!gpu", "no label gpu"),
            ("zone=a", "zone=a"),
            ("zone == a", "zone=a"),
            ("zone!=a", "zone not in (a)"),
            ("zone in (a, b)", "zone in (a, b)"),
            ("zone not in (a,b)", "zone not in (a, b)"),
            ("zone notin (a)", "zone not in (a)"),
            ("cores>=8", "cores >= 8"),
            ("cores < -1", "cores < -1"),
            ("arch/os <= 3", "arch/os <= 3"),
        ] {
            let rule = label_rule(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            assert_eq!(rule.to_string(), shown, "{text}");
            assert_eq!(label_rule(&rule.in_grammar()), Ok(rule), "{text}");
        }
        for text in
            ["", "!", "zone in ()", "zone in (a", "zone of (a)", "a b", "cores > many", "=a", "z\u{e4}hl"]
        {
            assert!(label_rule(text).is_err(), "{text}");
        }
    }
}
