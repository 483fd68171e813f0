//! Tests of the access control: requests that are admitted, and requests that are refused.

use data_encoding::BASE64URL_NOPAD;
use protocol::{Timestamp, WORKER_SCHEME, WorkerId};
use scheduler::fleet::row::WorkerRow;
use scheduler::input::JoinPermit;

use super::role::Permission::{Administer, Connect, Open, Read, Submit};
use super::*;
use crate::auth::actor::Scope;
use crate::store::{TokenId, TokenRow};

fn access() -> Access {
    Access::open("127.0.0.1:8080".parse().unwrap())
}

fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// Checks a request, and returns the role of its sender; absent without a token.
fn ask(
    access: &Access,
    permission: Permission,
    method: &str,
    headers: &[(&str, &str)],
) -> Result<Option<Role>, Denial> {
    let admission = access.check(permission, &parts(method, "/x", headers), None)?;
    admission.check(permission)?;
    Ok(admission.is_authenticated().then_some(admission.actor.role))
}

fn with_token(access: &Access, permission: Permission, token: &str) -> Result<Option<Role>, Denial> {
    let value = format!("bearer {token}");
    ask(access, permission, "GET", &[("host", "x.example"), ("authorization", &value)])
}

#[test]
fn loopback_names_the_listen_address_and_named_hosts_are_answered_to() {
    let access = Access::open("10.1.2.3:80".parse().unwrap()).hosts(["Jobs.Example:8080".into()]);
    let answers = |host| ask(&access, Read, "GET", &[("host", host)]).is_ok();
    for host in ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:80", "::1", "10.1.2.3", "jobs.example:99"]
    {
        assert!(answers(host), "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "10.1.2.4", "", "127.0.0.1.evil.example:80"] {
        assert!(!answers(host), "{host}");
    }
}

#[test]
fn a_server_on_all_addresses_accepts_any_ip_as_host_but_no_name() {
    let access = Access::open("0.0.0.0:80".parse().unwrap());
    assert!(ask(&access, Read, "GET", &[("host", "192.168.7.7")]).is_ok());
    assert!(ask(&access, Read, "GET", &[("host", "rebound.example")]).is_err());
}

#[test]
fn a_token_of_a_file_passes_with_any_host() {
    let access = access().api_token("secret").worker_token("other");
    let wrong_role = |given, needed| Err(Denial::WrongRole { given, needed });
    assert_eq!(with_token(&access, Submit, "secret"), Ok(Some(Role::Admin)));
    assert_eq!(with_token(&access, Connect, "other"), Ok(Some(Role::Worker)));
    assert_eq!(with_token(&access, Submit, "other"), wrong_role(Role::Worker, Role::Submitter));
    assert_eq!(with_token(&access, Connect, "secret"), wrong_role(Role::Admin, Role::Worker));
    assert_eq!(with_token(&access, Submit, "secret2"), Err(Denial::InvalidToken));
    assert_eq!(with_token(&access, Submit, ""), Err(Denial::InvalidToken));
}

#[test]
fn a_token_of_the_store_has_its_role_and_may_have_ended() {
    let row = |id: u64, role, expires: Option<i64>| TokenRow {
        id: TokenId(id),
        name: format!("t{id}").into(),
        hash: hash(format!("longshore_{id}_x").as_bytes()),
        role,
        scope: Scope::default(),
        created_at: Timestamp(0),
        created_by: String::new(),
        expires_at: expires.map(Timestamp),
        last_used_at: None,
        revoked_at: None,
        uses: None,
        labels: Vec::new(),
        joined: 0,
    };
    let tokens = Arc::new(Tokens::default());
    let rows =
        [(1, Role::Viewer, None), (2, Role::Admin, None), (3, Role::Worker, None), (4, Role::Admin, Some(1))];
    tokens.load(rows.map(|(id, role, expires)| row(id, role, expires)).into());
    let access = access().tokens(Arc::clone(&tokens)).require_tokens();
    assert_eq!(with_token(&access, Read, "longshore_1_x"), Ok(Some(Role::Viewer)));
    assert_eq!(
        with_token(&access, Submit, "longshore_1_x"),
        Err(Denial::WrongRole { given: Role::Viewer, needed: Role::Submitter })
    );
    assert_eq!(with_token(&access, Administer, "longshore_2_x"), Ok(Some(Role::Admin)));
    assert_eq!(with_token(&access, Connect, "longshore_3_x"), Ok(Some(Role::Worker)));
    assert_eq!(with_token(&access, Read, "longshore_4_x"), Err(Denial::Expired));
    assert_eq!(with_token(&access, Read, "longshore_1_y"), Err(Denial::InvalidToken));
    let cookie = format!("{}={}", access.session_cookie(), access.sign_in("longshore_2_x", None).unwrap().0);
    let by_cookie = |access| ask(access, Administer, "GET", &[("host", "x"), ("cookie", &cookie)]);
    assert_eq!(by_cookie(&access), Ok(Some(Role::Admin)));
    tokens.revoke(TokenId(2), Timestamp(9));
    assert_eq!(by_cookie(&access), Err(Denial::Revoked));
    assert!(access.sign_in("longshore_3_x", None).is_err(), "a worker has nothing to look at");
}

/// A worker with this number, whose secret is its number 32 times.
fn worker(number: u8, revoked_at: Option<Timestamp>) -> WorkerRow {
    WorkerRow {
        worker: WorkerId(number.into()),
        name: "w".into(),
        secret_hash: hash(&[number; 32]),
        joined_at: Timestamp(0),
        seen_at: Timestamp(0),
        cordoned: false,
        cordon: None,
        slots: None,
        drain: None,
        labels: Vec::new(),
        process: None,
        join_token: None,
        granted: Vec::new(),
        revoked_at,
    }
}

fn proof(id: u8, secret: u8, token: Option<&str>) -> String {
    let secret = BASE64URL_NOPAD.encode(&[secret; 32]);
    let token = token.map(|token| format!(", token=\"{}\"", BASE64URL_NOPAD.encode(token.as_bytes())));
    format!("{WORKER_SCHEME} id=\"{id}\", secret=\"{secret}\"{}", token.unwrap_or_default())
}

#[test]
fn the_secret_of_a_worker_admits_this_worker_only() {
    let workers = Arc::new(WorkerRegistry::new(&[worker(1, None), worker(2, Some(Timestamp(5)))]));
    let access = access().worker_token("machines").api_token("people").workers(workers);
    let ask = |permission, value: String| {
        let headers = [("host", "x.example"), ("authorization", value.as_str())];
        let admission = access.check(permission, &parts("GET", "/x", &headers), None)?;
        admission.check(permission)?;
        Ok(admission.actor.join.clone())
    };
    let by_token = Ok(JoinPermit::default());
    assert_eq!(ask(Connect, proof(1, 1, None)), Ok(JoinPermit::OnlyAs(WorkerId(1))));
    assert_eq!(ask(Connect, proof(1, 1, Some("wrong"))), Ok(JoinPermit::OnlyAs(WorkerId(1))));
    assert_eq!(ask(Connect, proof(1, 9, None)), Err(Denial::InvalidToken));
    assert_eq!(ask(Connect, proof(9, 1, None)), Err(Denial::InvalidToken));
    assert_eq!(ask(Connect, proof(9, 9, Some("machines"))), by_token);
    assert_eq!(ask(Connect, proof(2, 2, None)), Err(Denial::WorkerRevoked));
    assert_eq!(ask(Connect, proof(2, 2, Some("wrong"))), Err(Denial::WorkerRevoked));
    assert_eq!(ask(Connect, proof(2, 2, Some("machines"))), by_token, "the scheduler refuses its Hello");
    assert_eq!(
        ask(Connect, proof(2, 1, None)),
        Err(Denial::InvalidToken),
        "it does not learn of the revocation"
    );
    assert_eq!(ask(Read, proof(1, 1, None)), Err(Denial::InvalidToken), "it is for workers only");
    for other in [
        "Longshore-Worker",
        "Longshore-Worker ",
        "Longshore-Worker id=1",
        "Longshore-Worker id=\"1\"",
        "Bearer",
    ] {
        assert_eq!(ask(Connect, other.to_owned()), Err(Denial::InvalidToken), "{other}");
    }
    for other in ["Basic YW5uOnB3", "people", "\u{e9}", ""] {
        assert_eq!(ask(Connect, other.to_owned()), Err(Denial::NoToken), "{other}");
    }
}

#[test]
fn an_address_that_guesses_secrets_of_workers_is_locked_out() {
    let workers = Arc::new(WorkerRegistry::new(&[worker(1, None), worker(2, Some(Timestamp(5)))]));
    let access = access().worker_token("machines").workers(workers);
    let peer = Some("10.0.0.1".parse().unwrap());
    let ask = |value: &str| access.check(Connect, &parts("GET", "/x", &[("authorization", value)]), peer);
    for _ in 0..20 {
        assert_eq!(ask(&proof(2, 2, None)).unwrap_err(), Denial::WorkerRevoked, "that is no guess");
    }
    for guess in 10..20 {
        assert_eq!(ask(&proof(1, guess, None)).unwrap_err(), Denial::InvalidToken);
    }
    assert!(matches!(ask(&proof(1, 1, None)), Err(Denial::TooManyFailures { .. })));
}

#[test]
fn a_proof_that_a_misconfigured_worker_repeats_counts_once() {
    let workers = Arc::new(WorkerRegistry::new(&[worker(1, None)]));
    let access = access().worker_token("machines").workers(workers);
    let peer = Some("10.0.0.1".parse().unwrap());
    let ask = |value: &str| access.check(Connect, &parts("GET", "/x", &[("authorization", value)]), peer);
    for _ in 0..50 {
        assert_eq!(ask(&proof(7, 7, Some("old"))).unwrap_err(), Denial::InvalidToken);
    }
    assert!(ask(&proof(1, 1, None)).is_ok(), "a healthy worker at the same address");
    for guess in 10..19 {
        assert_eq!(ask(&proof(7, 7, Some(&guess.to_string()))).unwrap_err(), Denial::InvalidToken);
    }
    assert!(
        matches!(ask(&proof(1, 1, None)), Err(Denial::TooManyFailures { .. })),
        "other tokens are guesses"
    );
}

#[test]
fn a_lock_out_is_audited_with_its_address_and_counted() {
    let (audit, metrics) = (Arc::<AuditLog>::default(), Arc::<crate::metrics::Metrics>::default());
    let access = access().api_token("secret").report_lock_outs(Arc::clone(&audit), Arc::clone(&metrics));
    let counted = || {
        let snapshot = scheduler::snapshot::Snapshot::default();
        let facts = crate::metrics::ScrapeFacts {
            snapshot: &snapshot,
            now: Timestamp(0),
            event_readers: 0,
            events_kept: 0,
            database_bytes: (0, 0),
            log_segments: (0, 0),
            storage_is_low: false,
            jobs_file_is_refused: false,
            certificate_expires: None,
            token_expires: None,
            last_backup: None,
            failed_backup: None,
            unresolved: None,
        };
        let text = metrics.scrape(&facts, crate::metrics::MetricsFormat::OpenMetrics);
        text.lines().any(|line| line == "longshore_address_lock_outs_total 1")
    };
    for guess in 0..10 {
        assert!(audit.take(Timestamp(0), false).is_empty() && !counted());
        assert!(access.sign_in(&guess.to_string(), Some("2001:db8::7".parse().unwrap())).is_err());
    }
    let rows = audit.take(Timestamp(0), false);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0].object.as_deref(), Some("address 2001:db8::"));
    let network = "2001:db8::".parse().unwrap();
    assert_eq!((rows[0].address, rows[0].status), (Some(network), 429));
    assert!(counted());
}

#[test]
fn a_session_stands_for_the_token_it_was_begun_with_whatever_its_text_looks_like() {
    let access = access().api_token("longshore_1_of_the_file");
    let cookie =
        format!("{}={}", access.session_cookie(), access.sign_in("longshore_1_of_the_file", None).unwrap().0);
    let headers = [("host", "localhost"), ("cookie", cookie.as_str())];
    assert_eq!(ask(&access, Administer, "GET", &headers), Ok(Some(Role::Admin)));
}

#[test]
fn missing_and_invalid_tokens_get_the_same_words() {
    assert_eq!(Denial::NoToken.to_string(), Denial::InvalidToken.to_string());
}

#[test]
fn a_page_of_another_site_can_change_nothing() {
    let post = |headers: &[(&str, &str)]| {
        let mut all = vec![("host", "localhost:8080")];
        all.extend(headers);
        ask(&access(), Submit, "POST", &all)
    };
    assert_eq!(post(&[]), Ok(None));
    assert_eq!(post(&[("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")]), Ok(None));
    for origin in
        ["http://evil.example", "null", "http://localhost:9090", "http://localhost:8080.evil.example"]
    {
        assert_eq!(post(&[("origin", origin)]), Err(Denial::CrossSite { field: "Origin" }), "{origin}");
    }
    assert_eq!(post(&[("sec-fetch-site", "cross-site")]), Err(Denial::CrossSite { field: "Sec-Fetch-Site" }));
}

#[test]
fn no_page_at_all_may_open_the_socket_of_workers() {
    let denied = ask(&access(), Connect, "GET", &[("origin", "http://localhost:8080")]);
    assert_eq!(denied, Err(Denial::CrossSite { field: "Origin" }));
}

#[test]
fn a_worker_without_token_has_to_call_the_server_by_its_name() {
    let connect = |access: &Access, host, token| {
        let headers = [("host", host), ("upgrade", "websocket"), ("authorization", token)];
        ask(access, Connect, "GET", &headers)
    };
    assert_eq!(connect(&access(), "rebound.example", ""), Err(Denial::Host("rebound.example".to_owned())));
    assert_eq!(connect(&access(), "127.0.0.1:9", ""), Ok(None));
    let named = access().hosts(["server".to_owned()]);
    assert_eq!(connect(&named, "server:8080", ""), Ok(None));
    let guarded = access().worker_token("machines");
    assert_eq!(connect(&guarded, "any.example", "Bearer machines"), Ok(Some(Role::Worker)));
}

#[test]
fn a_token_in_the_address_is_refused_even_where_none_is_needed() {
    let request = parts("GET", "/healthz?x=1&Token=abc", &[("host", "localhost")]);
    assert_eq!(access().check(Open, &request, None).unwrap_err(), Denial::TokenInUrl);
}
