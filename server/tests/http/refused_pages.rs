//! Refusals of the access control: pages for browsers, problem documents for programs, and tokens that end while a request waits; and the
//! cookie of a login.

use std::sync::Arc;

use longshore_server::auth::actor::Scope;
use longshore_server::auth::role::Role;
use longshore_server::auth::tokens::Tokens;
use longshore_server::listener::Limits;
use longshore_server::store::{TokenId, TokenRow};
use protocol::Timestamp;
use protocol::report::Stream;
use sha2::{Digest, Sha256};

use crate::support::{Answered, Server, output};

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

/// A server with a token of the store, and the text of the token.
pub(crate) async fn with_token(role: Role, scope: &[&str]) -> (Server, Arc<Tokens>, String) {
    let text = "longshore_1_0123456789abcdef".to_owned();
    let tokens = Arc::new(Tokens::default());
    tokens.load(vec![TokenRow {
        id: TokenId(1),
        name: "one".into(),
        hash: Sha256::digest(text.as_bytes()).into(),
        role,
        scope: Scope::new(scope.iter().map(|&pattern| pattern.to_owned()).collect()),
        created_at: Timestamp(0),
        created_by: String::new(),
        expires_at: None,
        last_used_at: None,
        revoked_at: None,
        uses: None,
        labels: Vec::new(),
        joined: 0,
    }]);
    let known = Arc::clone(&tokens);
    let server = Server::with(|access| access.tokens(known).require_tokens(), "", Limits::default()).await;
    (server, tokens, text)
}

fn is_page(answer: &Answered, status: u16, text: &str) {
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (status, "text/html; charset=utf-8"),
        "{answer:?}"
    );
    assert!(answer.header("content-security-policy").contains("default-src 'self'"), "{answer:?}");
    assert!(answer.body.contains(text), "no {text:?} in {}", answer.body);
}

#[tokio::test]
async fn a_form_of_an_ended_session_gets_a_page_with_the_login() {
    let (server, _tokens, token) = with_token(Role::Viewer, &[]).await;
    let form = ("content-type", "application/x-www-form-urlencoded");
    for path in ["/definitions/resize/run", "/jobs/1/cancel", "/notifications/test"] {
        let ended =
            server.ask("POST", path, &[BROWSER, form, ("cookie", "longshore_session=old")], "a=b").await;
        is_page(&ended, 401, "Your session has ended");
        assert!(ended.body.contains("href=\"/login\"") && ended.header("location").is_empty(), "{ended:?}");
        assert!(!ended.body.contains("aria-label=\"Pages\""), "{ended:?}");
        server.ask("POST", path, &[form], "a=b").await.is_problem(401, "invalid_token");
        server.ask("POST", path, &[form, ("accept", "*/*")], "a=b").await.is_problem(401, "invalid_token");
    }
    let bearer = format!("Bearer {token}");
    let viewer = ("authorization", bearer.as_str());
    let forbidden = server.ask("POST", "/jobs/1/cancel", &[BROWSER, viewer], "").await;
    is_page(&forbidden, 403, "the role viewer");
    assert!(forbidden.body.contains("aria-label=\"Pages\"") && !forbidden.body.contains("href=\"/audit\""));
    is_page(&server.ask("GET", "/nothing", &[BROWSER, viewer], "").await, 404, "nothing at this address");
    is_page(&server.ask("GET", "/nothing", &[BROWSER], "").await, 401, "Not signed in");
    server.ask("GET", "/nothing", &[viewer], "").await.is_problem(404, "not_found");
    server.ask("GET", "/api/nothing", &[BROWSER, viewer], "").await.is_problem(404, "not_found");
    let wrong = server.ask("DELETE", "/jobs", &[BROWSER, viewer], "").await;
    assert!(wrong.status == 403 || !wrong.header("allow").is_empty(), "{wrong:?}");
}

#[tokio::test]
async fn a_dry_run_counts_only_jobs_in_the_scope_of_the_token() {
    let (server, _tokens, token) = with_token(Role::Submitter, &["resize"]).await;
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    for _ in 0..3 {
        assert_eq!(server.ask("POST", "/api/jobs/resize", &headers, "").await.status, 201);
    }
    for job in 2..=3 {
        server.stand.world().record(job).row.definition = "backup".into();
    }
    let counted = server.ask("POST", "/api/jobs/cancel?state=queued&dry_run=1", &headers, "").await.json();
    assert_eq!((&counted["matched"], &counted["out_of_scope"]), (&1.into(), &2.into()), "{counted}");
    let form = [headers[0], ("content-type", "application/x-www-form-urlencoded")];
    let page = server.ask("POST", "/jobs/bulk", &form, "verb=cancel&selection=state%3Dqueued").await;
    is_page(&page, 200, "cancel 1 jobs");
    assert!(page.body.contains("2 jobs that fit are left out"), "{}", page.body);
    let done = server.ask("POST", "/api/jobs/cancel?state=queued", &headers, "").await.json();
    assert_eq!(
        (&done["matched"], &done["done"], &done["refused"]),
        (&3.into(), &1.into(), &2.into()),
        "{done}"
    );
}

#[tokio::test]
async fn a_token_for_certain_definitions_searches_all_output() {
    let (server, _tokens, token) = with_token(Role::Submitter, &["backup"]).await;
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    assert_eq!(server.ask("POST", "/api/jobs/backup", &headers, "").await.status, 201);
    {
        let mut world = server.stand.world();
        world.start(1);
        world.record(1).row.definition = "resize".into();
    }
    output::write(&server, 101, Stream::Stdout, 0, "a needle\n").await;
    let found = server.ask("GET", "/api/logs/search?q=needle", &headers, "").await.json();
    assert_eq!((&found["lines"][0]["name"], &found["complete"]), (&"resize".into(), &true.into()), "{found}");
}

#[tokio::test]
async fn a_sign_out_ends_the_streams_of_its_session() {
    let (server, _tokens, token) = with_token(Role::Viewer, &[]).await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let sign_in = async || {
        let login = server.ask("POST", "/login", &form, &format!("token={token}")).await;
        login.header("set-cookie").split(';').next().unwrap_or_default().to_owned()
    };
    let (left, kept) = (sign_in().await, sign_in().await);
    let open = async |cookie: &str| {
        let mut stream = server.open(&format!("GET /api/events HTTP/1.1\r\ncookie: {cookie}")).await;
        stream.until("text/event-stream").await;
        stream
    };
    let (mut ends, mut other) = (open(&left).await, open(&kept).await);
    assert_eq!(server.ask("POST", "/logout", &[("cookie", &left)], "").await.status, 303);
    ends.until_closed().await;
    assert!(!ends.seen.ends_with("0\r\n\r\n"), "it ended as if it were complete: {}", ends.seen);
    let still = server.ask("GET", "/api/jobs", &[("cookie", &kept)], "").await;
    assert_eq!(still.status, 200, "{still:?}");
    assert_eq!(server.ask("POST", "/logout", &[("cookie", &kept)], "").await.status, 303);
    other.until_closed().await;
}

#[tokio::test]
async fn a_login_has_no_more_than_a_token_needs() {
    let (server, _tokens, token) = with_token(Role::Viewer, &[]).await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let large = server.ask("POST", "/login", &form, &format!("token={}", "x".repeat(5_000))).await;
    assert_eq!(large.status, 413, "{large:?}");
    let long = server.get(&format!("/login?to=%2Fjobs%3Fname%3D{}", "x".repeat(2_000))).await;
    is_page(&long, 200, "name=\"to\" value=\"\"");
    let page = "%2Fjobs%3F".to_owned() + &"name%3D%2A%26".repeat(70);
    assert_eq!(server.ask("POST", "/login", &form, &format!("token={token}&to={page}")).await.status, 303);
}

#[tokio::test]
async fn the_cookie_of_a_login_is_secure_behind_a_proxy_that_speaks_tls() {
    let (server, _tokens, text) = with_token(Role::Viewer, &[]).await;
    for (origin, is_secure) in [("http://localhost", false), ("https://localhost", true)] {
        let form = ("content-type", "application/x-www-form-urlencoded");
        let headers = [form, ("host", "localhost"), ("origin", origin)];
        let answer = server.ask("POST", "/login", &headers, &format!("token={text}&to=%2F")).await;
        let cookie = answer.header("set-cookie");
        assert!(cookie.contains("HttpOnly"), "{answer:?}");
        assert_eq!(cookie.ends_with("; Secure"), is_secure, "{origin}: {cookie}");
    }
}
