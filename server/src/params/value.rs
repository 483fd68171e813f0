//! Single values of parameters: from JSON to the type, and to text and JSON again.

use std::fmt::Display;

use scheduler::params::{Bounds, ParamKind, ParamValue};
use serde_json::{Value, json};

use super::pattern::Pattern;
use crate::config::jobs_file::quantity::{self, DurationText};

/// Reads a value. Text is taken for every type, so that a command line can give any parameter.
///
/// # Errors
/// The reason, to be read after the value: "is not a whole number".
pub(crate) fn from_json(
    kind: &ParamKind,
    pattern: Option<&Pattern>,
    value: &Value,
) -> Result<ParamValue, String> {
    match (kind, value) {
        (ParamKind::Text { length, .. }, Value::String(text)) => {
            check_text(text)?;
            if !length.contains(text.chars().count() as u64) {
                return Err(format!("has {} characters", text.chars().count()));
            }
            check_pattern(text, pattern)?;
            Ok(ParamValue::Text(text.clone()))
        }
        (ParamKind::Integer(bounds), _) => {
            let number = match value {
                Value::Number(number) => number.as_i64(),
                Value::String(text) => text.parse().ok(),
                _ => None,
            };
            let number = number.ok_or("is not a whole number")?;
            within(bounds, number).map(ParamValue::Integer)
        }
        (ParamKind::Number(bounds), _) => {
            let number = match value {
                Value::Number(number) => number.as_f64(),
                Value::String(text) if !text.starts_with('+') => text.parse().ok(),
                _ => None,
            };
            let number = number.filter(|number: &f64| number.is_finite()).ok_or("is not a number")?;
            within(bounds, number).map(|number| ParamValue::Number(number.to_string()))
        }
        (ParamKind::Boolean, Value::Bool(value)) => Ok(ParamValue::Boolean(*value)),
        (ParamKind::Boolean, Value::String(text)) => match text.as_str() {
            "true" => Ok(ParamValue::Boolean(true)),
            "false" => Ok(ParamValue::Boolean(false)),
            _ => Err("is not true or false".to_owned()),
        },
        (ParamKind::Duration(bounds), Value::String(text)) => {
            let duration =
                quantity::any_duration(text).ok_or("is not a duration such as 90s, 1h30m or 2d")?;
            within(bounds, duration).map(|_| ParamValue::Text(text.clone()))
        }
        (ParamKind::Enum(words), Value::String(text)) => match words.contains(text) {
            true => Ok(ParamValue::Text(text.clone())),
            false => Err("is not one of its values".to_owned()),
        },
        (ParamKind::List { items: allowed, length, .. }, _) => {
            let items = items(value)?;
            if !length.contains(items.len() as u64) {
                return Err(format!("has {} items", items.len()));
            }
            for item in &items {
                check_text(item)?;
                check_pattern(item, pattern)?;
                if item.contains(',') {
                    return Err("has an item with a comma, which stands between items".to_owned());
                }
                if !allowed.is_empty() && !allowed.contains(item) {
                    return Err("has an item that is not one of its values".to_owned());
                }
            }
            check_length(items.iter().map(|item| item.len() + 1).sum())?;
            Ok(ParamValue::List(items))
        }
        (kind, _) => Err(format!("is not {}", type_in_words(kind))),
    }
}

fn items(value: &Value) -> Result<Vec<String>, String> {
    let not_a_list = || "is not a list of texts".to_owned();
    match value {
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        Value::String(text) => Ok(text.split(',').map(str::to_owned).collect()),
        Value::Array(items) => {
            let item = |item: &Value| match item {
                Value::String(text) => Ok(text.clone()),
                Value::Number(number) => Ok(number.to_string()),
                _ => Err(not_a_list()),
            };
            items.iter().map(item).collect()
        }
        _ => Err(not_a_list()),
    }
}

fn within<T: PartialOrd + Copy>(bounds: &Bounds<T>, value: T) -> Result<T, String> {
    if bounds.contains(value) { Ok(value) } else { Err("is out of range".to_owned()) }
}

fn check_pattern(text: &str, pattern: Option<&Pattern>) -> Result<(), String> {
    match pattern {
        Some(pattern) if !pattern.matches(text) => Err("does not match the pattern".to_owned()),
        _ => Ok(()),
    }
}

/// A value may become a variable, which cannot hold line breaks.
fn check_text(text: &str) -> Result<(), String> {
    if text.contains(['\n', '\r', '\0']) {
        return Err("holds a line break or a NUL; use `input` for longer texts".to_owned());
    }
    check_length(text.len())
}

fn check_length(bytes: usize) -> Result<(), String> {
    if bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(format!("is too long with {bytes} bytes (max {VALUE_BYTES_MAX})"))
}

/// The values that a parameter takes, in words: "a whole number from 1 to 4000".
pub(crate) fn allowed(kind: &ParamKind) -> String {
    let matching = |pattern: &Option<String>| {
        pattern.as_ref().map(|pattern| format!(" that matches {pattern}")).unwrap_or_default()
    };
    match kind {
        ParamKind::Text { pattern, length } => {
            format!("a text{}{}", range(length, " of ", " characters"), matching(pattern))
        }
        ParamKind::Integer(bounds) => format!("a whole number{}", range(bounds, " ", "")),
        ParamKind::Number(bounds) => format!("a number{}", range(bounds, " ", "")),
        ParamKind::Boolean => "true or false".to_owned(),
        ParamKind::Duration(bounds) => {
            let text = Bounds { min: bounds.min.map(DurationText), max: bounds.max.map(DurationText) };
            format!("a duration{}", range(&text, " ", ""))
        }
        ParamKind::Enum(words) => format!("one of {}", words.join(", ")),
        ParamKind::List { pattern, items, length } => {
            let of = if items.is_empty() { String::new() } else { format!(" of {}", items.join(", ")) };
            let item = if pattern.is_some() { ", each item a text" } else { "" };
            format!("a list{of}{}{item}{}", range(length, " with ", " items"), matching(pattern))
        }
    }
}

fn type_in_words(kind: &ParamKind) -> &'static str {
    match kind {
        ParamKind::Text { .. } | ParamKind::Enum(_) => "a text",
        ParamKind::Integer(_) => "a whole number",
        ParamKind::Number(_) => "a number",
        ParamKind::Boolean => "true or false",
        ParamKind::Duration(_) => "a duration",
        ParamKind::List { .. } => "a list of texts",
    }
}

fn range<T: Display>(bounds: &Bounds<T>, before: &str, unit: &str) -> String {
    match (&bounds.min, &bounds.max) {
        (None, None) => String::new(),
        (Some(min), None) => format!("{before}from {min}{unit}"),
        (None, Some(max)) => format!("{before}up to {max}{unit}"),
        (Some(min), Some(max)) => format!("{before}from {min} to {max}{unit}"),
    }
}

/// The value as a word of a command, or as a variable.
pub(crate) fn to_text(value: &ParamValue) -> String {
    match value {
        ParamValue::Text(text) | ParamValue::Number(text) => text.clone(),
        ParamValue::Integer(number) => number.to_string(),
        ParamValue::Boolean(value) => value.to_string(),
        ParamValue::List(items) => items.join(","),
    }
}

/// The value in JSON.
pub(crate) fn to_json(value: &ParamValue) -> Value {
    match value {
        ParamValue::Text(text) => json!(text),
        // Numbers are finite, so they always have a JSON form.
        ParamValue::Number(text) => text.parse::<f64>().map_or(Value::Null, |number| json!(number)),
        ParamValue::Integer(number) => json!(number),
        ParamValue::Boolean(value) => json!(value),
        ParamValue::List(items) => json!(items),
    }
}

/// The limit of a variable's value.
const VALUE_BYTES_MAX: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn takes(kind: &ParamKind, value: Value) -> Option<ParamValue> {
        from_json(kind, None, &value).ok()
    }

    #[test]
    fn each_type_takes_its_own_json_and_text() {
        let integer = ParamKind::Integer(Bounds { min: Some(-1), max: None });
        assert_eq!(takes(&integer, json!(7)), Some(ParamValue::Integer(7)));
        assert_eq!(takes(&integer, json!("7")), Some(ParamValue::Integer(7)));
        for wrong in [json!(7.5), json!("7.0"), json!(-2), json!(true), json!(null), json!([7])] {
            assert_eq!(takes(&integer, wrong.clone()), None, "{wrong}");
        }
        let number = ParamKind::Number(Bounds { min: Some(0.0), max: Some(1.0) });
        assert_eq!(takes(&number, json!(0.25)), Some(ParamValue::Number("0.25".to_owned())));
        assert_eq!(takes(&number, json!("1")), Some(ParamValue::Number("1".to_owned())));
        assert_eq!((takes(&number, json!("NaN")), takes(&number, json!("inf"))), (None, None));
        assert_eq!(takes(&ParamKind::Boolean, json!("false")), Some(ParamValue::Boolean(false)));
        assert_eq!(takes(&ParamKind::Boolean, json!(1)), None);
        let duration = ParamKind::Duration(Bounds { min: Some(Duration::from_secs(1)), max: None });
        assert_eq!(takes(&duration, json!("90s")), Some(ParamValue::Text("90s".to_owned())));
        assert_eq!((takes(&duration, json!("1ms")), takes(&duration, json!(90))), (None, None));
        let words = ParamKind::Enum(vec!["a".to_owned()]);
        assert_eq!((takes(&words, json!("a")).is_some(), takes(&words, json!("b"))), (true, None));
    }

    #[test]
    fn lists_are_arrays_or_texts_with_commas() {
        let list = |items: &[&str]| ParamKind::List {
            pattern: None,
            items: items.iter().map(|item| (*item).to_owned()).collect(),
            length: Bounds { min: None, max: Some(2) },
        };
        let two = Some(ParamValue::List(vec!["a".to_owned(), "2".to_owned()]));
        assert_eq!(takes(&list(&[]), json!(["a", 2])), two);
        assert_eq!(takes(&list(&[]), json!("a,2")), two);
        assert_eq!(takes(&list(&[]), json!("")), Some(ParamValue::List(Vec::new())));
        for wrong in [json!(["a,b"]), json!(["a", "b", "c"]), json!([["a"]]), json!(["a\nb"])] {
            assert_eq!(takes(&list(&[]), wrong.clone()), None, "{wrong}");
        }
        assert_eq!(takes(&list(&["a"]), json!("b")), None);
    }

    #[test]
    fn texts_stand_in_one_line_and_have_a_limit() {
        let text = ParamKind::Text { pattern: None, length: Bounds { min: Some(1), max: None } };
        assert!(takes(&text, json!("é; rm -rf /")).is_some(), "no shell reads it");
        for wrong in [json!(""), json!("a\nb"), json!("a\0"), json!("x".repeat(100 << 10)), json!(5)] {
            assert_eq!(takes(&text, wrong), None);
        }
    }

    #[test]
    fn what_is_allowed_is_said_in_words() {
        let integer = ParamKind::Integer(Bounds { min: Some(1), max: Some(4_000) });
        assert_eq!(allowed(&integer), "a whole number from 1 to 4000");
        let text = ParamKind::Text { pattern: Some("[a-z]+".to_owned()), length: Bounds::default() };
        assert_eq!(allowed(&text), "a text that matches [a-z]+");
        let duration = ParamKind::Duration(Bounds { min: None, max: Some(Duration::from_secs(90)) });
        assert_eq!(allowed(&duration), "a duration up to 90s");
    }
}
