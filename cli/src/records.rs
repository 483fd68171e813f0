//! The JSON of the server in formats for programs: JSON, a JSON object a line, CSV, or only names.
//!
//! The server's JSON is the one source, so a format never lacks a field that another one has. `longshore ls` takes CSV and NDJSON from the server.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::failure::{Exit, Failure};
use crate::screen::{self, Format};

/// Prints JSON in a format for programs. Returns false, and prints nothing, for a format for people.
///
/// An object counts as a list of one. `key` is the member that names an object: a command takes its value as an argument.
///
/// # Errors
/// Standard output is closed, or the format is `name` and the objects have no such member.
pub(crate) fn print(format: Format, json: &Value, key: &str) -> anyhow::Result<bool> {
    match format {
        Format::Table | Format::Wide => return Ok(false),
        Format::Json => screen::json(json)?,
        Format::Ndjson => objects(json).iter().try_for_each(|object| screen::line(&object.to_string()))?,
        Format::Csv => print_table(&csv(objects(json)))?,
        Format::Name => {
            for object in objects(json) {
                screen::line(&screen::visible(&name_of(object, key)?))?;
            }
        }
    }
    Ok(true)
}

/// As [`print()`], for an answer whose records are a member of it. JSON shows the whole answer.
pub(crate) fn print_list(format: Format, json: &Value, list: &str, key: &str) -> anyhow::Result<bool> {
    let records = json.get(list).filter(|_| format != Format::Json);
    print(format, records.unwrap_or(json), key)
}

/// Refuses the formats that a text without records cannot have.
pub(crate) fn refuse_records(format: Format) -> anyhow::Result<()> {
    match format {
        Format::Csv | Format::Name => {
            let text = format!("-o {}: this output has no records", format.name());
            Err(Failure::new(Exit::Usage, text).hint("use -o json, or leave -o out").into())
        }
        _ => Ok(()),
    }
}

fn objects(json: &Value) -> &[Value] {
    match json {
        Value::Array(list) => list,
        // An answer without content, as about a worker that was forgotten.
        Value::Null => &[],
        one => std::slice::from_ref(one),
    }
}

fn name_of<'v>(object: &'v Value, key: &str) -> anyhow::Result<Cow<'v, str>> {
    match object.get(key) {
        Some(Value::String(name)) => Ok(name.into()),
        Some(value @ Value::Number(_)) => Ok(value.to_string().into()),
        _ => {
            let text = "-o name: the answer names nothing that a command takes";
            Err(Failure::new(Exit::Usage, text).hint("use -o json, or leave -o out").into())
        }
    }
}

/// Prints records, which a terminal shows without control characters.
fn print_table(csv: &str) -> anyhow::Result<()> {
    screen::records(csv.as_bytes(), &mut crate::utf8::Utf8Stream::default())
}

/// Objects as CSV (RFC 4180): the union of their members as a heading, and a record for each. Members that are no plain value are JSON.
fn csv(objects: &[Value]) -> String {
    let members = |object: &Value| object.as_object().map(|it| it.keys().cloned().collect::<Vec<_>>());
    let all: BTreeSet<String> = objects.iter().filter_map(members).flatten().collect();
    let leading = LEADING.iter().filter(|name| all.contains(**name)).map(|name| (*name).to_owned());
    let others = all.iter().filter(|name| !LEADING.contains(&name.as_str())).cloned();
    let heading: Vec<String> = leading.chain(others).collect();
    let mut csv = record(heading.iter().map(|name| cell(name)));
    for object in objects {
        csv += &record(heading.iter().map(|name| match object.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => cell(text),
            Some(plain @ (Value::Number(_) | Value::Bool(_))) => plain.to_string(),
            Some(nested) => cell(&nested.to_string()),
        }));
    }
    csv
}

/// Joins cells to a record with its line end.
pub(crate) fn record(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<_>>().join(",") + "\r\n"
}

/// A text as a cell. A spreadsheet would run a text that begins like a formula: an apostrophe makes it text, as in the server's CSV.
pub(crate) fn cell(text: &str) -> String {
    let is_formula = text.starts_with(FORMULA_STARTS);
    if !is_formula && !text.contains(['"', ',', '\r', '\n']) {
        return text.to_owned();
    }
    let apostrophe = if is_formula { "'" } else { "" };
    format!("\"{apostrophe}{}\"", text.replace('"', "\"\""))
}

/// Members that come first; the others follow by name.
const LEADING: [&str; 3] = ["id", "name", "state"];
/// First characters of formulas for Excel, LibreOffice and Google Sheets, also in full width.
const FORMULA_STARTS: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn csv_has_every_member_of_every_object() {
        let list = json!([
            { "slots": 4, "name": "anna", "id": 1, "labels": { "zone": "b" } },
            { "id": 2, "name": "bob, \"the\" =builder", "connected": true, "gone": null },
        ]);
        let expected = "id,name,connected,gone,labels,slots\r\n\
                        1,anna,,,\"{\"\"zone\"\":\"\"b\"\"}\",4\r\n\
                        2,\"bob, \"\"the\"\" =builder\",true,,,\r\n";
        assert_eq!(csv(objects(&list)), expected);
        assert_eq!(csv(objects(&json!({ "name": "=1+1" }))), "name\r\n\"'=1+1\"\r\n");
    }

    #[test]
    fn a_name_is_a_text_or_a_number() {
        assert_eq!(name_of(&json!({ "id": 7 }), "id").unwrap(), "7");
        assert_eq!(name_of(&json!({ "name": "anna" }), "name").unwrap(), "anna");
        assert!(name_of(&json!({ "name": [1] }), "name").unwrap_err().to_string().contains("names nothing"));
    }
}
