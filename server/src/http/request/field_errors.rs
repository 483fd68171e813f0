//! Reads the fields of an object one by one: serde stops at the first value of a wrong type, but all faults of a body are to be shown.

use std::fmt::{self, Formatter};

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};

use crate::http::middleware::problem::Problem;

/// Parses each field of an object as if it were the only one, and joins the faults.
pub(crate) fn check_each_field(text: &[u8], refusal: impl Fn(&[u8]) -> Option<Problem>) -> Option<Problem> {
    let Fields(fields) = serde_json::from_slice(text).ok()?;
    let alone = fields.into_iter().map(|(name, value)| json!({ name: value }).to_string());
    Problem::joined(alone.filter_map(|text| refusal(text.as_bytes())).collect())
}

/// The first fields in the order of the text. A job has fewer; further ones are dropped.
struct Fields(Vec<(String, Value)>);

const FIELDS_MAX: usize = 50;

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Fields;

    fn expecting(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Vec::new();
        while fields.len() < FIELDS_MAX
            && let Some(field) = map.next_entry()?
        {
            fields.push(field);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order_and_no_more_are_kept_than_help() {
        let Fields(fields) = serde_json::from_str(r#"{"b": 1, "a": [2], "b": 3}"#).unwrap();
        assert_eq!(fields.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["b", "a", "b"]);
        let many: Vec<_> = (0..100_000).map(|n| format!("\"x{n}\":0")).collect();
        let Fields(fields) = serde_json::from_str(&format!("{{{}}}", many.join(","))).unwrap();
        assert_eq!(fields.len(), FIELDS_MAX);
        assert!(serde_json::from_str::<Fields>(r#"{"a": 1, "b""#).is_err());
    }
}
