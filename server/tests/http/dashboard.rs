//! The dashboard over real HTTP, without a browser: every page, its forms, the login, and what a hostile text may not do.

use longshore_server::listener::Limits;
use protocol::report::Stream;
use scheduler::job::State;
use scheduler::pauses::PauseTarget;

use crate::support::{Answered, Server, output};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub(crate) async fn form(server: &Server, path: &str, fields: &str) -> Answered {
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    server.ask("POST", path, &headers, fields).await
}

fn is_page(answer: &Answered, path: &str) {
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8", "{path}");
    let policy = answer.header("content-security-policy");
    assert!(policy.contains("default-src 'self'") && !policy.contains("unsafe"), "{path}: {policy}");
    assert!(answer.body.ends_with("</html>") || answer.body.ends_with("</html>\n"), "{path} is cut short");
    assert!(
        !answer.body.contains(" style=") && !answer.body.contains("<script>"),
        "{path}: the policy forbids it"
    );
}

#[tokio::test]
async fn every_page_is_shown() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", r#"{"args":["--big"],"labels":{"team":"web"}}"#).await;
    server.post("/api/jobs/backup", "").await;
    server.stand.world().end(1, State::Failed, 3);
    for (path, text) in [
        ("/", "Needs attention"),
        ("/jobs", "/jobs/2\""),
        ("/jobs?state=failed&name=&worker=", "/jobs/1\""),
        ("/jobs/1", "--big"),
        ("/jobs/1/again", "Run job"),
        ("/jobs/1/output", "Output of job"),
        ("/batches", "No batch fits"),
        ("/batches?state=failed&name=", "No batch fits"),
        ("/definitions", "resize-all"),
        ("/definitions?q=back", "backup"),
        ("/definitions/resize", "Run with changes"),
        ("/schedules", "No definition has a schedule"),
        ("/workers", "w1"),
        ("/workers?all=1", "w2"),
        ("/workers/1", "Cordon"),
        ("/notifications", "No definition has a target"),
        ("/notifications?state=failed&name=", "Notifications"),
        ("/logs/search", "Finds lines in the stored output"),
        ("/jobs", "href=\"/logs/search\""),
        ("/api-docs", "POST /api/jobs/{job}"),
        ("/api-docs", "<section id=\"type-FullJob\">"),
        ("/api-docs", "href=\"/problems/unknown_job\""),
        ("/login", "API token"),
    ] {
        let answer = server.get(path).await;
        is_page(&answer, path);
        assert!(answer.body.contains(text), "{path} does not say {text:?}: {}", answer.body);
    }
}

#[tokio::test]
async fn problems_are_pages_here_and_documents_there() {
    let server = Server::start().await;
    for (path, status, text) in [
        ("/jobs/77", 404, "there is no job 77"),
        ("/jobs/x", 400, "is not a whole number"),
        ("/jobs?name=nope", 422, "no definition and no job has the name"),
        ("/jobs?stat=failed", 400, "did you mean"),
        ("/definitions/resise", 404, "did you mean"),
        ("/batches/9", 404, "there is no batch 9"),
        ("/workers/99", 404, "About unknown_worker"),
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(
            answer.body.starts_with("<!doctype html>") && answer.body.contains(text),
            "{path}: {answer:?}"
        );
    }
    server.get("/api/jobs/77").await.is_problem(404, "job_not_found");
    server.get("/nowhere").await.is_problem(404, "not_found");
}

#[tokio::test]
async fn forms_do_what_the_api_does_and_lead_back() {
    let server = Server::start().await;
    let run =
        form(&server, "/definitions/resize/run", "args=--size%0D%0Alarge&environment=A%3Db&priority=7").await;
    assert_eq!((run.status, run.header("location")), (303, "/jobs/1"), "{run:?}");
    {
        let record = server.stand.world().record(1).clone();
        assert_eq!(record.overrides.args, ["--size", "large"]);
        assert_eq!(record.overrides.environment, [("A".to_owned(), "b".to_owned())]);
        assert_eq!(record.row.priority, 7);
    }
    let wrong = form(&server, "/definitions/resize/run", "priority=high").await;
    assert_eq!(wrong.status, 422, "{wrong:?}");
    assert!(wrong.body.contains("priority"), "{wrong:?}");

    let cancel = form(&server, "/jobs/1/cancel", "").await;
    assert_eq!((cancel.status, cancel.header("location")), (303, "/jobs/1"), "{cancel:?}");
    assert_eq!(server.stand.world().record(1).row.state, State::Cancelled);
    let again = form(&server, "/jobs/1/again", "args=--size%0Asmall").await;
    assert_eq!((again.status, again.header("location")), (303, "/jobs/2"), "{again:?}");
    assert_eq!(server.stand.world().record(2).overrides.args, ["--size", "small"]);
    assert_eq!(form(&server, "/jobs/2/explode", "").await.status, 404);

    let cordon = form(&server, "/workers/1/cordon", "").await;
    assert_eq!((cordon.status, cordon.header("location")), (303, "/workers/1"), "{cordon:?}");
    assert_eq!(form(&server, "/workers/1/stop-unmanaged", "").await.status, 404);
    assert_eq!(form(&server, "/schedules/pause", "").await.header("location"), "/schedules");
    assert_eq!(form(&server, "/pause", "").await.header("location"), "/definitions");
    assert_eq!(
        form(&server, "/definitions/resize/pause", "").await.header("location"),
        "/definitions/resize"
    );
    let target = PauseTarget::Definition("resize".into());
    let expected = [(PauseTarget::Schedules, true), (PauseTarget::Server, true), (target, true)];
    assert_eq!(server.stand.world().pauses, expected);
}

#[tokio::test]
async fn a_bulk_form_counts_first_and_acts_when_confirmed() {
    let server = Server::start().await;
    for _ in 0..3 {
        server.post("/api/jobs/resize", "").await;
    }
    let counted = form(&server, "/jobs/bulk", "verb=cancel&selection=name%3Dresize").await;
    is_page(&counted, "/jobs/bulk");
    assert!(counted.body.contains("cancel 3 jobs"), "{}", counted.body);
    assert!(server.stand.world().jobs.iter().all(|record| !record.row.state.has_ended()));
    let done = form(&server, "/jobs/bulk", "verb=cancel&selection=name%3Dresize&confirmed=yes").await;
    assert!(done.body.contains("3 done"), "{}", done.body);
    assert!(server.stand.world().jobs.iter().all(|record| record.row.state == State::Cancelled));
}

#[tokio::test]
async fn the_search_field_leads_to_what_was_meant() {
    let server = Server::start().await;
    for (text, page) in [
        ("12", "/jobs/12"),
        ("resize", "/definitions/resize"),
        ("w1", "/workers/1"),
        ("disk%20full", "/jobs?text=disk+full"),
        ("", "/jobs"),
    ] {
        let answer = server.get(&format!("/search?q={text}")).await;
        assert_eq!((answer.status, answer.header("location")), (303, page), "{answer:?}");
    }
}

#[tokio::test]
async fn the_name_of_a_worker_leads_to_its_number() {
    let server = Server::start().await;
    // The second worker is in the store only.
    for (name, page) in [("w1", "/workers/1"), ("w2", "/workers/2")] {
        let answer = server.get(&format!("/workers/{name}")).await;
        assert_eq!((answer.status, answer.header("location")), (303, page), "{answer:?}");
    }
    let unknown = server.ask("GET", "/workers/w%3Cb%3E9", &[("accept", "text/html")], "").await;
    assert_eq!((unknown.status, unknown.header("content-type")), (404, "text/html; charset=utf-8"));
    assert!(
        unknown.body.contains("no worker was ever called") && !unknown.body.contains("<b>9"),
        "{unknown:?}"
    );
    // Digits are a number, whatever workers are called.
    assert_eq!(server.get("/workers/99").await.status, 404);
    assert_eq!(server.get("/workers/01").await.status, 400);
}

#[tokio::test]
async fn texts_of_clients_are_never_markup() {
    let server = Server::start().await;
    let evil = "<script>alert(1)</script>\\\"><img src=x>";
    let body = format!(r#"{{"args":["{evil}"],"labels":{{"a":"<b>x"}}}}"#);
    assert_eq!(server.post("/api/jobs/resize", &body).await.status, 201);
    for path in
        ["/", "/jobs", "/jobs/1", "/jobs/1/again", "/jobs?text=%3Cscript%3E", "/login?to=%22%3E%3Cu%3E"]
    {
        let answer = server.get(path).await;
        is_page(&answer, path);
        for markup in ["<script>alert", "<img src=x", "<b>x", "<u>"] {
            assert!(!answer.body.contains(markup), "{path} has {markup}: {}", answer.body);
        }
    }
    let refused = server.get("/jobs?state=%3Cscript%3E").await;
    assert!(refused.status == 400 && !refused.body.contains("<script>"), "{refused:?}");
}

#[tokio::test]
async fn a_form_of_another_site_is_refused() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    for header in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        let answer = server.ask("POST", "/jobs/1/cancel", &[header], "").await;
        answer.is_problem(403, "cross_site");
    }
    assert_eq!(server.stand.world().record(1).row.state, State::Queued);
}

#[tokio::test]
async fn with_a_token_people_sign_in_and_out() {
    let server = Server::with(|access| access.api_token(TOKEN), "/tools", Limits::default()).await;
    let first = server.get("/tools/jobs?state=failed").await;
    assert_eq!(
        (first.status, first.header("location")),
        (303, "/tools/login?to=%2Fjobs%3Fstate%3Dfailed"),
        "{first:?}"
    );
    let login = server.get("/tools/login?to=%2F").await;
    is_page(&login, "/tools/login");
    let named = ["admin.token", "--api-token-file", "longshore token create"];
    assert!(named.iter().all(|text| login.body.contains(text)), "{login:?}");
    for text in ["Sign out", "aria-label=\"Pages\"", "role=\"search\"", "/tools/jobs", "/api-docs"] {
        assert!(!login.body.contains(text), "{text} before the sign-in: {login:?}");
    }
    let wrong = form(&server, "/tools/login", "token=wrong&to=%2Fjobs").await;
    assert!(wrong.header("set-cookie").is_empty() && wrong.body.contains("valid token"), "{wrong:?}");
    assert_eq!((wrong.status, wrong.header("content-type")), (401, "text/html; charset=utf-8"), "{wrong:?}");

    let right = form(&server, "/tools/login", &format!("token={TOKEN}&to=%2Fjobs")).await;
    assert_eq!((right.status, right.header("location")), (303, "/tools/jobs"), "{right:?}");
    let cookie = right.header("set-cookie");
    for part in ["HttpOnly", "SameSite=Strict", "Path=/tools;"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains(TOKEN), "{cookie}");
    let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
    let with_cookie = [("cookie", cookie.as_str())];
    for path in ["/tools", "/tools/", "/tools/jobs"] {
        let page = server.ask("GET", path, &with_cookie, "").await;
        is_page(&page, path);
        assert!(page.body.contains("Sign out") && page.body.contains("href=\"/tools/jobs\""), "{path}");
    }
    let cross = [("cookie", cookie.as_str()), ("origin", "https://evil.example")];
    server.ask("POST", "/tools/jobs/1/cancel", &cross, "").await.is_problem(403, "cross_site");

    assert_eq!(server.ask("POST", "/tools/logout", &with_cookie, "").await.status, 303);
    assert_eq!(server.ask("GET", "/tools/jobs", &with_cookie, "").await.status, 303);
    server.ask("GET", "/tools/api/jobs", &with_cookie, "").await.is_problem(401, "invalid_token");
}

/// The addresses of all links, forms and files of a page.
fn links(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for attribute in [" href=\"", " action=\"", " src=\""] {
        let values = page.split(attribute).skip(1).filter_map(|rest| rest.split('"').next());
        found.extend(values.map(|value| value.replace("&#38;", "&").replace("&amp;", "&")));
    }
    found
}

#[tokio::test]
async fn every_link_of_every_page_leads_somewhere_below_a_base_path() {
    let server = Server::with(|access| access, "/tools", Limits::default()).await;
    server.post("/tools/api/jobs/resize", r#"{"labels":{"team":"web"}}"#).await;
    server.post("/tools/api/jobs/backup", "").await;
    server.stand.world().end(1, State::Failed, 3);
    let mut seen = std::collections::BTreeSet::new();
    let mut left = vec!["/tools".to_owned()];
    while let Some(path) = left.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let page = server.get(&path).await;
        assert!(matches!(page.status, 200 | 303), "{path}: {page:?}");
        if page.header("content-type") != "text/html; charset=utf-8" {
            continue;
        }
        // The address of a form that changes something exists: with GET it is the form, or 405.
        for link in links(&page.body).into_iter().filter(|link| !link.starts_with('#')) {
            assert!(link == "/tools" || link.starts_with("/tools/"), "{path} leads outside, to {link}");
            let link = link.split('#').next().unwrap_or_default().to_owned();
            let is_change = page.body.contains(&format!("action=\"{link}\" method=\"post\""));
            if is_change {
                let shown = server.get(&link).await;
                assert!(matches!(shown.status, 200 | 405), "{link} of {path}: {shown:?}");
            } else {
                left.push(link);
            }
        }
    }
    for page in ["/tools/", "/tools/jobs", "/tools/jobs/1/again", "/tools/workers/1", "/tools/api-docs"] {
        assert!(seen.contains(page), "nothing leads to {page}: {seen:?}");
    }
}

#[tokio::test]
async fn a_login_without_a_page_leads_to_the_overview_below_a_base_path() {
    let server = Server::with(|access| access.api_token(TOKEN), "/tools", Limits::default()).await;
    for path in ["/tools", "/tools/"] {
        let first = server.get(path).await;
        assert_eq!(
            (first.status, first.header("location")),
            (303, "/tools/login?to=%2F"),
            "{path}: {first:?}"
        );
    }
    let right = form(&server, "/tools/login", &format!("token={TOKEN}")).await;
    assert_eq!((right.status, right.header("location")), (303, "/tools/"), "{right:?}");
    let cookie = right.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
    let page = server.ask("GET", right.header("location"), &[("cookie", &cookie)], "").await;
    is_page(&page, "/tools/");
}

#[tokio::test]
async fn wrong_tokens_lock_the_login_out() {
    let server = Server::with(|access| access.api_token(TOKEN), "", Limits::default()).await;
    for guess in 0..10 {
        form(&server, "/login", &format!("token=wrong{guess}")).await;
    }
    let locked = form(&server, "/login", &format!("token={TOKEN}")).await;
    assert!(locked.header("set-cookie").is_empty() && locked.body.contains("too many"), "{locked:?}");
    assert!(locked.status == 429 && !locked.header("retry-after").is_empty(), "{locked:?}");
}

#[tokio::test]
async fn static_files_are_kept_for_ever_and_pages_not_at_all() {
    let server = Server::start().await;
    let page = server.get("/").await;
    assert_eq!(page.header("cache-control"), "no-store");
    let start = page.body.find("/static/").expect("a style sheet");
    let address: String = page.body[start..].chars().take_while(|char| *char != '"').collect();
    let file = server.get(&address).await;
    assert_eq!((file.status, file.header("content-type")), (200, "text/css; charset=utf-8"), "{address}");
    assert!(file.header("cache-control").contains("immutable"), "{file:?}");
    assert_eq!(server.get("/static/x/../../Cargo.toml").await.status, 404);
    assert_eq!(server.get("/static/x/nothing.js").await.status, 404);
}

#[tokio::test]
async fn a_page_of_jobs_stays_small_among_many() {
    let server = Server::start().await;
    let lines: Vec<String> = (0..300).map(|n| format!(r#"{{"name":"resize","args":["{n}"]}}"#)).collect();
    let made = server.post("/api/jobs", &format!("[{}]", lines.join(","))).await;
    assert_eq!(made.status, 201, "{made:?}");
    for path in ["/", "/jobs", "/definitions/resize"] {
        let answer = server.get(path).await;
        is_page(&answer, path);
        assert!(answer.body.len() < 100_000, "{path} has {} bytes", answer.body.len());
    }
    assert!(server.get("/jobs").await.body.contains("Older jobs"));
}

#[tokio::test]
async fn output_is_searched_and_each_line_leads_to_the_viewer() {
    let server = output::running().await;
    output::write(&server, 101, Stream::Stdout, 8, "an <b>Error</b>\u{1b}[31m & more\n").await;
    output::write(&server, 101, Stream::Stderr, 5, "error again\n").await;
    let all = server.get("/logs/search?q=error&ignore_case=1&name=&since=").await;
    is_page(&all, "/logs/search");
    for text in [
        "href=\"/jobs/1/output?attempt=1#stdout@8\"",
        "href=\"/jobs/1/output?attempt=1#stderr@5\"",
        "an &#60;b&#62;<mark>Error</mark>&#60;/b&#62; &#38; more",
        "<mark>error</mark> again",
        "of output of 1 job: that is everything.",
    ] {
        assert!(all.body.contains(text), "no {text:?} in {}", all.body);
    }
    let pattern = server.get("/logs/search?q=%5EError%7Cagain%24&regex=1").await;
    assert_eq!(pattern.body.matches("<mark>").count(), 1, "{}", pattern.body);

    // Parts of one line lead to the next ones, with the same form.
    let (mut path, mut parts) = ("/logs/search?q=error&ignore_case=1&limit=1".to_owned(), Vec::new());
    loop {
        let part = server.get(&path).await.body;
        let link = part.split_once("rel=\"next\" href=\"").map(|(_, rest)| rest.split('"').next());
        let next = link.flatten().map(|link| link.replace("&#38;", "&"));
        parts.push(part);
        match next {
            Some(next) => path = next,
            None => break,
        }
        assert!(path.contains("q=error&ignore_case=1") && parts.len() < 5, "{path}");
    }
    assert!(parts[0].contains("#stdout@8") && parts[0].contains("job is left."), "{}", parts[0]);
    assert!(parts[1].contains("#stderr@5") && !parts[1].contains("#stdout@8"), "{}", parts[1]);
    assert!(parts.last().is_some_and(|last| last.contains("in this part, the last one.")), "{parts:?}");

    let none = server.get("/logs/search?q=nowhere").await;
    assert!(none.body.contains("No line fits.") && !none.body.contains("Search on"), "{}", none.body);
    let wrong = server.get("/logs/search?q=%28&regex=1").await;
    assert!(wrong.status == 400 && wrong.body.contains("unclosed group"), "{wrong:?}");
}

#[tokio::test]
async fn a_test_of_a_definition_without_targets_says_so() {
    let server = Server::start().await;
    let none = form(&server, "/notifications/test", "definition=resize").await;
    is_page(&none, "/notifications/test");
    assert!(none.body.contains("resize has no targets"), "{}", none.body);
    let unknown = form(&server, "/notifications/test", "definition=nope").await;
    assert!(unknown.status == 404 && unknown.body.contains("there is no definition"), "{unknown:?}");
}
