//! Acknowledgements of all failures that filters select.

use serde_json::Value;

use super::{Operation, apply};
use crate::api::Api;
use crate::args::CommonArgs;

/// Acknowledges failures, or takes that back, in as many requests as it takes. `verb` is for people; the query says which it is.
pub(crate) async fn acknowledge_all(
    api: &Api,
    common: &CommonArgs,
    verb: &str,
    query: &[(&'static str, String)],
    body: &Value,
    yes: bool,
) -> anyhow::Result<()> {
    let operation = Operation { verb, key: None, body: Some(body) };
    let path = ["api", "jobs", "acknowledge"];
    apply(api, common, (&path, operation), ("the filters select", query), yes).await
}
