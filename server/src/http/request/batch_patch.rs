//! Parses the body of `PATCH /api/batches/{id}`.

use axum::body::Body;
use axum::http::HeaderMap;
use scheduler::batches::{BatchUpdate, NewLimit};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::auth::audit::note;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::Fault;
use crate::http::request::{body, job_request};

/// The body of `PATCH /api/batches/{id}`: at least one field. An absent field changes nothing, `null` takes the limit away.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchPatch {
    /// Members that may be on workers at once.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 100_000)]
    concurrency: Field,
    /// After this many failed members, those that have not started are cancelled; if as many have failed already, at once.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 100_000)]
    max_failures: Field,
}

/// A field that may be absent, `null` or a number.
#[derive(Clone, Copy, Debug, Default)]
enum Field {
    #[default]
    Absent,
    Null,
    Number(i64),
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<i64>::deserialize(deserializer).map(|given| given.map_or(Self::Null, Self::Number))
    }
}

/// Parses the new limits of a batch. The audit log gets them.
///
/// # Errors
/// The faults of the body; `missing_field` if it changes nothing.
pub(crate) async fn read(headers: &HeaderMap, body: Body) -> Result<BatchUpdate, Problem> {
    let update = update(&body::json(headers, body).await?)?;
    let words = |name: &str, limit| match limit {
        NewLimit::Keep => None,
        NewLimit::Lift => Some(format!("no {name}")),
        NewLimit::Set(limit) => Some(format!("{name} {limit}")),
    };
    let all = [words("concurrency", update.concurrency), words("max_failures", update.max_failures)];
    note::detail(all.into_iter().flatten().collect::<Vec<_>>().join(", "));
    Ok(update)
}

fn update(patch: &BatchPatch) -> Result<BatchUpdate, Problem> {
    let mut faults = Vec::new();
    let mut limit = |name: &str, field: Field| match field {
        Field::Absent => NewLimit::Keep,
        Field::Null => NewLimit::Lift,
        Field::Number(number) => match job_request::count(number) {
            Ok(limit) => NewLimit::Set(limit),
            Err((code, detail, _)) => {
                let hint = Some("null takes the limit away".to_owned());
                faults.push((code, Fault { code: code.name().into(), field: name.into(), detail, hint }));
                NewLimit::Keep
            }
        },
    };
    let update = BatchUpdate {
        concurrency: limit("concurrency", patch.concurrency),
        max_failures: limit("max_failures", patch.max_failures),
    };
    match faults.is_empty() {
        false => Err(Problem::faults(faults)),
        true if update == BatchUpdate::default() => {
            let detail = "nothing is to be changed: there are concurrency and max_failures";
            Err(Problem::new(ProblemCode::MissingField, detail))
        }
        true => Ok(update),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BatchUpdate, Problem> {
        update(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn an_absent_field_keeps_a_limit_and_null_lifts_it() {
        let is = |concurrency, max_failures| BatchUpdate { concurrency, max_failures };
        assert_eq!(read(r#"{"concurrency":20}"#).unwrap(), is(NewLimit::Set(20), NewLimit::Keep));
        let both = read(r#"{"concurrency":null,"max_failures":5}"#).unwrap();
        assert_eq!(both, is(NewLimit::Lift, NewLimit::Set(5)));
        assert_eq!(read("{}").unwrap_err().code(), ProblemCode::MissingField);
        for number in ["0", "-1", "100001"] {
            let refused = read(&format!(r#"{{"max_failures":{number}}}"#)).unwrap_err();
            assert_eq!(refused.code(), ProblemCode::OutOfRange, "{number}");
        }
        assert!(serde_json::from_str::<BatchPatch>(r#"{"name":"x"}"#).is_err());
        assert!(serde_json::from_str::<BatchPatch>(r#"{"concurrency":"20"}"#).is_err());
    }
}
