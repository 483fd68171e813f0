//! Lists, bars, times and accounts of the dashboard over real HTTP.

use longshore_server::listener::Limits;
use scheduler::job::State;

use crate::support::Server;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn all_say(page: &str, texts: &[&str]) {
    for text in texts {
        assert!(page.contains(text), "no {text:?} in {page}");
    }
}

#[tokio::test]
async fn lists_of_jobs_take_dates() {
    let server = Server::start().await;
    for _ in 0..2 {
        server.post("/api/jobs/resize", "").await;
    }
    server.stand.world().end(1, State::Failed, 1);
    let ended = server.get("/api/jobs/1").await.json()["ended_at"].as_str().unwrap()[..10].to_owned();
    let ids = async |query: &str| {
        let answer = server.get(&format!("/api/jobs?{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json().as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&format!("ended_since={ended}&ended_until={ended}")).await, [1], "the whole day");
    assert_eq!(ids("ended_since=1970-01-02").await, Vec::<u64>::new());
    for name in ["since", "until", "accepted_since", "accepted_until", "ended_since", "ended_until"] {
        let problem =
            server.get(&format!("/api/jobs?{name}=28.11.2026")).await.is_problem(400, "invalid_query");
        assert_eq!(problem["field"], format!("?{name}"), "{problem}");
    }
    let page = server.get(&format!("/jobs?until=2026-11-28&ended_since={ended}&state=failed")).await;
    assert_eq!(page.status, 200, "{page:?}");
    all_say(
        &page.body,
        &[
            "/jobs/1\"",
            "name=\"until\" value=\"2026-11-28\"",
            &format!("<input type=\"hidden\" name=\"ended_since\" value=\"{ended}\">"),
            &format!("Jobs that ended from {ended}."),
        ],
    );
}

#[tokio::test]
async fn a_faulty_filter_leaves_the_others_as_they_are() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    let refused = server.get("/jobs?state=failed&name=resize&since=yesterday&batch=7").await;
    assert_eq!((refused.status, refused.header("content-type")), (400, "text/html; charset=utf-8"));
    all_say(
        &refused.body,
        &[
            "<option value=\"failed\" selected>",
            "name=\"name\" value=\"resize\"",
            "name=\"since\" value=\"yesterday\" placeholder=\"2026-01-31\" aria-invalid=\"true\"",
            "name=\"batch\" value=\"7\"",
            "role=\"alert\"",
            "since: it is a date in UTC",
        ],
    );
    assert!(!refused.body.contains("No job fits"), "{}", refused.body);
    let refused = server.get("/jobs?name=nowhere&worker=w1").await;
    assert_eq!(refused.status, 422, "{refused:?}");
    all_say(&refused.body, &["name=\"worker\" value=\"w1\"", "no definition and no job has the name"]);
    let refused = server.get("/logs/search?q=x&since=soon&ignore_case=1").await;
    assert_eq!(refused.status, 400, "{refused:?}");
    all_say(
        &refused.body,
        &["name=\"q\" type=\"search\" value=\"x\"", "value=\"1\" checked", "since: it is a date in UTC"],
    );
}

#[tokio::test]
async fn a_part_of_a_name_finds_its_definitions() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    let led = server.get("/jobs?state=&name=esiz&until=2026-11-28").await;
    let to = "/jobs?name=*esiz*&until=2026-11-28";
    assert_eq!((led.status, led.header("location")), (303, to), "{led:?}");
    let page = server.get(to).await.body;
    all_say(&page, &["/jobs/1\"", "name=\"name\" value=\"*esiz*\""]);
    assert_eq!(server.get("/jobs?name=resize").await.status, 200, "a whole name is that name");
    assert_eq!(server.get("/api/jobs?name=esiz").await.status, 422, "programs name what they mean");
}

#[tokio::test]
async fn the_bar_of_a_batch_shows_what_became_of_its_members() {
    let server = Server::start().await;
    let body = format!("[{}]", [r#"{"name":"resize"}"#; 10].join(","));
    server.post("/api/jobs", &body).await;
    for (job, state) in
        [(1, State::Succeeded), (2, State::Succeeded), (3, State::Failed), (4, State::Cancelled)]
    {
        server.stand.world().end(job, state, 0);
    }
    server.stand.world().start(5);
    let page = server.get("/batches/1").await.body;
    all_say(
        &page,
        &[
            "aria-label=\"10 members: 2 succeeded, 1 failed, 1 cancelled, 1 on workers\"",
            "<rect class=\"good\" x=\"0\" y=\"0\" width=\"200\"",
            "<rect class=\"bad\" x=\"200\" y=\"0\" width=\"100\"",
            "<rect class=\"warn\" x=\"300\" y=\"0\" width=\"100\"",
            "<rect class=\"live\" x=\"400\" y=\"0\" width=\"100\"",
            "<a class=\"bad\" href=\"/jobs?batch=1&#38;state=failed%2Cexpired%2Clost\">1 failed</a>",
            "<span>5 wait</span>",
            "4 of 10 members have ended",
            "<dt>Definition</dt><dd><a href=\"/definitions/resize\">resize</a></dd>",
        ],
    );
}

#[tokio::test]
async fn long_values_are_folded_and_exact_times_are_text() {
    let server = Server::start().await;
    let script = (1..=40).map(|line| format!("echo line {line}")).collect::<Vec<_>>().join("\n");
    let body = serde_json::json!({"args": ["-c", script], "input": {"rows": vec![7; 50]}});
    server.post("/api/jobs/resize", &body.to_string()).await;
    server.post("/api/jobs/backup", r#"{"args":["--all"],"input":{"a":1}}"#).await;
    let long = server.get("/jobs/1").await.body;
    all_say(
        &long,
        &["<summary><code>-c echo line 1 … (40 lines, ", "echo line 40</pre></details>", "lines, "],
    );
    assert_eq!(long.matches("<details class=\"folded\">").count(), 2, "{long}");
    all_say(&long, &["data-instant=\"1970-01-01T00:00:01.000Z\">1970-01-01 00:00:01 UTC</span>"]);
    let short = server.get("/jobs/2").await.body;
    all_say(&short, &["<dd><code>--all</code></dd>", "<h2>Input</h2><pre>{"]);
    assert!(!short.contains("class=\"folded\""), "{short}");
}

#[tokio::test]
async fn a_caller_sees_whose_token_it_is() {
    let server = Server::with(|access| access.api_token(TOKEN), "", Limits::default()).await;
    let bearer = format!("Bearer {TOKEN}");
    let ask = async |path: &str| server.ask("GET", path, &[("authorization", &bearer)], "").await;
    let caller = ask("/api/whoami").await.json();
    let expected =
        serde_json::json!({"token": "api-token-file", "login": "token", "role": "admin", "definitions": []});
    assert_eq!(caller, expected);
    let page = ask("/account").await;
    assert_eq!(page.status, 200, "{page:?}");
    all_say(&page.body, &["<dd>api-token-file</dd>", "admin: may do everything", "<dd>never</dd>"]);
    all_say(&ask("/jobs").await.body, &["href=\"/account\" title=\"Signed in as api-token-file (admin)\""]);
    server.get("/api/whoami").await.is_problem(401, "invalid_token");
    let open = Server::start().await;
    let caller = open.get("/api/whoami").await.json();
    assert_eq!(caller, serde_json::json!({"login": "none", "role": "admin", "definitions": []}));
    all_say(&open.get("/account").await.body, &["this server needs no token"]);
    assert!(!open.get("/jobs").await.body.contains("/account"));
}

#[tokio::test]
async fn a_list_offers_only_what_fits_the_states_that_it_shows() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    for (state, offered) in [
        ("queued", &["cancel"][..]),
        ("queued,failed", &["cancel", "retry"]),
        ("queued,running", &["cancel", "release"]),
        ("", &["cancel", "retry", "release"]),
    ] {
        let page = server.get(&format!("/jobs?name=resize&state={state}")).await.body;
        for verb in ["cancel", "retry", "release"] {
            let button = format!("<button name=\"verb\" value=\"{verb}\"");
            assert_eq!(page.contains(&button), offered.contains(&verb), "{verb} of {state}");
        }
    }
}
