//! What is there, as lists and in full, by a server of prepared answers.

mod stub;

use stub::{JSON, Stub, job, said};

#[test]
fn ls_pages_until_there_are_enough_and_makes_foreign_text_harmless() {
    let stub = Stub::new();
    let link = "link: </api/jobs?limit=500&cursor=c2>; rel=\"next\"";
    let page = |from: u64, count: u64, reason: &str| {
        let more = format!(r#""state":"failed","reason":"{reason}""#);
        (0..count).map(|n| job(from - n, &more)).collect::<Vec<_>>().join(",")
    };
    let (first, second) = (page(900, 500, "x"), page(400, 1, "\\u001b[2Jgone"));
    let text = format!(
        "HTTP/1.1 200 OK\r\n{link}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n[{first}]",
        first.len() + 2
    );
    stub.on_raw("GET /api/jobs?state=failed%2Clost&name=resize&limit=500", text.as_bytes());
    stub.on(
        "GET /api/jobs?state=failed%2Clost&name=resize&limit=1&cursor=c2",
        "200 OK",
        JSON,
        &format!("[{second}]"),
    );
    let arguments = ["ls", "--state", "failed", "--state", "lost", "--name", "resize", "-n", "501"];
    let said = said(&mut stub.longshore(&arguments));
    assert_eq!((said.code, said.out.lines().count()), (0, 502), "{}", said.err);
    assert!(said.out.lines().last().unwrap().ends_with("␛[2Jgone"), "{}", said.out);
}

#[test]
fn ls_leaves_it_to_the_server_who_a_worker_is() {
    let stub = Stub::new();
    stub.on(
        "GET /api/jobs?worker=anna&limit=20",
        "200 OK",
        JSON,
        &format!("[{}]", job(7, r#""state":"failed""#)),
    );
    let said = said(&mut stub.longshore(&["ls", "--worker", "anna"]));
    assert_eq!((said.code, said.out.lines().count()), (0, 2), "{said:?}");
}

#[test]
fn a_definition_is_shown_key_by_key_in_two_columns() {
    let stub = Stub::new();
    let json = r#"{"name":"resize","read_only":true,"unexpected_retry_delay_ms":7000,"cap_drop":["ALL"]}"#;
    stub.on("GET /api/definitions/resize", "200 OK", JSON, json);
    let shown = said(&mut stub.longshore(&["definitions", "resize"]));
    let mut lines: Vec<&str> = shown.out.lines().collect();
    lines.sort_unstable();
    let expected = [
        "cap_drop               ALL",
        "name                   resize",
        "read_only              true",
        "unexpected_retry_delay 7.0s",
    ];
    assert_eq!((shown.code, lines), (0, expected.to_vec()), "{shown:?}");
}

#[test]
fn definitions_are_asked_for_by_a_tag() {
    let stub = Stub::new();
    let list = r#"[{"name":"resize","revision":"5c1e","enabled":true,"runtime":"docker"}]"#;
    stub.on("GET /api/definitions?tag=nightly", "200 OK", JSON, list);
    let said = said(&mut stub.longshore(&["definitions", "--tag", "nightly"]));
    assert_eq!((said.code, said.out.lines().count()), (0, 2), "{said:?}");
}

#[test]
fn reload_tells_what_has_changed() {
    let stub = Stub::new();
    let changed = r#"{"definitions":2,"added":["backup"],"changed":["resize"],"removed":[],"warnings":["jobs.yaml:3:1: odd"]}"#;
    stub.on("POST /api/definitions/reload", "200 OK", JSON, changed);
    let reloaded = said(&mut stub.longshore(&["reload"]));
    assert_eq!(reloaded.out, "2 definitions; added: backup; changed: resize\n");
    assert_eq!((reloaded.code, reloaded.err.as_str()), (0, "warning: jobs.yaml:3:1: odd\n"));
}
