//! The parameters of a job as JSON columns.

use rusqlite::Row;
use scheduler::params::{JobParam, JobParams, ParamValue};
use serde::{Deserialize, Serialize};

use super::json_column;

/// A value as JSON: its own type tells the kind.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredValue {
    Boolean(bool),
    Integer(i64),
    Text(String),
    List(Vec<String>),
    /// A number with decimals, as text: a float could be read back as another one.
    Number {
        number: String,
    },
}

/// Name, value, and whether it is secret.
#[derive(Serialize, Deserialize)]
struct StoredParam(String, StoredValue, #[serde(default)] bool);

#[derive(Default, Serialize, Deserialize)]
struct StoredFilledIn {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    environment: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    variables: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
}

/// The values that the submission gave; null if there are none.
pub(super) fn given_json(params: &JobParams) -> Option<String> {
    let stored: Vec<_> = params.given.iter().map(stored).collect();
    // Texts, numbers and lists always have a JSON form.
    if stored.is_empty() { None } else { serde_json::to_string(&stored).ok() }
}

/// Variables and words that follow from the parameters; null if there are none.
pub(super) fn filled_in_json(params: &JobParams) -> Option<String> {
    let JobParams { environment, variables, args, .. } = params;
    if environment.is_empty() && variables.is_empty() && args.is_empty() {
        return None;
    }
    let stored =
        StoredFilledIn { environment: environment.clone(), variables: variables.clone(), args: args.clone() };
    serde_json::to_string(&stored).ok()
}

/// The parameters in the columns `params` and `filled_in`, of which the first has this index.
pub(super) fn read(row: &Row<'_>, index: usize) -> rusqlite::Result<JobParams> {
    let given = read_given(row, index)?;
    let filled_in: StoredFilledIn = json_column::read(row, index + 1)?.unwrap_or_default();
    let StoredFilledIn { environment, variables, args } = filled_in;
    Ok(JobParams { given, environment, variables, args })
}

/// The values that the submission gave, in the column `params` with this index.
pub(super) fn read_given(row: &Row<'_>, index: usize) -> rusqlite::Result<Vec<JobParam>> {
    let given: Option<Vec<StoredParam>> = json_column::read(row, index)?;
    Ok(given.unwrap_or_default().into_iter().map(param).collect())
}

fn stored(param: &JobParam) -> StoredParam {
    let value = match param.value.clone() {
        ParamValue::Text(text) => StoredValue::Text(text),
        ParamValue::Integer(number) => StoredValue::Integer(number),
        ParamValue::Number(number) => StoredValue::Number { number },
        ParamValue::Boolean(value) => StoredValue::Boolean(value),
        ParamValue::List(items) => StoredValue::List(items),
    };
    StoredParam(param.name.clone(), value, param.secret)
}

fn param(StoredParam(name, value, secret): StoredParam) -> JobParam {
    let value = match value {
        StoredValue::Text(text) => ParamValue::Text(text),
        StoredValue::Integer(number) => ParamValue::Integer(number),
        StoredValue::Number { number } => ParamValue::Number(number),
        StoredValue::Boolean(value) => ParamValue::Boolean(value),
        StoredValue::List(items) => ParamValue::List(items),
    };
    JobParam { name, value, secret }
}
