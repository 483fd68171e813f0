//! Columns that hold JSON.

use rusqlite::Row;
use rusqlite::types::FromSqlError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How lists are stored: as JSON; nothing if they are empty.
pub(super) fn code<T: Serialize>(list: &[T]) -> Option<String> {
    // Strings and numbers always have a JSON form.
    if list.is_empty() { None } else { serde_json::to_string(list).ok() }
}

/// The value in a column; none if the column is null.
pub(super) fn read<T: DeserializeOwned>(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(index)?;
    text.map(|text| serde_json::from_str(&text).map_err(|error| FromSqlError::Other(Box::new(error)).into()))
        .transpose()
}
