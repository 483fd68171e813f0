//! The key `input`: any value, which the jobs of the definition find as JSON in a file.

use protocol::container::INPUT_BYTES_MAX;
use serde_json::{Number, Value as Json};

use super::fault::{FaultCode, quoted};
use super::reader::Reader;
use super::tree::{Node, ScalarMeaning, Value};

/// The value as JSON text. The order of a map's keys has no meaning, so they are sorted.
pub(super) fn read(node: &Node, reader: &mut Reader<'_>) -> Option<String> {
    if node.is_null() {
        reader.wrong_type(node, "a value");
        return None;
    }
    let text = json(node, reader)?.to_string();
    if text.len() > INPUT_BYTES_MAX {
        let text = format!("{} bytes of JSON are too long (max {INPUT_BYTES_MAX})", text.len());
        reader.collector.fault_without_value(node.at, FaultCode::TooLong, text);
        return None;
    }
    Some(text)
}

/// Variables of the server's environment are replaced in texts. All faults are recorded before the value is given up.
fn json(node: &Node, reader: &mut Reader<'_>) -> Option<Json> {
    match &node.value {
        Value::List(items) => {
            let values: Vec<_> = items.iter().map(|item| json(item, reader)).collect();
            values.into_iter().collect::<Option<_>>().map(Json::Array)
        }
        Value::Map(map) => {
            let pairs: Vec<_> =
                map.pairs.iter().map(|pair| Some((pair.key.clone(), json(&pair.value, reader)?))).collect();
            pairs.into_iter().collect::<Option<_>>().map(Json::Object)
        }
        Value::Scalar(scalar) => match scalar.meaning() {
            ScalarMeaning::Bool(value) => Some(Json::Bool(value)),
            ScalarMeaning::Null => Some(Json::Null),
            ScalarMeaning::Number => {
                let number = scalar.text.parse::<Number>().ok();
                if number.is_none() {
                    let text = format!("{} is not a number in JSON: quote it", quoted(&scalar.text));
                    reader.fault(node.at, FaultCode::InvalidValue, text);
                }
                number.map(Json::Number)
            }
            ScalarMeaning::Text | ScalarMeaning::Ambiguous => reader.text(node).map(Json::String),
        },
    }
}
