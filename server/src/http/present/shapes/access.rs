//! Tokens and the audit log.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Reason, Text, Time};

/// A token, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its name.
    pub name: String,
    /// `viewer`, `submitter`, `operator`, `admin` or `worker`.
    #[schema(value_type = String)]
    pub role: Text,
    /// Names and patterns of the definitions on whose jobs its holder may act; empty: all.
    pub definitions: Vec<String>,
    /// `valid`, `expired`, `revoked`, or `used_up` for a token by which as many workers have joined as may.
    #[schema(value_type = String)]
    pub state: Text,
    /// When it was made.
    pub created_at: Time,
    /// The token with which it was made; absent: none was needed, or the server made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// From when it is no longer valid; absent: it does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// When it was last used; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Time>,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Time>,
    /// The labels that workers get that join by it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How many workers may join by it; absent: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
    /// How many more workers may join by it; absent: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses_left: Option<u32>,
    /// For a token with the role `worker`: how many workers have joined by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined: Option<u32>,
    /// In the answer to a revocation with `workers=1`: how many workers were revoked with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers_revoked: Option<u32>,
}

/// A token that was just made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    /// The token itself. It is shown only here.
    pub token: String,
    /// Its facts.
    #[serde(flatten)]
    pub facts: Token,
    /// Names and patterns of `definitions` that fit no present definition, each in a sentence; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The sender of a request, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Caller {
    /// The name of its token; `proxy:NAME` for a user whom a proxy has signed in; absent: the server needs no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// `token`, `proxy`, or `none` on a server that needs no token.
    #[schema(value_type = String)]
    pub login: Text,
    /// `viewer`, `submitter`, `operator` or `admin`.
    #[schema(value_type = String)]
    pub role: Text,
    /// Names and patterns of the definitions on whose jobs it may act; empty: all.
    pub definitions: Vec<String>,
    /// From when the token is no longer valid; absent: it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// `token_expires`: the token expires within 14 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<Reason>,
}

/// A request that was to change something, or several that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Its number.
    pub id: u64,
    /// When the first of them was answered.
    pub from: Time,
    /// When the last of them was answered.
    pub to: Time,
    /// How many there were.
    pub count: u64,
    /// The name of the token; absent: none, or none that is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The role that it had.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub role: Option<Text>,
    /// The address of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The method of the request; `SIGNAL` and `WATCH` for reloads that no request asked for.
    pub method: String,
    /// Its path and query; without a valid token only the route.
    pub target: String,
    /// The thing that it acted on, such as a token or a worker with its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The change in words: names, roles, keys. It has no secrets and no values of variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The status of the answer; 499 if the client left before it.
    pub status: u16,
    /// The code of the problem, if it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The request id of the last of them.
    pub request_id: String,
}
