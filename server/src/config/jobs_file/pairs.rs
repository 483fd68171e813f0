//! Names with values: the environment of a job with its environment files, and its labels.

use std::collections::BTreeMap;

use protocol::labels;

use super::fault::{FaultCode, Position, quoted};
use super::grammar::{self, ValueFault};
use super::reader::Reader;
use super::scope::Scope;
use super::substitute;
use super::tree::{Node, ScalarMeaning, Value};

/// Variables, and those whose value is a parameter.
#[derive(Debug, Default)]
pub(super) struct Variables {
    /// Names and values, sorted by name.
    pub(super) fixed: Vec<(String, String)>,
    /// Names of variables, each with its parameter and the position of the reference.
    pub(super) from_params: Vec<(String, (Position, String))>,
    /// Names of variables, each with its secret and the position of the reference.
    pub(super) from_secrets: Vec<(String, (Position, String))>,
}

/// The value of a variable.
enum VariableValue {
    Text(String),
    Param(Position, String),
    Secret(Position, String),
}

/// The environment: that of the defaults, then that of the job; in each, files first, then variables. Files of the job replace those of the
/// defaults. Sorted by name: the order has no meaning.
pub(super) fn environment(scope: Scope<'_>, reader: &mut Reader<'_>) -> Variables {
    let mut variables = BTreeMap::new();
    let own_files = scope.own_value("env_file");
    if own_files.is_none() {
        read_files(scope.default_value("env_file"), &mut variables, reader);
    }
    read_variables(scope.default_value("environment"), &mut variables, reader);
    read_files(own_files, &mut variables, reader);
    read_variables(scope.own_value("environment"), &mut variables, reader);
    let mut read = Variables::default();
    for (name, value) in variables {
        match value {
            VariableValue::Text(value) => read.fixed.push((name, value)),
            VariableValue::Param(at, param) => read.from_params.push((name, (at, param))),
            VariableValue::Secret(at, secret) => read.from_secrets.push((name, (at, secret))),
        }
    }
    read
}

fn read_files(node: Option<&Node>, variables: &mut BTreeMap<String, VariableValue>, reader: &mut Reader<'_>) {
    let Some(node) = node else { return };
    for (at, file) in reader.texts(node) {
        if reader.environment.is_elsewhere() {
            continue;
        }
        read_file(at, &file, variables, reader);
    }
}

fn read_variables(
    node: Option<&Node>,
    variables: &mut BTreeMap<String, VariableValue>,
    reader: &mut Reader<'_>,
) {
    let Some(node) = node else { return };
    variables.extend(read(node, reader).into_iter().filter_map(|pair| check_variable(pair, reader)));
}

/// The labels: the defaults', then the job's own. Sorted by name.
pub(super) fn labels(scope: Scope<'_>, reader: &mut Reader<'_>) -> Vec<(String, String)> {
    let mut labels = BTreeMap::new();
    for node in scope.find_both("labels") {
        for pair in read(node, reader) {
            check_label(&pair, reader);
            if let VariableValue::Text(value) = pair.value {
                labels.insert(pair.name, value);
            }
        }
    }
    labels.into_iter().collect()
}

/// A name and its value with their positions.
struct NamedValue {
    name: String,
    name_at: Position,
    value: VariableValue,
    value_at: Position,
    literal: bool,
}

fn read(node: &Node, reader: &mut Reader<'_>) -> Vec<NamedValue> {
    match &node.value {
        Value::Map(map) => map
            .pairs
            .iter()
            .filter_map(|pair| {
                let (value, literal) = read_value(&pair.value, reader)?;
                Some(NamedValue {
                    name: pair.key.clone(),
                    name_at: pair.key_at,
                    value,
                    value_at: pair.value.at,
                    literal,
                })
            })
            .collect(),
        Value::List(items) => {
            let pairs: Vec<_> = items.iter().filter_map(|item| read_item(item, reader)).collect();
            refuse_repeated(&pairs, reader);
            pairs
        }
        Value::Scalar(_) => {
            reader.wrong_type(node, "a map, or a list of NAME=value");
            Vec::new()
        }
    }
}

fn read_value(node: &Node, reader: &mut Reader<'_>) -> Option<(VariableValue, bool)> {
    if let Value::Map(map) = &node.value
        && let [pair] = map.pairs.as_slice()
        && pair.key == "secret"
    {
        let name = reader.text(&pair.value)?;
        return Some((VariableValue::Secret(pair.value.at, name), true));
    }
    let Value::Scalar(scalar) = &node.value else {
        let text = format!("expected text or a number, found {}", node.describe());
        reader.collector.fault_without_value(node.at, FaultCode::ExpectedType, text);
        return None;
    };
    let (code, text) = match scalar.meaning() {
        ScalarMeaning::Text | ScalarMeaning::Number => {
            let value = substitute(node.at, &scalar.text, reader)?;
            return Some((value, !scalar.text.contains("${")));
        }
        ScalarMeaning::Null => (FaultCode::ExpectedString, "a name needs a value; \"\" is an empty one"),
        ScalarMeaning::Bool(_) | ScalarMeaning::Ambiguous => {
            (FaultCode::AmbiguousScalar, "may be taken for a boolean: quote it")
        }
    };
    reader.collector.fault_without_value(node.at, code, text);
    None
}

fn read_item(node: &Node, reader: &mut Reader<'_>) -> Option<NamedValue> {
    let Value::Scalar(scalar) = &node.value else {
        let text = format!("expected NAME=value, found {}", node.describe());
        reader.collector.fault_without_value(node.at, FaultCode::ExpectedType, text);
        return None;
    };
    let Some((name, value)) = scalar.text.split_once('=') else {
        let text = "expected NAME=value; a name without a value is not taken from anywhere";
        reader.collector.fault_without_value(node.at, FaultCode::InvalidValue, text);
        return None;
    };
    let literal = !value.contains("${");
    let value = substitute(node.at, value, reader)?;
    Some(NamedValue { name: name.to_owned(), name_at: node.at, value, value_at: node.at, literal })
}

fn substitute(at: Position, text: &str, reader: &mut Reader<'_>) -> Option<VariableValue> {
    if let Some(name) = substitute::param_reference(text) {
        return Some(VariableValue::Param(at, name.to_owned()));
    }
    reader
        .replaced(at, text)?
        .map(VariableValue::Text)
        .map_err(|wrong| reader.collector.fault_without_value(at, wrong.code, wrong.to_string()))
        .ok()
}

fn refuse_repeated(pairs: &[NamedValue], reader: &mut Reader<'_>) {
    let mut first = BTreeMap::new();
    for pair in pairs {
        if let Some(line) = first.insert(pair.name.as_str(), pair.name_at.line) {
            let text = format!("{} was first defined at line {line}", quoted(&pair.name));
            reader.collector.fault_without_value(pair.name_at, FaultCode::DuplicateKey, text);
        }
    }
}

fn check_variable(pair: NamedValue, reader: &mut Reader<'_>) -> Option<(String, VariableValue)> {
    if let Err(wrong) = grammar::env_name(&pair.name) {
        reader.collector.fault_without_value(pair.name_at, wrong.code, wrong.to_string());
        return None;
    }
    let VariableValue::Text(value) = &pair.value else { return Some((pair.name, pair.value)) };
    if let Err(wrong) = grammar::env_value(value) {
        reader.collector.fault_without_value(pair.value_at, wrong.code, wrong.to_string());
        return None;
    }
    let is_named_so = grammar::names_a_secret(&pair.name) && value.len() >= NAMED_SECRET_BYTES_MIN;
    if pair.literal && (is_named_so || grammar::looks_like_secret(value)) {
        let text = format!(
            "the value of {} looks like a secret; keep it out of the file with ${{NAME}} or env_file",
            pair.name
        );
        reader.collector.warning(pair.value_at, FaultCode::LooksLikeSecret, text);
    }
    Some((pair.name, pair.value))
}

fn check_label(pair: &NamedValue, reader: &mut Reader<'_>) {
    if !labels::is_name(&pair.name) || pair.name.len() > LABEL_BYTES_MAX {
        reader.fault(
            pair.name_at,
            FaultCode::InvalidValue,
            format!("{} is not a label: letters, digits, . _ - /", quoted(&pair.name)),
        );
    }
    for prefix in RESERVED_LABELS {
        if pair.name.starts_with(prefix) {
            let text = format!(
                "{} is reserved: labels that start with {prefix} are not for jobs",
                quoted(&pair.name)
            );
            reader.fault(pair.name_at, FaultCode::ReservedName, text);
        }
    }
    let VariableValue::Text(value) = &pair.value else {
        let text = "a parameter or a secret can be used in `command` and `environment` only";
        reader.fault(pair.value_at, FaultCode::InvalidSubstitution, text);
        return;
    };
    if value.chars().any(char::is_control) {
        reader.fault(
            pair.value_at,
            FaultCode::InvalidValue,
            "the value of a label must not contain control characters",
        );
    }
    let checked = grammar::at_most(value, LABEL_VALUE_BYTES_MAX);
    reader.accept(pair.value_at, checked);
}

/// Lines `NAME=value`; blank lines and lines that begin with `#` are skipped; a pair of quotes around a whole value is removed.
fn read_file(
    at: Position,
    file: &str,
    variables: &mut BTreeMap<String, VariableValue>,
    reader: &mut Reader<'_>,
) {
    let shown = reader.as_written(at, file);
    let text = match reader.file(file, FILE_BYTES_MAX) {
        Ok(text) => text,
        Err(unreadable) => {
            reader.fault(at, unreadable.code, format!("{}: {}", quoted(&shown), unreadable.text));
            return;
        }
    };
    for (number, line) in (1..).zip(text.lines()) {
        let at = Position { line: number, column: 1, ..Position::FILE };
        let trimmed = line.trim_start();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let Some((name, value)) = trimmed.split_once('=') else {
            let text = "expected NAME=value; a name without a value is not taken from anywhere";
            reader.collector.fault_in_file(&shown, at, FaultCode::InvalidValue, text);
            continue;
        };
        let value = unquoted(value.trim());
        let checked = grammar::env_name(name).map_err(without_name);
        match checked.and_then(|()| grammar::env_value(value)) {
            Ok(()) if value.contains('\0') => {
                reader.collector.fault_in_file(
                    &shown,
                    at,
                    FaultCode::NulByte,
                    "a NUL character cannot be passed on",
                );
            }
            Ok(()) => {
                variables.insert(name.to_owned(), VariableValue::Text(value.to_owned()));
            }
            Err(wrong) => reader.collector.fault_in_file(&shown, at, wrong.code, wrong.to_string()),
        }
    }
}

/// The same fault without the name: text before a `=` may be part of a secret, such as the last line of a key.
fn without_name(wrong: ValueFault) -> ValueFault {
    let text = match wrong.code {
        FaultCode::ReservedName => "Longshore sets the variables LONGSHORE_* itself",
        _ => "what stands before \"=\" is not a name for a variable: [A-Za-z_][A-Za-z0-9_]{0,127}",
    };
    ValueFault::new(wrong.code, text)
}

fn unquoted(value: &str) -> &str {
    ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote)).unwrap_or(value)
}

/// Prefixes of labels by which Longshore and compose identify their containers.
const RESERVED_LABELS: [&str; 2] = ["longshore.", "com.docker.compose."];
/// A shorter value of a variable with a secret's name is an example or a switch.
const NAMED_SECRET_BYTES_MIN: usize = 8;
const LABEL_BYTES_MAX: usize = 128;
const LABEL_VALUE_BYTES_MAX: usize = 4096;
/// Bytes of the largest whole definition.
const FILE_BYTES_MAX: usize = 256 * 1024;
