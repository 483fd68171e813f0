//! Refused requests: one test per kind of bad request, over a real socket.

use longshore_server::listener::Limits;

use crate::support::Server;

#[tokio::test]
async fn bad_bodies_get_the_problem_that_fits() {
    let server = Server::start().await;
    let deep = format!("{{\"args\":{}{}}}", "[".repeat(1000), "]".repeat(1000));
    let long_value = format!(r#"{{"environment":{{"A":"{}"}}}}"#, "x".repeat(100 << 10));
    for (body, status, code) in [
        ("{", 400, "invalid_json"),
        (deep.as_str(), 400, "too_deep"),
        (r#"{"args":[],"args":[]}"#, 400, "duplicate_key"),
        (r#"{"priority":1e400}"#, 400, "invalid_json"),
        (r#"{"args":["\udc00"]}"#, 400, "invalid_json"),
        (r#"{"argz":[]}"#, 422, "unknown_field"),
        (r#"{"timeout":"5 parsecs"}"#, 422, "invalid_duration"),
        (r#"{"priority":9999}"#, 422, "out_of_range"),
        (r#"{"environment":{"A":"x\ny"}}"#, 422, "env_newline_unsupported"),
        (r#"{"environment":{"A":"x\u0000y"}}"#, 422, "nul_byte"),
        (long_value.as_str(), 422, "too_long"),
        (r#"{"labels":[]}"#, 422, "invalid_type"),
    ] {
        server.post("/api/jobs/resize", body).await.is_problem(status, code);
    }
    assert!(server.stand.world().jobs.is_empty());
}

#[tokio::test]
async fn an_argument_may_be_as_long_as_a_word_of_a_command_line() {
    let server = Server::start().await;
    let ask = async |bytes: usize| {
        let body = format!(r#"{{"args":["program","{}"]}}"#, "x".repeat(bytes));
        server.post("/api/jobs/resize", &body).await
    };
    assert_eq!(ask(131_071).await.status, 201);
    let problem = ask(131_072).await.is_problem(422, "too_long");
    assert_eq!(problem["field"], "args[1]");
    assert_eq!(server.stand.world().jobs.len(), 1);
}

#[tokio::test]
async fn an_unknown_name_is_answered_with_near_ones() {
    let server = Server::start().await;
    let problem = server.post("/api/jobs/resise", "").await.is_problem(404, "unknown_job");
    assert_eq!(problem["near"], serde_json::json!(["resize", "resize-all"]));
    assert_eq!(problem["hint"], "did you mean \"resize\"?");
    server.post("/api/jobs/off", "").await.is_problem(409, "definition_disabled");
}

#[tokio::test]
async fn no_value_that_may_be_secret_is_echoed() {
    let server = Server::start().await;
    for body in [
        r#"{"environment":{"A":123454321}}"#,
        r#"{"environment":{"A":"123454321\n"}}"#,
        r#"{"environment":{"A":"123454321\u0000"}}"#,
        r#"{"environment":{"A":"123454321}"#,
    ] {
        let answer = server.post("/api/jobs/resize", body).await;
        assert!(answer.status >= 400 && !answer.body.contains("123454321"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_body_needs_a_type_that_is_understood() {
    let server = Server::start().await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    server.ask("POST", "/api/jobs/resize", &form, "a=b").await.is_problem(415, "unsupported_media_type");
    server.ask("POST", "/api/jobs/resize", &[], "{}").await.is_problem(415, "unsupported_media_type");
    server.ask("POST", "/api/jobs", &form, "[]").await.is_problem(415, "unsupported_media_type");
    assert_eq!(server.ask("POST", "/api/jobs/resize", &form, "").await.status, 201);
}

#[tokio::test]
async fn bodies_beyond_their_limit_are_refused_before_they_are_read() {
    let server = Server::start().await;
    let head = |path: &str, length: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{length}\r\n\r\n"
        )
    };
    let one = server.say(head("/api/jobs/resize", "content-length: 1048577").as_bytes()).await;
    assert!(one.is_problem(413, "body_too_large")["detail"].as_str().unwrap().contains("1048576"));
    let many = server.say(head("/api/jobs", "content-length: 99999999").as_bytes()).await;
    many.is_problem(413, "body_too_large");
    let chunk = format!("100001\r\n{}\r\n", " ".repeat(0x10_0001));
    let unknown = format!("{}{chunk}", head("/api/jobs/resize", "transfer-encoding: chunked"));
    server.say(unknown.as_bytes()).await.is_problem(413, "body_too_large");
}

#[tokio::test]
async fn a_body_is_refused_where_none_is_taken() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    for path in [
        "/api/jobs/1/cancel",
        "/api/jobs/1/release",
        "/api/workers/1/uncordon",
        "/api/workers/2/forget",
        "/api/workers/1/stop-unmanaged",
    ] {
        for body in [" ", "{}", r#"{"args":["x"]}"#] {
            let problem = server.post(path, body).await.is_problem(413, "body_too_large");
            assert_eq!(problem["detail"], "this address takes no body", "{path}");
        }
    }
    assert_eq!(server.get("/api/jobs/1").await.json()["state"], "queued", "nothing was done");
    let empty = "POST /api/jobs/9/retry HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
        transfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    server.say(empty.as_bytes()).await.is_problem(404, "job_not_found");
}

#[tokio::test]
async fn unknown_paths_methods_and_types_have_different_problems() {
    let server = Server::start().await;
    for path in
        ["/nothing", "//api/jobs", "/api//jobs", "/api/jobs/", "/api/jobs/../../etc/passwd", "/%2e%2e/x"]
    {
        server.get(path).await.is_problem(404, "not_found");
    }
    server.get("/api/definitions/%2e%2e").await.is_problem(404, "unknown_job");
    server.get("/api/definitions/%00").await.is_problem(404, "unknown_job");
    server.get("/api/definitions/%ff").await.is_problem(400, "invalid_path");
    let wrong = server.ask("DELETE", "/api/jobs/1", &[], "").await;
    let told = wrong.is_problem(405, "method_not_allowed");
    assert_eq!(told["detail"], "this address does not take the method of this request");
    assert_eq!(told["hint"], "the header Allow names what it takes");
    assert_eq!(wrong.header("allow"), "POST,GET,HEAD,PATCH");
    server
        .ask("GET", "/api/jobs", &[("accept", "application/xml")], "")
        .await
        .is_problem(406, "not_acceptable");
    let long = format!("/api/jobs?name={}", "x".repeat(20 << 10));
    let told = server.get(&long).await.is_problem(414, "uri_too_long");
    assert!(told["hint"].as_str().is_some_and(|hint| hint.contains("\"ids\" in the body")), "{told}");
    let fat = "x".repeat(20 << 10);
    let told =
        server.ask("GET", "/api/jobs", &[("cookie", &fat)], "").await.is_problem(431, "headers_too_large");
    assert!(told["hint"].as_str().is_some_and(|hint| hint.contains("shorter headers")), "{told}");
    let told = server.get("/api/nothing").await.is_problem(404, "not_found");
    assert!(told["hint"].as_str().is_some_and(|hint| hint.contains("GET /openapi.json")), "{told}");
}

#[tokio::test]
async fn requests_that_can_be_understood_in_two_ways_end_the_connection() {
    let server = Server::start().await;
    let post = "POST /api/jobs/resize HTTP/1.1\r\nhost: localhost\r\n";
    for head in
        ["transfer-encoding: chunked\r\ncontent-length: 5", "content-length: 5\r\ntransfer-encoding: chunked"]
    {
        // A second request after it must not be answered.
        let text = format!("{post}{head}\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let answer = server.say(text.as_bytes()).await;
        assert_eq!(answer.header("connection"), "close", "{answer:?}");
        answer.is_problem(400, "invalid_request");
    }
    // Also if it comes along with another request.
    let first = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let text = format!("{first}{post}transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n");
    let answers = server.say(text.as_bytes()).await.body;
    assert!(answers.starts_with("ok\nHTTP/1.1 400 ") && answers.contains("invalid_request"), "{answers}");
    for head in ["content-length: 5\r\ncontent-length: 6", "x-a: b\r\n folded", "transfer-encoding: gzip"] {
        let text = format!("{post}{head}\r\n\r\nhelloGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let answer = server.say(text.as_bytes()).await;
        assert_eq!(answer.status, 400, "{head}: {answer:?}");
        assert!(!answer.body.contains("HTTP/1.1"), "{head}: {answer:?}");
    }
    assert!(server.stand.world().jobs.is_empty());
    assert_eq!(server.get("/healthz").await.status, 200, "the server goes on");
}

#[tokio::test]
async fn noise_is_no_request_and_too_many_headers_are_too_many() {
    let server = Server::start().await;
    assert_eq!(server.say(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await.status, 400);
    let with = async |count: usize| {
        let many: String = (0..count).map(|n| format!("x-{n}: 1\r\n")).collect();
        let head = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
        server.say(format!("{head}{many}\r\n").as_bytes()).await
    };
    assert_eq!(with(62).await.status, 200);
    for count in [63, 100] {
        with(count).await.is_problem(431, "headers_too_large");
    }
    let bare = with(200).await;
    assert_eq!((bare.status, bare.body.as_str()), (431, ""), "too many to be read at all");
}

#[tokio::test]
async fn foreign_hosts_and_sites_are_kept_out() {
    let server = Server::start().await;
    let rebound = [("host", "rebound.example")];
    server.ask("GET", "/api/jobs", &rebound, "").await.is_problem(421, "host_not_allowed");
    server.ask("POST", "/api/jobs/resize", &rebound, "").await.is_problem(421, "host_not_allowed");
    server.ask("GET", "/api/workers/connect", &rebound, "").await.is_problem(421, "host_not_allowed");
    let page = [("origin", "http://evil.example")];
    server.ask("POST", "/api/jobs/resize", &page, "").await.is_problem(403, "cross_site");
    let fetched = [("sec-fetch-site", "cross-site")];
    server.ask("POST", "/api/jobs/1/cancel", &fetched, "").await.is_problem(403, "cross_site");
    server.ask("GET", "/api/workers/connect", &page, "").await.is_problem(403, "cross_site");
    assert!(server.stand.world().jobs.is_empty());
    let own = [("origin", "http://localhost"), ("sec-fetch-site", "same-origin")];
    assert_eq!(server.ask("POST", "/api/jobs/resize", &own, "").await.status, 201);
    assert_eq!(server.ask("GET", "/healthz", &rebound, "").await.status, 200, "probes name any host");
}

#[tokio::test]
async fn a_parameter_that_is_not_known_is_refused_everywhere_and_nothing_is_done() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    for (method, path) in [
        ("POST", "/api/jobs/resize"),
        ("GET", "/api/jobs/1"),
        ("GET", "/api/jobs/1/explain"),
        ("POST", "/api/jobs/1/cancel"),
        ("POST", "/api/jobs/1/release"),
        ("POST", "/api/jobs/1/retry"),
        ("GET", "/api/jobs/1/logs"),
        ("GET", "/api/jobs"),
        ("POST", "/api/jobs"),
        ("GET", "/api/workers"),
        ("GET", "/api/workers/1"),
        ("PATCH", "/api/workers/1"),
        ("GET", "/api/workers/connect"),
        ("POST", "/api/workers/1/cordon"),
        ("POST", "/api/workers/1/drain"),
        ("POST", "/api/workers/1/stop-unmanaged"),
        ("POST", "/api/workers/1/reset"),
        ("POST", "/api/workers/2/forget"),
        ("GET", "/api/definitions"),
        ("GET", "/api/definitions/resize"),
        ("GET", "/api/definitions/reload"),
        ("POST", "/api/definitions/reload"),
        ("POST", "/api/definitions/plan"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/version"),
        ("GET", "/problems/busy"),
    ] {
        let refused = server.ask(method, &format!("{path}?grace=0s"), &[], "").await;
        assert_eq!(refused.is_problem(400, "invalid_query")["field"], "?grace", "{method} {path}");
        let bare = server.ask(method, &format!("{path}?"), &[], "").await;
        assert!(!bare.body.contains("\"invalid_query\""), "{method} {path}: {bare:?}");
    }
    server.post("/api/jobs/resize", "").await;
    server.ask("POST", "/api/jobs/2/cancel?grace=0s", &[], "").await.is_problem(400, "invalid_query");
    assert_eq!(server.get("/api/jobs/2").await.json()["state"], "queued");
}

#[tokio::test]
async fn parameters_that_do_not_go_together_are_refused() {
    let server = Server::start().await;
    let waiting = server.post("/api/jobs/resize?wait=30s&follow=1", "").await;
    assert_eq!(waiting.is_problem(400, "invalid_query")["field"], "?wait");
    assert!(server.stand.world().jobs.is_empty());
    server.post("/api/jobs/resize", "").await;
    let range = [("range", "bytes=0-9")];
    let both = server.ask("GET", "/api/jobs/1/logs?offset=5", &range, "").await;
    assert_eq!(both.is_problem(400, "invalid_query")["field"], "?offset");
    let text = server.get("/api/jobs/1/logs?encoding=base64").await;
    assert_eq!(text.is_problem(400, "invalid_query")["field"], "?encoding");
    let events = [("accept", "text/event-stream")];
    assert_eq!(server.ask("GET", "/api/jobs/1/logs?encoding=base64", &events, "").await.status, 200);
}

#[tokio::test]
async fn a_definition_may_be_called_like_a_part_of_an_address() {
    let server = Server::start().await;
    let json = [("accept", "application/json")];
    server.ask("GET", "/api/definitions/logs", &json, "").await.is_problem(404, "unknown_job");
    server.ask("POST", "/api/jobs/logs", &json, "").await.is_problem(404, "unknown_job");
    server.ask("GET", "/api/jobs/1/logs", &json, "").await.is_problem(406, "not_acceptable");
}

#[tokio::test]
async fn each_token_admits_only_its_own_role() {
    let guard = |access: longshore_server::auth::Access| access.api_token("people").worker_token("machines");
    let server = Server::with(guard, "", Limits::default()).await;
    let paths = [
        ("GET", "/api/jobs"),
        ("POST", "/api/jobs"),
        ("POST", "/api/jobs/resize"),
        ("GET", "/api/jobs/1"),
        ("POST", "/api/jobs/1/cancel"),
        ("POST", "/api/jobs/1/retry"),
        ("GET", "/api/jobs/1/logs"),
        ("GET", "/api/workers"),
        ("PATCH", "/api/workers/1"),
        ("POST", "/api/workers/1/drain"),
        ("GET", "/api/definitions"),
        ("GET", "/version"),
        ("GET", "/nothing"),
    ];
    let bearer = |token: &str| ("authorization".to_owned(), format!("Bearer {token}"));
    let ask = async |method: &str, path: &str, token: Option<&str>| {
        let header = token.map(bearer);
        let headers: Vec<(&str, &str)> =
            header.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        server.ask(method, path, &headers, "").await
    };
    for (method, path) in paths {
        let refused = ask(method, path, Some("machines")).await.is_problem(403, "forbidden");
        assert!(
            refused["hint"].as_str().is_some_and(|hint| hint.starts_with("use a token with the role ")),
            "{refused}"
        );
        assert!(![401, 403].contains(&ask(method, path, Some("people")).await.status), "{path}");
    }
    ask("GET", "/api/workers/connect", Some("people")).await.is_problem(403, "forbidden");
    assert_eq!(ask("GET", "/api/workers/connect", Some("machines")).await.status, 200);
    for open in ["/healthz", "/readyz", "/problems/invalid_token"] {
        assert_eq!(ask("GET", open, None).await.status, 200, "{open}");
    }
    let missing = ask("GET", "/api/jobs", None).await;
    let wrong = ask("GET", "/api/jobs", Some("peopl")).await;
    assert_eq!(missing.header("www-authenticate"), "Bearer");
    let missing = missing.is_problem(401, "invalid_token");
    let wrong = wrong.is_problem(401, "invalid_token");
    assert_eq!(missing["detail"], wrong["detail"], "nothing tells them apart");
    ask("GET", "/api/jobs?token=people", Some("people")).await.is_problem(400, "token_in_url");
    let elsewhere = [("host", "jobs.example"), ("authorization", "Bearer people")];
    assert_eq!(server.ask("GET", "/api/jobs", &elsewhere, "").await.status, 200);
}

#[tokio::test]
async fn an_address_that_guesses_tokens_is_locked_out_before_its_token_is_compared() {
    let server = Server::with(|access| access.api_token("people"), "", Limits::default()).await;
    let ask = async |token: &str| {
        server.ask("GET", "/api/jobs", &[("authorization", &format!("Bearer {token}"))], "").await
    };
    for _ in 0..50 {
        ask("misconfigured").await.is_problem(401, "invalid_token");
    }
    assert_eq!(ask("people").await.status, 200, "one wrong token that is repeated is no guess");
    for guess in 1..10 {
        ask(&format!("guess{guess}")).await.is_problem(401, "invalid_token");
    }
    let slowed = ask("guess").await;
    slowed.is_problem(429, "too_many_failures");
    assert!(!slowed.header("retry-after").is_empty());
    ask("people").await.is_problem(429, "too_many_failures");
    assert_eq!(server.get("/healthz").await.status, 200, "health checks need no token");
}

#[tokio::test]
async fn the_login_of_a_proxy_neither_ends_a_session_nor_counts_as_a_guess() {
    let server = Server::with(|access| access.api_token("people"), "", Limits::default()).await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let login = server.ask("POST", "/login", &form, "token=people&to=%2Fjobs").await;
    let cookie = login.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
    let (foreign, cookie) = (("authorization", "Basic YW5uOnB3"), ("cookie", cookie.as_str()));
    for _ in 0..12 {
        assert_eq!(server.ask("GET", "/jobs", &[foreign, cookie], "").await.status, 200);
        server.ask("GET", "/api/jobs", &[foreign], "").await.is_problem(401, "invalid_token");
        server.ask("GET", "/api/jobs", &[], "").await.is_problem(401, "invalid_token");
    }
}

#[tokio::test]
async fn every_answer_has_a_request_id_and_may_bring_its_own() {
    let server = Server::start().await;
    let one = server.get("/healthz").await.header("x-request-id").to_owned();
    let other = server.get("/healthz").await.header("x-request-id").to_owned();
    assert!(!one.is_empty() && one != other);
    let given = server.ask("GET", "/healthz", &[("x-request-id", "abc-1")], "").await;
    assert_eq!(given.header("x-request-id"), "abc-1");
    let junk = server.ask("GET", "/healthz", &[("x-request-id", "a b")], "").await;
    assert_ne!(junk.header("x-request-id"), "a b");
}

#[tokio::test]
async fn an_unreadable_store_is_a_5xx_that_hides_its_cause() {
    let server = Server::start().await;
    server.stand.world().unreadable = true;
    let answer = server.get("/api/jobs").await;
    answer.is_problem(503, "store_unavailable");
    assert!(!answer.header("retry-after").is_empty());
    assert!(!answer.body.contains("secret"), "{answer:?}");
}

#[tokio::test]
async fn everything_stands_under_the_base_path() {
    let server = Server::with(|access| access, "/jobs", Limits::default()).await;
    let made = server.ask("POST", "/jobs/api/jobs/resize", &[], "").await;
    assert_eq!((made.status, made.header("location")), (201, "/jobs/api/jobs/1"));
    let problem = server.get("/jobs/api/jobs/x").await.is_problem(400, "invalid_id");
    assert_eq!(problem["type"], "/jobs/problems/invalid_id");
    assert_eq!(server.get("/jobs/problems/invalid_id").await.status, 200);
    server.get("/api/jobs").await.is_problem(404, "not_found");
    server.get("/jobs/nothing").await.is_problem(404, "not_found");
}
