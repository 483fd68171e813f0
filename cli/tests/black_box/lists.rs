//! Verbs that list, against a stub server.

use testkit::Cluster;

use crate::stub::{JSON, Stub, job, run};

#[test]
fn ls_fetches_pages_up_to_the_limit_and_escapes_control_characters() {
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
    let said = run(&mut stub.longshore(&arguments));
    assert_eq!((said.code, said.out.lines().count()), (0, 502), "{}", said.err);
    assert!(said.out.lines().last().unwrap().ends_with("␛[2Jgone"), "{}", said.out);
}

#[test]
fn ls_notes_that_there_are_more_jobs() {
    let stub = Stub::new();
    let body = format!("[{},{}]", job(9, r#""state":"failed""#), job(8, r#""state":"failed""#));
    let page = |link: &str| {
        format!("HTTP/1.1 200 OK\r\n{link}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let next = page("link: </api/jobs?limit=2&cursor=c2>; rel=\"next\"\r\n");
    stub.on_raw("GET /api/jobs?limit=2", next.as_bytes())
        .on_raw("GET /api/jobs?limit=500", page("").as_bytes());
    let some = run(&mut stub.longshore(&["ls", "-q", "-n", "2"]));
    let note = "longshore: these are the newest 2 jobs; there are more: use -n 20 or a filter\n";
    assert_eq!((some.code, some.out.as_str(), some.err.as_str()), (0, "9\n8\n", note));
    let all = run(&mut stub.longshore(&["ls", "-q"]));
    assert_eq!((all.code, all.out.as_str(), all.err.as_str()), (0, "9\n8\n", ""));
    let json = run(&mut stub.longshore(&["ls", "-q", "-o", "json"]));
    assert_eq!(serde_json::from_str::<Vec<u64>>(&json.out).unwrap(), [9, 8], "{json:?}");

    let body = format!("[{}]", job(9, r#""state":"failed""#));
    let head = "HTTP/1.1 200 OK\r\nlink: </api/jobs?limit=1&cursor=c1>; rel=\"next\"\r\nconnection: close";
    let only = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stub.on_raw("GET /api/jobs?limit=1", only.as_bytes());
    let one = run(&mut stub.longshore(&["ls", "-q", "-n", "1"]));
    let note = "longshore: this is the newest job; there are more: use -n 10 or a filter\n";
    assert_eq!((one.code, one.out.as_str(), one.err.as_str()), (0, "9\n", note));
}

#[test]
fn ls_accepts_a_duration_as_a_time() {
    let stub = Stub::new();
    let asked = |arguments: &[&str]| {
        run(&mut stub.longshore(arguments));
        stub.requests().last().unwrap().line.clone()
    };
    let given = asked(&["ls", "--until", "2026-03-01T09:30:00+01:00"]);
    assert_eq!(given, "GET /api/jobs?until=2026-03-01T09%3A30%3A00%2B01%3A00&limit=20");
    let ago = asked(&["ls", "--since", "2d"]);
    let instant = ago.split("since=").nth(1).unwrap().split('&').next().unwrap().replace("%3A", ":");
    let elapsed =
        jiff::Timestamp::now().as_second() - instant.parse::<jiff::Timestamp>().unwrap().as_second();
    assert!((172_800..172_860).contains(&elapsed), "{ago}: {elapsed}");
    let date = asked(&["ls", "--since", "2026-11-28", "--until", "2026-11-28"]);
    assert!(date.contains("since=2026-11-28&until=2026-11-28"), "the server takes it as a whole day: {date}");
    let wrong = run(&mut stub.longshore(&["ls", "--since", "yesterday"]));
    assert!(wrong.code == 2 && wrong.err.contains("a duration before now"), "{wrong:?}");
}

#[test]
fn ls_passes_the_worker_filter_unchanged() {
    let stub = Stub::new();
    stub.on(
        "GET /api/jobs?worker=anna&limit=20",
        "200 OK",
        JSON,
        &format!("[{}]", job(7, r#""state":"failed""#)),
    );
    let said = run(&mut stub.longshore(&["ls", "--worker", "anna"]));
    assert_eq!((said.code, said.out.lines().count()), (0, 2), "{said:?}");
}

#[test]
fn definition_is_shown_with_a_line_per_key() {
    let stub = Stub::new();
    let json = r#"{"name":"resize","read_only":true,"unexpected_retry_delay_ms":7000,"cap_drop":["ALL"]}"#;
    stub.on("GET /api/definitions/resize", "200 OK", JSON, json);
    let shown = run(&mut stub.longshore(&["definitions", "resize"]));
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
fn definition_values_are_formatted_for_people() {
    let stub = Stub::new();
    let last = job(17, r#""state":"failed","outcome":"failed","exit_code":3,"reason":"exit code 3""#);
    let json = format!(
        r#"{{"name":"resize","command":["sh","-c","echo a b"],"last_ended":{last},"cpus_milli":1500,
            "retry":{{"max":2,"exit_codes":[3,4],"when":["failed","timed_out"],"backoff_initial_ms":10000,"backoff_factor_milli":2000}},
            "waiting":[{{"code":"busy","text":"all slots are taken","count":3}},{{"code":"not_due","text":"it is not due yet","count":1}}]}}"#
    );
    stub.on("GET /api/definitions/resize", "200 OK", JSON, &json);
    let shown = run(&mut stub.longshore(&["definitions", "resize"])).out;
    for line in [
        "command    sh -c 'echo a b'",
        "cpus       1.5",
        "last_ended job 17, failed, exit 3",
        "retry      backoff_factor 2, backoff_initial 10s, exit_codes 3 4, max 2, when failed timed_out",
        "waiting    3: all slots are taken; 1: it is not due yet",
    ] {
        assert!(shown.lines().any(|it| it == line), "{line} in\n{shown}");
    }
}

#[test]
fn definitions_are_filtered_by_tag() {
    let stub = Stub::new();
    let list = r#"[{"name":"resize","revision":"5c1e","enabled":true,"runtime":"docker"}]"#;
    stub.on("GET /api/definitions?last_ended=1&tag=nightly", "200 OK", JSON, list);
    let said = run(&mut stub.longshore(&["definitions", "--tag", "nightly"]));
    assert_eq!((said.code, said.out.lines().count()), (0, 2), "{said:?}");
}

#[test]
fn reload_prints_the_changes() {
    let stub = Stub::new();
    let changed = r#"{"definitions":2,"added":["backup"],"changed":["resize"],"removed":[],"warnings":["jobs.yaml:3:1: odd"]}"#;
    stub.on("POST /api/definitions/reload", "200 OK", JSON, changed);
    let reloaded = run(&mut stub.longshore(&["reload"]));
    assert_eq!(reloaded.out, "2 definitions; added: backup; changed: resize\n");
    assert_eq!((reloaded.code, reloaded.err.as_str()), (0, "warning: jobs.yaml:3:1: odd\n"));
    stub.on("POST /api/definitions/reload?expect=aa&expect_new=bb", "200 OK", JSON, changed);
    assert_eq!(run(&mut stub.longshore(&["reload", "--expect", "aa", "--expect-new", "bb"])).code, 0);
}

#[test]
fn plan_prints_a_difference_and_exits_with_2_on_request() {
    let stub = Stub::new();
    let plan = r#"{"current_revision":"aa","revision":"bb","added":[{"name":"backup","next":["2026-11-24T02:00:00.000Z"],"queued":0,"unmet":["disk=ssd"]}],
        "removed":[{"name":"old","queued":3}],"changed":[{"name":"resize","queued":1,"scheduled":2,"from_revision":"1","to_revision":"2","keys":[
        {"key":"concurrency.limit","old":1,"new":2,"at_once":true},
        {"key":"image","old":"resize:1","new":"resize:2"},{"key":"timeout_ms","new":60000},{"key":"environment.PW","hidden":true}]}],
        "unchanged":7,"warnings":["jobs.yaml:3:1: odd"]}"#;
    stub.on("POST /api/definitions/plan", "200 OK", JSON, plan);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs.yaml");
    std::fs::write(&file, "jobs: {}").unwrap();
    let file = file.to_str().unwrap();
    let said = run(&mut stub.longshore(&["plan", file]));
    let expected = "+ backup\n    next: 2026-11-24T02:00:00.000Z\n    no connected worker has disk=ssd\n- old\n    waiting jobs that keep their revision: 3\n~ resize\n    concurrency.limit: 1 -> 2 (*)\n    \
        image: resize:1 -> resize:2\n    timeout_ms: none -> 60000\n    environment.PW: changed (values are not shown)\n    waiting jobs that keep their revision, but for (*): 3\n\
        (*) acts at once, also on jobs that were made before; other keys hold for new jobs\n\
        1 added, 1 removed, 1 changed, 7 unchanged; present revision aa\n\
        new revision bb; to load exactly this: longshore reload --expect aa --expect-new bb, or longshore deploy FILE --expect aa\n";
    assert_eq!(
        (said.code, said.out.as_str(), said.err.as_str()),
        (0, expected, &*format!("warning: {file}:3:1: odd\n"))
    );
    assert_eq!(run(&mut stub.longshore(&["plan", file, "--exit-code"])).code, 2);
    assert_eq!(run(&mut stub.longshore(&["plan", "missing.yaml"])).code, 2);
    assert_eq!(run(&mut stub.longshore(&["plan", "missing.yaml", "--exit-code"])).code, 1);
    assert_eq!(run(&mut stub.longshore(&["plan", file, "--exit-code", "--surprise"])).code, 1);
    assert_eq!(run(&mut stub.longshore(&["plan", file, "--surprise"])).code, 2);
    let stub = Stub::new();
    stub.on(
        "POST /api/definitions/plan",
        "200 OK",
        JSON,
        &plan.replace("\"unchanged\"", "\"cancels_removed\":true,\"unchanged\""),
    );
    let said = run(&mut stub.longshore(&["plan", file]));
    assert!(said.out.contains("- old\n    3 waiting jobs will be cancelled\n~ resize\n"), "{said:?}");
    let none = r#"{"current_revision":"aa","revision":"aa","added":[],"removed":[],"changed":[],"unchanged":7,"warnings":[]}"#;
    let stub = Stub::new();
    stub.on("POST /api/definitions/plan", "200 OK", JSON, none);
    assert_eq!(run(&mut stub.longshore(&["plan", file, "--exit-code"])).code, 0);
    let stub = Stub::new();
    let problem = r#"{"code":"invalid_token","status":401,"title":"no","detail":"no valid token"}"#;
    stub.on("POST /api/definitions/plan", "401 Unauthorized", "application/problem+json", problem);
    assert_eq!(run(&mut stub.longshore(&["plan", file])).code, 3);
    assert_eq!(run(&mut stub.longshore(&["plan", file, "--exit-code"])).code, 1);
}

#[test]
fn ls_prints_csv_and_ndjson_as_they_come() {
    let stub = Stub::new();
    let csv = "id,name,reason\r\n7,resize,\"'=1\"\r\n";
    stub.on("GET /api/jobs?state=failed&limit=5", "200 OK", "text/csv; charset=utf-8; header=present", csv);
    let said = run(&mut stub.longshore(&["ls", "--state", "failed", "-n", "5", "-o", "csv"]));
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, csv, ""));
    let lines = format!("{}\n{}\n", job(9, r#""state":"failed""#), job(8, r#""state":"failed""#));
    stub.on("GET /api/jobs", "200 OK", "application/x-ndjson", &lines);
    let said = run(&mut stub.longshore(&["ls", "-o", "ndjson"]));
    assert_eq!((said.code, said.out), (0, lines));

    let quiet = run(&mut stub.longshore(&["ls", "-q", "-o", "csv"]));
    assert!(quiet.code == 2 && quiet.err.contains("--quiet prints ids"), "{quiet:?}");
}

#[test]
fn ls_says_that_an_export_broke_off_or_is_none() {
    let stub = Stub::new();
    let cut = "HTTP/1.1 200 OK\r\ncontent-type: text/csv\r\nconnection: close\r\ncontent-length: 99\r\n\r\nid\r\n7\r\n";
    stub.on_raw("GET /api/jobs", cut.as_bytes());
    let said = run(&mut stub.longshore(&["ls", "-o", "csv"]));
    assert!(
        said.code == 6 && said.err.contains("the list broke off") && said.out == "id\r\n7\r\n",
        "{said:?}"
    );
    let other = Stub::new();
    other.on("GET /api/jobs", "200 OK", JSON, "[]");
    let said = run(&mut other.longshore(&["ls", "-o", "csv"]));
    assert!(said.code == 1 && said.out.is_empty() && said.err.contains("not from a Longshore"), "{said:?}");
    let problem = r#"{"code":"unknown_name","status":422,"title":"no","detail":"no such name"}"#;
    for format in ["json", "ndjson"] {
        let stub = Stub::new();
        let line = if format == "json" { "GET /api/jobs?name=x&limit=20" } else { "GET /api/jobs?name=x" };
        stub.on(line, "422 Unprocessable Content", "application/problem+json", problem);
        let said = run(&mut stub.longshore(&["ls", "--name", "x", "-o", format]));
        assert!(
            said.code == 2 && said.err.contains("\"unknown_name\""),
            "an error is JSON as well: {said:?}"
        );
    }
}

#[tokio::test]
async fn ls_exports_the_jobs_of_a_server() {
    let jobs = "version: 1\njobs:\n  talks: { runtime: process, command: ['true'] }\n";
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs);
    let _server = cluster.start_server(&[]).await;
    for label in ["=1+1", "plain"] {
        let body = serde_json::json!({ "labels": { "team": label } });
        cluster.api().post("/api/jobs/talks", Some(&body)).await;
    }
    let ls = |format: &str| cluster.run_cli(&["ls", "-o", format, "--server", &cluster.address()]);
    let (code, csv) = ls("csv");
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!((code, rows.len()), (0, 3), "{csv}");
    assert!(rows[0].starts_with("id,name,state,") && rows[1].starts_with("2,talks,queued,"), "{csv}");
    assert!(rows[2].ends_with("\"{\"\"team\"\":\"\"=1+1\"\"}\","), "{csv}");
    let (code, ndjson) = ls("ndjson");
    let jobs = cluster.api().get("/api/jobs").await;
    let lines: Vec<serde_json::Value> =
        ndjson.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, lines), (0, jobs.as_array().unwrap().clone()));
}
