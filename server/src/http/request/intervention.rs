//! The body of a pause or a cordon: `{"reason": "…", "for": "2h"}`, or none.

use core::ops::RangeInclusive;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use protocol::Timestamp;
use scheduler::origin::Origin;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::auth::audit::note;
use crate::clock;
use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::Time;
use crate::http::request::job_request::instant;
use crate::http::request::query::duration;
use crate::http::request::reason;

/// The body of a pause or a cordon. It may be left out.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InterventionBody {
    /// Why, for people: 1 to 300 characters in one line.
    reason: Option<String>,
    /// It ends by itself after this time, from 1s to 366d.
    #[serde(rename = "for")]
    lasts: Option<String>,
    /// It ends by itself at this instant, within 366 days. Not together with `for`.
    until: Option<String>,
}

/// A pause or a cordon as it was asked for.
#[derive(Debug)]
pub(crate) struct InterventionOrder {
    /// The time at which it ends by itself.
    pub(crate) until: Option<Timestamp>,
    /// The requester and the reason.
    pub(crate) origin: Origin,
}

/// Reads the body of a pause or a cordon. The audit log gets the end and the reason.
///
/// # Errors
/// Those of [`reason::read`], `invalid_duration` for another `for`, and `invalid_time` for another `until` or for both.
pub(crate) async fn read(headers: &HeaderMap, body: Body) -> Result<InterventionOrder, Problem> {
    let InterventionBody { reason, lasts, until } = reason::optional(headers, body).await?;
    let until = end(clock::now().utc, lasts.as_deref(), until.as_deref())?;
    let origin = reason::origin(reason)?;
    if let Some(at) = until {
        let reason = origin.reason.as_ref().map(|reason| format!("; reason: {reason}")).unwrap_or_default();
        note::detail(format!("until {}{reason}", Time(at)));
    }
    Ok(InterventionOrder { until, origin })
}

/// The end of a pause or a cordon that begins now.
fn end(now: Timestamp, lasts: Option<&str>, until: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    match (lasts, until) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Problem::new(ProblemCode::InvalidTime, "for and until exclude each other")
            .field("until")
            .hint("give for for a time from now, or until for an instant")),
        (Some(text), None) => match duration(text).filter(|lasts| LASTS.contains(lasts)) {
            Some(lasts) => Ok(Some(now + lasts)),
            None => {
                let detail = format!("\"{}\" is not a duration from 1s to 366d", excerpt(text));
                Err(Problem::new(ProblemCode::InvalidDuration, detail)
                    .field("for")
                    .hint("write 90s, 1h30m or 2d"))
            }
        },
        (None, Some(text)) => {
            let refused =
                |code, detail: String, hint: &str| Problem::new(code, detail).field("until").hint(hint);
            let at = instant(text).map_err(|(code, detail, hint)| refused(code, detail, &hint))?;
            if at <= now {
                let detail = format!("\"{}\" has passed: it is {}", excerpt(text), Time(now));
                return Err(refused(ProblemCode::InvalidTime, detail, "give an instant in the future"));
            }
            if at > now + *LASTS.end() {
                let detail = format!("\"{}\" is more than 366 days away", excerpt(text));
                let hint = "without an end it lasts until somebody ends it";
                return Err(refused(ProblemCode::InvalidTime, detail, hint));
            }
            Ok(Some(at))
        }
    }
}

/// The time that a pause or a cordon with an end may last.
const LASTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(366 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-03-01T09:30:00Z.
    const NOW: Timestamp = Timestamp(1_772_357_400_000);

    #[test]
    fn an_end_is_a_time_from_now_or_an_instant() {
        let after = |lasts: Duration| Some(NOW + lasts);
        assert_eq!(end(NOW, None, None).unwrap(), None);
        assert_eq!(end(NOW, Some("1h30m"), None).unwrap(), after(Duration::from_secs(5_400)));
        assert_eq!(end(NOW, Some("366d"), None).unwrap(), after(*LASTS.end()));
        let at = |text| end(NOW, None, Some(text)).unwrap();
        assert_eq!(at("2026-03-01T10:30Z"), after(Duration::from_secs(3_600)));
        assert_eq!(at("2026-03-01T12:30:00+02:00"), after(Duration::from_secs(3_600)));
    }

    #[test]
    fn a_refused_end_names_its_field() {
        let refused = |lasts, until| {
            let problem = end(NOW, lasts, until).unwrap_err();
            (problem.code(), problem.all_faults()[0].field.clone())
        };
        for bad in ["0s", "999ms", "-2h", "367d", "soon", ""] {
            assert_eq!(refused(Some(bad), None), (ProblemCode::InvalidDuration, "for".to_owned()), "{bad}");
        }
        let bad_instants = [
            "2026-03-01T09:30:00Z",
            "2025-01-01T00:00:00Z",
            "2026-03-02",
            "2026-03-02T09:30",
            "2028-01-01T00:00Z",
            "2h",
        ];
        for bad in bad_instants {
            assert_eq!(refused(None, Some(bad)), (ProblemCode::InvalidTime, "until".to_owned()), "{bad}");
        }
        assert_eq!(
            refused(Some("2h"), Some("2026-03-01T10:30Z")),
            (ProblemCode::InvalidTime, "until".to_owned())
        );
    }
}
