//! The header `Accept`: which types of an answer a client takes.

use axum::http::{HeaderMap, header};

/// True if a client accepts this type. The most specific range that matches decides (RFC 9110, 12.5.1). Parameters of a range are ignored,
/// except for its weight.
pub(crate) fn accepts(headers: &HeaderMap, offer: &str) -> bool {
    match decisive_range(headers, offer) {
        Some((_, weight)) => weight > 0,
        None => !headers.contains_key(header::ACCEPT),
    }
}

/// True if a client takes this type, and either does not take the other one, or names this one and weighs it at least as much.
pub(crate) fn prefers(headers: &HeaderMap, offer: &str, other: &str) -> bool {
    let other = decisive_range(headers, other).map_or(0, |(_, weight)| weight);
    decisive_range(headers, offer).is_some_and(|(specificity, weight)| {
        weight > 0 && (other == 0 || (specificity == Specificity::Type && weight >= other))
    })
}

/// The most specific range that matches the type, with its weight in thousandths. Of equal ranges, the one with the most weight.
fn decisive_range(headers: &HeaderMap, offer: &str) -> Option<(Specificity, u16)> {
    let kind = offer.split('/').next().unwrap_or_default();
    let mut decisive = None;
    for value in headers.get_all(header::ACCEPT) {
        let Ok(value) = value.to_str() else { continue };
        for range in value.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let specificity = match name.strip_suffix("/*") {
                _ if name.eq_ignore_ascii_case(offer) => Specificity::Type,
                Some(family) if family.eq_ignore_ascii_case(kind) => Specificity::Family,
                Some("*") => Specificity::Any,
                _ => continue,
            };
            decisive = decisive.max(Some((specificity, parts.find_map(weight).unwrap_or(WEIGHT_MAX))));
        }
    }
    decisive
}

/// How exactly a range names a type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Specificity {
    /// `*/*`
    Any,
    /// `text/*`
    Family,
    /// `text/plain`
    Type,
}

/// The weight of a parameter such as `q=0.5` or `Q=0`, in thousandths; none of other parameters.
fn weight(parameter: &str) -> Option<u16> {
    let (_, weight) = parameter.split_once('=').filter(|(name, _)| name.eq_ignore_ascii_case("q"))?;
    let weight = weight.parse::<f32>().ok().filter(|weight| (0.0..=1.0).contains(weight))?;
    // At most a thousand, and never negative.
    Some((weight * f32::from(WEIGHT_MAX)).round() as u16)
}

const WEIGHT_MAX: u16 = 1_000;

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn accept(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn a_request_without_accept_takes_any_type() {
        assert!(accepts(&HeaderMap::new(), "application/json"));
    }

    #[test]
    fn types_match_by_name_family_or_star() {
        for value in ["*/*", "application/*", "text/html, application/JSON;q=0.5"] {
            assert!(accepts(&accept(value), "application/json"), "{value}");
        }
        for value in ["application/xml", "application/json;q=0", "text/*"] {
            assert!(!accepts(&accept(value), "application/json"), "{value}");
        }
    }

    #[test]
    fn the_most_specific_range_decides_in_any_order() {
        for value in [
            "application/json;q=0, */*",
            "*/*, application/json;q=0",
            "application/*;q=0, */*",
            "application/json;q=0, application/*",
        ] {
            assert!(!accepts(&accept(value), "application/json"), "{value}");
        }
        for value in [
            "application/json, */*;q=0",
            "*/*;q=0, application/*",
            "application/*;q=0, application/json;q=0.1",
            "application/json;q=0, application/json",
        ] {
            assert!(accepts(&accept(value), "application/json"), "{value}");
        }
        let mut lines = accept("*/*");
        lines.append(header::ACCEPT, HeaderValue::from_static("application/json;q=0"));
        assert!(!accepts(&lines, "application/json"), "several lines are one list");
        assert!(accepts(&lines, "text/plain"));
    }

    #[test]
    fn each_way_of_writing_a_zero_weight_refuses() {
        for weight in ["q=0", "Q=0", "q=0.", "q=0.0", "q=0.000", "profile=x; q=0"] {
            let value = format!("application/json; {weight}");
            assert!(!accepts(&accept(&value), "application/json"), "{value}");
        }
        for weight in ["q=0.001", "q=1", "Q=0.5", "q=none", "x=0"] {
            let value = format!("application/json; {weight}");
            assert!(accepts(&accept(&value), "application/json"), "{value}");
        }
    }

    #[test]
    fn a_type_is_preferred_if_it_is_named_and_weighs_as_much_or_alone_is_taken() {
        for (value, is_preferred) in [
            ("a/open", true),
            ("a/open;version=1.0.0;q=0.5, text/plain;version=0.0.4;q=0.3, */*;q=0.2", true),
            ("text/plain;q=0.5, a/open;q=0.5", true),
            ("text/plain;q=0.6, a/open;q=0.5", false),
            ("a/open;q=0.5, */*", false),
            ("a/open;q=0", false),
            ("*/*", false),
            ("a/*", true),
            ("a/*;q=0, text/plain;q=0", false),
            ("text/plain;q=0, */*", true),
            ("a/*, text/*;q=0.1", false),
            ("text/plain", false),
        ] {
            assert_eq!(prefers(&accept(value), "a/open", "text/plain"), is_preferred, "{value}");
        }
        assert!(!prefers(&HeaderMap::new(), "a/open", "text/plain"));
    }
}
