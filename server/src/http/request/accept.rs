//! The header `Accept`: which types of an answer a client takes.

use axum::http::{HeaderMap, header};

/// True if a client accepts this type. Weights are not compared, except for zero.
pub(crate) fn accepts(headers: &HeaderMap, offer: &str) -> bool {
    let kind = offer.split('/').next().unwrap_or_default();
    let mut any = false;
    for value in headers.get_all(header::ACCEPT) {
        any = true;
        let Ok(value) = value.to_str() else { continue };
        for range in value.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let refused = parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
            let matches = name == "*/*"
                || name.eq_ignore_ascii_case(offer)
                || name.strip_suffix("/*").is_some_and(|name| name.eq_ignore_ascii_case(kind));
            if matches && !refused {
                return true;
            }
        }
    }
    !any
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
}
