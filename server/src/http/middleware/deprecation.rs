//! Deprecations: said in every answer that they concern, by the headers `Deprecation` (RFC 9745), `Sunset` (RFC 8594) and a `Link` to the page
//! that tells what to use instead.
//!
//! [`TABLE`] is the one place. The description of the API follows from it. A table without entries costs a request nothing.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;

/// All that is deprecated now.
pub(crate) static TABLE: &[Deprecated] = &[];

/// A deprecated endpoint, or a deprecated query parameter of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deprecated {
    /// The method, such as `GET`.
    pub(crate) method: &'static str,
    /// The path as the description of the API has it.
    pub(crate) path: &'static str,
    /// The query parameter; `None` deprecates the endpoint.
    pub(crate) parameter: Option<&'static str>,
    /// Since when, seconds since 1970.
    pub(crate) since: u32,
    /// The end, as an HTTP date; `None` while it is not decided.
    pub(crate) sunset: Option<&'static str>,
    /// The URL of the page that tells what to use instead.
    pub(crate) page: &'static str,
}

/// Says the deprecations of a table in the answers of a router.
pub(crate) fn announce<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    table: &'static [Deprecated],
) -> Router<S> {
    if table.is_empty() {
        return router;
    }
    router.layer(from_fn_with_state(table, serve))
}

async fn serve(State(table): State<&'static [Deprecated]>, request: Request, next: Next) -> Response {
    let found = find(table, &request);
    let mut response = next.run(request).await;
    for deprecated in found {
        insert(response.headers_mut(), deprecated);
    }
    response
}

/// Returns true if the table has this endpoint, or with a name this parameter of it.
pub(crate) fn is_deprecated(table: &[Deprecated], method: &str, path: &str, parameter: Option<&str>) -> bool {
    table.iter().any(|it| it.method == method && it.path == path && it.parameter == parameter)
}

/// The entries that a request uses.
fn find(table: &'static [Deprecated], request: &Request) -> Vec<&'static Deprecated> {
    let path = request.uri().path();
    let query = request.uri().query().unwrap_or_default();
    let uses = |name: &str| form_urlencoded::parse(query.as_bytes()).any(|(given, _)| given == name);
    let concerns = |it: &&Deprecated| {
        it.method == request.method().as_str() && fits(path, it.path) && it.parameter.is_none_or(uses)
    };
    table.iter().filter(concerns).collect()
}

/// Returns true if the path is one of those that the description means. A part in braces is any part.
fn fits(path: &str, described: &str) -> bool {
    let (mut given, mut wanted) = (path.split('/'), described.split('/'));
    loop {
        match (given.next(), wanted.next()) {
            (None, None) => return true,
            (Some(given), Some(wanted)) if wanted.starts_with('{') || given == wanted => {}
            _ => return false,
        }
    }
}

/// Adds the headers. The first of several deprecations gives the dates; each has its link.
fn insert(headers: &mut HeaderMap, deprecated: &Deprecated) {
    let date = HeaderValue::try_from(format!("@{}", deprecated.since));
    let link = HeaderValue::try_from(format!("<{}>; rel=\"deprecation\"", deprecated.page));
    if let Ok(date) = date {
        headers.entry(DEPRECATION).or_insert(date);
    }
    if let Ok(link) = link {
        headers.append(header::LINK, link);
    }
    if let Some(sunset) = deprecated.sunset {
        headers.entry(SUNSET).or_insert(HeaderValue::from_static(sunset));
    }
}

const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const SUNSET: HeaderName = HeaderName::from_static("sunset");

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    static SOME: &[Deprecated] = &[
        Deprecated {
            method: "GET",
            path: "/api/old/{id}",
            parameter: None,
            since: 1_793_491_200,
            sunset: Some("Sat, 31 Oct 2027 00:00:00 GMT"),
            page: "https://longshore.example/new",
        },
        Deprecated {
            method: "GET",
            path: "/api/jobs",
            parameter: Some("wide"),
            since: 1_793_491_200,
            sunset: None,
            page: "https://longshore.example/narrow",
        },
    ];

    async fn headers(base: &str, method: &str, uri: &str) -> [Option<String>; 3] {
        let routes = Router::new()
            .route("/api/old/{name}", get(|| async { "old" }).post(|| async { "made" }))
            .route("/api/jobs", get(|| async { ([(header::LINK, "</next>; rel=\"next\"")], "jobs") }));
        let routes = announce(routes, SOME);
        let router = if base.is_empty() { routes } else { Router::new().nest(base, routes) };
        let request =
            Request::builder().method(method).uri(format!("{base}{uri}")).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let all = |name: HeaderName| {
            let values = response.headers().get_all(name).iter().map(|value| value.to_str().unwrap());
            let values: Vec<&str> = values.collect();
            (!values.is_empty()).then(|| values.join(", "))
        };
        [all(DEPRECATION), all(SUNSET), all(header::LINK)]
    }

    #[tokio::test]
    async fn a_deprecated_endpoint_says_so_in_each_answer() {
        let expected = [
            Some("@1793491200".to_owned()),
            Some("Sat, 31 Oct 2027 00:00:00 GMT".to_owned()),
            Some("<https://longshore.example/new>; rel=\"deprecation\"".to_owned()),
        ];
        for base in ["", "/longshore"] {
            assert_eq!(headers(base, "GET", "/api/old/7").await, expected, "{base}");
        }
        assert_eq!(headers("", "POST", "/api/old/7").await, [None, None, None], "another method");
    }

    #[tokio::test]
    async fn a_deprecated_parameter_concerns_only_requests_that_use_it() {
        let next = "</next>; rel=\"next\"";
        assert_eq!(headers("", "GET", "/api/jobs?limit=1").await, [None, None, Some(next.to_owned())]);
        let link = format!("{next}, <https://longshore.example/narrow>; rel=\"deprecation\"");
        assert_eq!(
            headers("", "GET", "/api/jobs?limit=1&wide=1").await,
            [Some("@1793491200".to_owned()), None, Some(link)]
        );
    }
}
