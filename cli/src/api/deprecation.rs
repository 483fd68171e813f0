//! A deprecation that the server announces, as one warning on standard error.

use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::header::{HeaderMap, LINK};

use crate::screen;

/// Set once this run has warned.
static HAS_WARNED: AtomicBool = AtomicBool::new(false);

/// Warns once, if an answer says that its request is deprecated.
pub(super) fn note(headers: &HeaderMap) {
    if let Some(text) = warning(headers)
        && !HAS_WARNED.swap(true, Ordering::Relaxed)
    {
        screen::note(&text);
    }
}

/// The headers `Deprecation` (RFC 9745), `Sunset` (RFC 8594) and `Link` in a sentence.
fn warning(headers: &HeaderMap) -> Option<String> {
    let since = headers.get("deprecation")?.to_str().ok()?.strip_prefix('@')?.parse().ok()?;
    let since = jiff::Timestamp::from_second(since).ok()?.strftime("%F");
    let sunset = headers.get("sunset").and_then(|sunset| sunset.to_str().ok());
    let end = sunset.map(|sunset| format!(", and ends on {sunset}")).unwrap_or_default();
    let links = headers.get_all(LINK).iter().filter_map(|link| link.to_str().ok());
    let page = links.flat_map(|link| link.split(',')).find_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        parameters.contains("rel=\"deprecation\"").then(|| format!("; see {target}"))
    });
    Some(format!(
        "warning: the server says that this request is deprecated since {since}{end}; upgrade this program{}",
        page.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_names_dates_and_page() {
        let mut headers = HeaderMap::new();
        assert_eq!(warning(&headers), None);
        headers.insert("deprecation", "@1793491200".parse().unwrap());
        assert_eq!(
            warning(&headers).unwrap(),
            "warning: the server says that this request is deprecated since 2026-11-01; upgrade this program"
        );
        headers.insert("sunset", "Sat, 31 Oct 2027 00:00:00 GMT".parse().unwrap());
        headers.append(LINK, "</api/jobs?cursor=1>; rel=\"next\"".parse().unwrap());
        headers.append(LINK, "<https://x.example/new>; rel=\"deprecation\"".parse().unwrap());
        assert!(
            warning(&headers)
                .unwrap()
                .contains("2026-11-01, and ends on Sat, 31 Oct 2027 00:00:00 GMT; upgrade this program; see https://x.example/new")
        );
        headers.insert("deprecation", "banana".parse().unwrap());
        assert_eq!(warning(&headers), None);
    }
}
