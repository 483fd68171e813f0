//! The parameters behind the question mark: each known, each at most once, each in range.

use std::time::Duration;

use axum::extract::{Query as Decoded, Request};
use axum::http::Uri;
use axum::middleware::Next;
use axum::response::Response;
use jiff::SpanRelativeTo;
use jiff::fmt::friendly::SpanParser;
use protocol::Timestamp;

use super::code::Code;
use super::problem::{Problem, shown};

/// The parameters of a request that nobody has asked for yet.
#[derive(Debug, Default)]
pub(super) struct Query {
    left: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl Query {
    /// # Errors
    /// `invalid_query` if they cannot be decoded.
    pub(super) fn of(uri: &Uri) -> Result<Self, Problem> {
        if uri.query().is_none_or(str::is_empty) {
            return Ok(Self::default());
        }
        let decoded = Decoded::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_| Problem::new(Code::InvalidQuery, "the query cannot be decoded"))?;
        Ok(Self { left: decoded.0, known: Vec::new() })
    }

    /// The text of a parameter.
    ///
    /// # Errors
    /// `invalid_query` if it is there twice.
    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        if self.left.is_empty() {
            return Ok(None);
        }
        self.known.push(name);
        let Some(index) = self.left.iter().position(|(given, _)| given == name) else { return Ok(None) };
        let value = self.left.swap_remove(index).1;
        if self.left.iter().any(|(given, _)| given == name) {
            return Err(wrong(name, "it is given twice"));
        }
        Ok(Some(value))
    }

    /// Whether a switch is on: `1`, `true` or nothing behind the name.
    ///
    /// # Errors
    /// `invalid_query` if it is something else.
    pub(super) fn switch(&mut self, name: &'static str) -> Result<bool, Problem> {
        match self.text(name)?.as_deref() {
            None | Some("0" | "false") => Ok(false),
            Some("" | "1" | "true") => Ok(true),
            Some(_) => Err(wrong(name, "it is 1 or 0")),
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// `invalid_query` if it is something else.
    pub(super) fn number(&mut self, name: &'static str) -> Result<Option<u64>, Problem> {
        self.text(name)?
            .map(|text| text.parse().map_err(|_| wrong(name, "it is a whole number from 0")))
            .transpose()
    }

    /// An instant, by RFC 3339 with its zone.
    ///
    /// # Errors
    /// `invalid_query` if it is something else.
    pub(super) fn instant(&mut self, name: &'static str) -> Result<Option<Timestamp>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        // A plus sign that nobody encoded arrives as a space.
        match text.replace(' ', "+").parse::<jiff::Timestamp>() {
            Ok(instant) => Ok(Some(Timestamp(instant.as_millisecond()))),
            Err(_) => Err(wrong(name, "it is an instant with its zone, such as 2026-03-01T09:30:00Z")),
        }
    }

    /// A duration that is at most `max`.
    ///
    /// # Errors
    /// `invalid_query` if it is something else.
    pub(super) fn duration(
        &mut self,
        name: &'static str,
        max: Duration,
    ) -> Result<Option<Duration>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match duration(&text) {
            Some(duration) if duration <= max => Ok(Some(duration)),
            _ => Err(wrong(name, &format!("it is a duration such as 30s, at most {}s", max.as_secs()))),
        }
    }

    /// Says that all parameters have been asked for.
    ///
    /// # Errors
    /// `invalid_query` if there is one that nobody asked for.
    pub(super) fn finish(self) -> Result<(), Problem> {
        let Some((name, _)) = self.left.first() else { return Ok(()) };
        let near = nearest(name, self.known.iter().copied());
        let problem =
            Problem::new(Code::InvalidQuery, format!("there is no parameter \"{}\" here", shown(name)))
                .field(format!("?{}", shown(name)));
        Err(if near.is_empty() { problem } else { problem.near(near) })
    }
}

/// Lets requests without parameters through: in front of everything that takes none.
///
/// # Errors
/// `invalid_query`.
pub(super) async fn none(request: Request, next: Next) -> Result<Response, Problem> {
    Query::of(request.uri())?.finish()?;
    Ok(next.run(request).await)
}

/// A parameter's value is not what it should be.
pub(super) fn wrong(name: &str, detail: &str) -> Problem {
    Problem::new(Code::InvalidQuery, detail).field(format!("?{name}"))
}

/// `90s`, `1h30m`, `2 days`, in whole milliseconds.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let span = SpanParser::new().parse_span(text).ok()?;
    let exact = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    let exact = Duration::try_from(exact).ok()?;
    Some(Duration::new(exact.as_secs(), exact.subsec_millis() * 1_000_000))
}

/// Up to three names that somebody who wrote `name` may have meant, the nearest first.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    // The search costs time and memory by the length of the name, and nobody mistypes a short one so.
    if name.len() > NAME_BYTES_MAX {
        return Vec::new();
    }
    let mut near: Vec<(f64, &str)> = known
        .map(|known| (strsim::jaro_winkler(name, known), known))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    near.into_iter().take(NEAR_MAX).map(|(_, known)| known.to_owned()).collect()
}

/// Below it a suggestion confuses more than it helps.
const LIKENESS_MIN: f64 = 0.75;
const NEAR_MAX: usize = 3;
/// Longer than any name that there is: those of definitions have 63 bytes at most.
const NAME_BYTES_MAX: usize = 64;

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
        assert_eq!(unknown.finish().unwrap_err().code(), Code::InvalidQuery);
    }

    #[test]
    fn switches_numbers_durations_and_instants_are_read() {
        let mut query = query("follow&tail=5&wait=1m30s&since=2026-03-01T10:30:00%2B01:00");
        assert!(query.switch("follow").unwrap());
        assert_eq!(query.number("tail").unwrap(), Some(5));
        assert_eq!(query.duration("wait", Duration::from_secs(600)).unwrap(), Some(Duration::from_secs(90)));
        assert_eq!(query.instant("since").unwrap(), Some(Timestamp(1_772_357_400_000)));
        assert!(query.finish().is_ok());
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        assert!(query("w=11m").duration("w", Duration::from_secs(600)).is_err());
        assert!(query("w=-1s").duration("w", Duration::from_secs(600)).is_err());
        assert!(query("n=-1").number("n").is_err());
        assert!(query("t=2026-03-01").instant("t").is_err());
        assert!(query("f=maybe").switch("f").is_err());
    }

    #[test]
    fn near_names_come_nearest_first_and_far_ones_not_at_all() {
        let known = ["resize", "resize-all", "backup", "report"];
        assert_eq!(nearest("resise", known.into_iter()), ["resize", "resize-all"]);
        assert_eq!(nearest("zzz", known.into_iter()), Vec::<String>::new());
        let long = format!("resize{}", "-".repeat(58));
        assert_eq!(nearest(&long, [&*long].into_iter()), [&*long]);
        let longer = format!("{long}-");
        assert_eq!(nearest(&longer, [&*longer].into_iter()), Vec::<String>::new(), "nobody looks for it");
    }
}
