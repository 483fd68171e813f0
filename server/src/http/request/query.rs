//! Query parameters: each known, at most once, and in range.

use std::time::Duration;

use axum::extract::{Query as Decoded, Request};
use axum::http::Uri;
use axum::middleware::Next;
use axum::response::Response;
use jiff::SpanRelativeTo;
use jiff::civil::Date;
use jiff::fmt::friendly::SpanParser;
use jiff::tz::TimeZone;
use protocol::Timestamp;

use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
pub(crate) use crate::near::nearest;

/// The query parameters that were not read yet.
#[derive(Debug, Default)]
pub(crate) struct Query {
    left: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl Query {
    /// # Errors
    /// `invalid_query` if they cannot be decoded.
    pub(crate) fn of(uri: &Uri) -> Result<Self, Problem> {
        Self::pairs(uri).map(Self::new)
    }

    /// The parameters of decoded pairs.
    pub(crate) const fn new(pairs: Vec<(String, String)>) -> Self {
        Self { left: pairs, known: Vec::new() }
    }

    /// The decoded pairs of an address, in order.
    ///
    /// # Errors
    /// `invalid_query` if they cannot be decoded.
    pub(crate) fn pairs(uri: &Uri) -> Result<Vec<(String, String)>, Problem> {
        if uri.query().is_none_or(str::is_empty) {
            return Ok(Vec::new());
        }
        let decoded = Decoded::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_| Problem::new(ProblemCode::InvalidQuery, "the query cannot be decoded"))?;
        Ok(decoded.0)
    }

    /// Reads a parameter as text.
    ///
    /// # Errors
    /// `invalid_query` if it is given twice.
    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        if self.left.is_empty() {
            return Ok(None);
        }
        self.known.push(name);
        let Some(index) = self.left.iter().position(|(given, _)| given == name) else { return Ok(None) };
        let value = self.left.swap_remove(index).1;
        if self.left.iter().any(|(given, _)| given == name) {
            return Err(invalid_query(name, "it is given twice"));
        }
        Ok(Some(value))
    }

    /// Reads a flag: on for `1`, `true` or an empty value.
    ///
    /// # Errors
    /// `invalid_query` for another value.
    pub(crate) fn switch(&mut self, name: &'static str) -> Result<bool, Problem> {
        match self.text(name)?.as_deref() {
            None | Some("0" | "false") => Ok(false),
            Some("" | "1" | "true") => Ok(true),
            Some(_) => Err(invalid_query(name, "it is 1 or 0")),
        }
    }

    /// Reads a whole number.
    ///
    /// # Errors
    /// `invalid_query` for another value.
    pub(crate) fn number(&mut self, name: &'static str) -> Result<Option<u64>, Problem> {
        self.text(name)?
            .map(|text| text.parse().map_err(|_| invalid_query(name, "it is a whole number from 0")))
            .transpose()
    }

    /// Reads an instant, or a date whose zone the caller knows.
    ///
    /// # Errors
    /// `invalid_query` for another value.
    pub(crate) fn moment(&mut self, name: &'static str) -> Result<Option<Moment>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let fault = || {
            invalid_query(
                name,
                "it is a date, such as 2026-03-01, or an instant with its zone, such as 2026-03-01T09:30:00Z",
            )
        };
        let date = Date::strptime("%Y-%m-%d", &text).ok().map(Moment::Date);
        date.or_else(|| instant(&text).map(Moment::Instant)).map(Some).ok_or_else(fault)
    }

    /// Reads the beginning of a span of time: an instant, or a date, which is its midnight in UTC.
    ///
    /// # Errors
    /// `invalid_query` for another value.
    pub(crate) fn since(&mut self, name: &'static str) -> Result<Option<Timestamp>, Problem> {
        self.bound(name, Some)
    }

    /// Reads the end of a span of time, which does not belong to it: an instant, or a date, the whole of which in UTC lies before the end.
    ///
    /// # Errors
    /// `invalid_query` for another value.
    pub(crate) fn until(&mut self, name: &'static str) -> Result<Option<Timestamp>, Problem> {
        self.bound(name, |date| date.tomorrow().ok())
    }

    fn bound(
        &mut self,
        name: &'static str,
        midnight_of: impl Fn(Date) -> Option<Date>,
    ) -> Result<Option<Timestamp>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let midnight = |text: &str| {
            let date = midnight_of(Date::strptime("%Y-%m-%d", text).ok()?)?;
            let midnight = TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok()?;
            Some(Timestamp(midnight.as_millisecond()))
        };
        let fault = || {
            invalid_query(
                name,
                "it is a date in UTC such as 2026-03-01, or an instant with its zone such as 2026-03-01T09:30:00Z",
            )
        };
        instant(&text).or_else(|| midnight(&text)).map(Some).ok_or_else(fault)
    }

    /// Reads a duration of at most `max`.
    ///
    /// # Errors
    /// `invalid_query` for another value.
    pub(crate) fn duration(
        &mut self,
        name: &'static str,
        max: Duration,
    ) -> Result<Option<Duration>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match duration(&text) {
            Some(duration) if duration <= max => Ok(Some(duration)),
            _ => {
                Err(invalid_query(name, &format!("it is a duration such as 30s, at most {}s", max.as_secs())))
            }
        }
    }

    /// Reads `wait`: how long the answer may wait for an end.
    ///
    /// # Errors
    /// `invalid_query` for another value.
    pub(crate) fn wait(&mut self) -> Result<Option<Duration>, Problem> {
        self.duration("wait", WAIT_MAX)
    }

    /// Refuses parameters that were not read.
    ///
    /// # Errors
    /// `invalid_query` if one is left.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        let Some((name, _)) = self.left.first() else { return Ok(()) };
        let near = nearest(name, self.known.iter().copied());
        let problem = Problem::new(
            ProblemCode::InvalidQuery,
            format!("there is no parameter \"{}\" here", excerpt(name)),
        )
        .field(format!("?{}", excerpt(name)));
        Err(if near.is_empty() { problem } else { problem.near(near) })
    }
}

/// Proxies cut longer connections.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Middleware of paths without parameters.
///
/// # Errors
/// `invalid_query` if there is one.
pub(crate) async fn none(request: Request, next: Next) -> Result<Response, Problem> {
    Query::of(request.uri())?.finish()?;
    Ok(next.run(request).await)
}

/// A date, or an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Date(Date),
    Instant(Timestamp),
}

/// Parses an instant with its zone.
fn instant(text: &str) -> Option<Timestamp> {
    // A plus sign that was not encoded arrives as a space: the last one, because a space may also stand between date and time.
    let with_plus = || {
        let (before, after) = text.rsplit_once(' ')?;
        format!("{before}+{after}").parse::<jiff::Timestamp>().ok()
    };
    let instant = text.parse::<jiff::Timestamp>().ok().or_else(with_plus)?;
    Some(Timestamp(instant.as_millisecond()))
}

/// The query of these pairs.
pub(crate) fn encode<'p>(pairs: impl IntoIterator<Item = (&'p str, &'p str)>) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// The problem `invalid_query` of a parameter.
pub(crate) fn invalid_query(name: &str, detail: &str) -> Problem {
    Problem::new(ProblemCode::InvalidQuery, detail).field(format!("?{name}"))
}

/// Parses `90s`, `1h30m`, `2 days`, in whole milliseconds.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let span = SpanParser::new().parse_span(text).ok()?;
    let exact = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    let exact = Duration::try_from(exact).ok()?;
    Some(Duration::new(exact.as_secs(), exact.subsec_millis() * 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        Query::of(&format!("/x?{text}").parse().unwrap()).unwrap()
    }

    #[test]
    fn a_parameter_that_is_given_twice_or_unknown_is_refused() {
        assert!(query("a=1&a=2").text("a").is_err());
        let mut unknown = query("limti=5");
        assert_eq!(unknown.number("limit").unwrap(), None);
        assert_eq!(unknown.finish().unwrap_err().code(), ProblemCode::InvalidQuery);
    }

    #[test]
    fn switches_numbers_durations_and_instants_are_read() {
        let mut query = query("follow&tail=5&wait=1m30s&since=2026-03-01T10:30:00%2B01:00");
        assert!(query.switch("follow").unwrap());
        assert_eq!(query.number("tail").unwrap(), Some(5));
        assert_eq!(query.duration("wait", Duration::from_secs(600)).unwrap(), Some(Duration::from_secs(90)));
        assert_eq!(query.moment("since").unwrap(), Some(Moment::Instant(Timestamp(1_772_357_400_000))));
        assert!(query.finish().is_ok());
    }

    #[test]
    fn an_instant_may_have_spaces_and_a_plus_sign_that_was_not_encoded() {
        for text in [
            "2026-03-01%2009:30:00Z",
            "2026-03-01+09:30:00Z",
            "2026-03-01T10:30:00+01:00",
            "2026-03-01%2010:30:00%2B01:00",
            "2026-03-01%2010:30:00+01:00",
        ] {
            let instant = query(&format!("since={text}")).moment("since").unwrap();
            assert_eq!(instant, Some(Moment::Instant(Timestamp(1_772_357_400_000))), "{text}");
        }
    }

    #[test]
    fn a_date_is_a_whole_day_of_a_span() {
        let read = |text: &str| {
            let mut query = query(&format!("since={text}&until={text}"));
            (query.since("since").ok().flatten(), query.until("until").ok().flatten())
        };
        let midnight = 1_772_323_200_000;
        let day = (Some(Timestamp(midnight)), Some(Timestamp(midnight + 86_400_000)));
        assert_eq!(read("2026-03-01"), day);
        let instant = Some(Timestamp(midnight + 34_200_000));
        assert_eq!(read("2026-03-01T09:30:00Z"), (instant, instant));
        for wrong in ["2026-02-30", "2026-03", "01.03.2026", "2026-03-01T09:30", "2026-03-01Z", "today"] {
            assert_eq!(read(wrong), (None, None), "{wrong}");
        }
        assert_eq!(read("9999-12-31").1, None, "no calendar has the day after it");
    }

    #[test]
    fn a_value_out_of_range_is_refused() {
        assert!(query("w=11m").duration("w", Duration::from_secs(600)).is_err());
        assert!(query("w=-1s").duration("w", Duration::from_secs(600)).is_err());
        assert!(query("n=-1").number("n").is_err());
        assert!(query("t=2026-03").moment("t").is_err());
        assert!(query("f=maybe").switch("f").is_err());
    }
}
