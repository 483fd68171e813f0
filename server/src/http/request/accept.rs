//! The header `Accept`: which types of an answer a client takes.

use axum::http::{HeaderMap, header};

/// True if a client accepts this type. The most specific range that matches decides (RFC 9110, 12.5.1). Weights are not compared, except for
/// zero. Parameters of a range are ignored.
pub(crate) fn accepts(headers: &HeaderMap, offer: &str) -> bool {
    let kind = offer.split('/').next().unwrap_or_default();
    let mut any = false;
    // The most specific match so far. Of equal ranges, one that accepts decides.
    let mut decisive = None;
    for value in headers.get_all(header::ACCEPT) {
        any = true;
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
            decisive = decisive.max(Some((specificity, !parts.any(is_zero_weight))));
        }
    }
    decisive.map_or(!any, |(_, is_accepted)| is_accepted)
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

/// True for a parameter such as `q=0` or `Q=0.0`.
fn is_zero_weight(parameter: &str) -> bool {
    let weight = parameter.split_once('=').filter(|(name, _)| name.eq_ignore_ascii_case("q"));
    weight.is_some_and(|(_, weight)| weight.parse() == Ok(0.0))
}

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
}
