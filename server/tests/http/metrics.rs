//! The formats of `/metrics`.

use std::collections::BTreeSet;

use crate::support::Server;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The names of all samples. Requests are counted meanwhile, so those about them are left out.
fn samples(body: &str) -> BTreeSet<String> {
    let lines = body.lines().filter(|line| !line.starts_with('#') && !line.contains("http_request"));
    lines.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect()
}

#[tokio::test]
async fn open_metrics_are_answered_to_a_client_that_asks_for_them() {
    let server = Server::start().await;
    let mut known = BTreeSet::new();
    for (accept, expected) in [
        (None, TEXT),
        (Some("*/*"), TEXT),
        (Some("text/plain"), TEXT),
        (Some("application/openmetrics-text"), OPEN_METRICS),
        (Some("application/*"), OPEN_METRICS),
        (Some("text/plain;q=0, */*"), OPEN_METRICS),
        (Some("application/*, text/*;q=0.1"), TEXT),
        // As Prometheus asks, and as it asks if the older format is its first choice.
        (
            Some("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"),
            OPEN_METRICS,
        ),
        (
            Some("text/plain;version=0.0.4;q=0.5,application/openmetrics-text;version=1.0.0;q=0.4,*/*;q=0.2"),
            TEXT,
        ),
    ] {
        let headers: Vec<_> = accept.map(|accept| ("accept", accept)).into_iter().collect();
        let answer = server.ask("GET", "/metrics", &headers, "").await;
        assert_eq!(answer.header("content-type"), expected, "{accept:?}");
        assert_eq!(answer.header("vary"), "accept", "{accept:?}");
        let described = match expected {
            OPEN_METRICS => {
                ["# TYPE longshore_build info", "# TYPE longshore_attempts_ended counter", "# EOF"]
            }
            _ => [
                "# TYPE longshore_build_info gauge",
                "# TYPE longshore_attempts_ended_total counter",
                "longshore_jobs_live 0",
            ],
        };
        for line in described {
            assert!(answer.body.lines().any(|it| it == line), "{accept:?} lacks {line}: {}", answer.body);
        }
        assert_eq!(answer.body.ends_with("# EOF\n"), expected == OPEN_METRICS);
        known.insert(samples(&answer.body));
    }
    // The worker of the stand-in has one.
    let body = server.get("/metrics").await.body;
    assert!(body.lines().any(|it| it == "longshore_attempts_unmanaged 1"), "{body}");
    assert_eq!(known.len(), 1, "both formats have the same samples: {known:?}");
    let other = server.ask("GET", "/metrics", &[("accept", "application/xml")], "").await;
    let told = other.is_problem(406, "not_acceptable");
    assert_eq!(told["detail"], "the answer is text/plain or application/openmetrics-text");
}
