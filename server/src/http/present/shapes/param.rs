//! JSON of the parameters of a definition.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Text;

/// A parameter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean`, `duration`, `enum` or `list`.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: Text,
    /// A submission must give it.
    #[serde(default)]
    pub required: bool,
    /// The value of a job whose submission does not give it; `***` if it is secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<serde_json::Value>,
    /// The values that it takes, in words.
    pub allowed: String,
    /// The values of an enum, or the items that a list may have.
    #[serde(default, rename = "enum", skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
    /// Free text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its value is never shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}
