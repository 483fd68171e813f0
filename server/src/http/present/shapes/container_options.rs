//! The part of a definition's JSON about names, limits and groups of its container.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Names, limits and groups of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContainerOptions {
    /// The name of the container within itself; absent: its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Names with addresses of their own, as `name:address`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_hosts: Vec<String>,
    /// Addresses of name servers; absent: the engine's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<String>,
    /// Domains in which short names are looked up; absent: the engine's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_search: Vec<String>,
    /// Limits of each process, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ulimits: BTreeMap<String, Ulimit>,
    /// Further groups of the program, by name or number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_add: Vec<String>,
}

/// A limit of each process; −1 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ulimit {
    /// The limit that holds.
    pub soft: i64,
    /// A process may raise its limit up to this.
    pub hard: i64,
}
