//! Checks the results that attempts leave. A result is shown as JSON within the JSON of its job, so it has to be JSON.
//!
//! This is not done by `protocol::wire`, which knows no JSON.

use protocol::Token;
use protocol::report::Succeeded;
use serde::de::IgnoredAny;

/// A result that is not JSON. Its text is part of the close reason.
#[derive(Debug, thiserror::Error)]
#[error("Success.result of {token}: it is not JSON: {why}")]
pub(super) struct NotJson {
    token: Token,
    #[source]
    why: serde_json::Error,
}

/// Checks the results of these reports.
///
/// # Errors
/// One of them is not JSON, or is nested more deeply than anybody reads (128 levels).
pub(super) fn check(ended: &[Succeeded]) -> Result<(), NotJson> {
    ended.iter().try_for_each(|it| match &it.result {
        Some(result) => serde_json::from_str::<IgnoredAny>(result)
            .map(drop)
            .map_err(|why| NotJson { token: it.token, why }),
        None => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use protocol::report::{OutputLengths, Timing};

    use super::*;

    #[test]
    fn a_result_is_json_or_absent() {
        let ended = |result: Option<&str>| {
            let (token, timing, output) = (Token::default(), Timing::default(), OutputLengths::default());
            let result = result.map(str::to_owned);
            [Succeeded { token, timing, output, usage: Default::default(), result, note: None }]
        };
        for good in [None, Some("null"), Some("1e3"), Some("{\"a\": [1, \"b\"]}")] {
            assert!(check(&ended(good)).is_ok(), "{good:?}");
        }
        let deep = "[".repeat(5_000);
        for bad in ["", "{", "{} {}", "nul", "{'a': 1}", "\u{7f}", &deep] {
            let error = check(&ended(Some(bad))).unwrap_err().to_string();
            assert!(error.starts_with("Success.result of 0#0: it is not JSON: "), "{error}");
        }
    }
}
