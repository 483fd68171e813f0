//! Verbs that change workers, against a stub server.

use crate::stub::{JSON, Stub, run};

#[test]
fn worker_is_found_by_name_or_id() {
    let worker =
        r#"{"id":3,"name":"anna","state":"ready","slots":4,"busy":1,"since":"2026-03-01T09:30:00.000Z"}"#;
    let stub = Stub::new();
    stub.on("GET /api/workers?all=1", "200 OK", JSON, &format!("[{worker}]")).on(
        "POST /api/workers/3/cordon",
        "200 OK",
        JSON,
        worker,
    );
    let cordon = run(&mut stub.longshore(&["cordon", "anna"]));
    assert_eq!(
        (cordon.code, cordon.out.as_str()),
        (0, "worker anna (id 3) is cordoned and takes no new jobs\n")
    );
    stub.on("POST /api/workers/3/drain?deadline=1h30m", "200 OK", JSON, worker);
    let drain = run(&mut stub.longshore(&["drain", "anna", "--deadline", "1h30m"]));
    assert_eq!(
        (drain.code, drain.out.as_str()),
        (0, "worker anna (id 3) is draining: it finishes its jobs and exits\n")
    );
    stub.on("POST /api/workers/3/stop-unmanaged?job=12&fence=30", "200 OK", JSON, worker);
    let stop = run(&mut stub.longshore(&["stop-unmanaged", "3", "12#30"]));
    assert_eq!((stop.code, stop.out.as_str()), (0, "worker anna (id 3) stops its unmanaged attempts\n"));
    assert_eq!(run(&mut stub.longshore(&["stop-unmanaged", "3", "12"])).code, 2);
    stub.on("POST /api/workers/3/forget", "204 No Content", JSON, "");
    let forget = run(&mut stub.longshore(&["forget", "3"]));
    assert_eq!((forget.code, forget.out.as_str()), (0, "worker anna (id 3) is forgotten\n"));
    assert_eq!(run(&mut stub.longshore(&["forget", "3", "-o", "json"])).out, "");
    let unknown = run(&mut stub.longshore(&["drain", "bert"]));
    assert_eq!(unknown.code, 4);
    assert_eq!(unknown.err, "error: no worker is called \"bert\"; 'longshore workers --all' lists them\n");
}

#[test]
fn ambiguous_worker_name_is_an_error() {
    let worker = |id: u64, name: &str| {
        format!(
            r#"{{"id":{id},"name":"{name}","state":"ready","slots":4,"busy":1,"since":"2026-03-01T09:30:00.000Z"}}"#
        )
    };
    let stub = Stub::new();
    let all = [worker(2, "1"), worker(4, "2"), worker(5, "anna"), worker(6, "anna")].join(",");
    stub.on("GET /api/workers?all=1", "200 OK", JSON, &format!("[{all}]"))
        .on("POST /api/workers/2/cordon", "200 OK", JSON, &worker(2, "1"))
        .on("POST /api/workers/4/cordon", "200 OK", JSON, &worker(4, "2"));
    let told = run(&mut stub.longshore(&["cordon", "2"]));
    let err = "error: \"2\" matches several workers: \"1\" (id 2) and \"2\" (id 4); give the id as id:2\n";
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (5, "", err));
    for (word, out) in [("1", "1 (id 2)"), ("id:2", "1 (id 2)"), ("4", "2 (id 4)")] {
        let told = run(&mut stub.longshore(&["cordon", word]));
        assert_eq!(
            (told.code, told.out),
            (0, format!("worker {out} is cordoned and takes no new jobs\n")),
            "{word}"
        );
    }
    let twice = run(&mut stub.longshore(&["cordon", "anna"]));
    assert!(twice.code == 5 && twice.err.contains("(id 5) and \"anna\" (id 6)"), "{twice:?}");
    let none = run(&mut stub.longshore(&["cordon", "7"]));
    assert!(none.code == 4 && none.err.contains("no worker has the id 7"), "{none:?}");
}

/// The JSON of a worker, with further members.
fn worker(id: u64, name: &str, more: &str) -> String {
    format!(r#"{{"id":{id},"name":"{name}","slots":4,"since":"2026-03-01T09:30:00.000Z",{more}}}"#)
}

#[test]
fn several_workers_are_changed_by_name_or_label() {
    let (rack_7, ready) =
        (r#""labels":{"rack":"7"},"state":"ready","busy":1"#, r#""state":"ready","busy":0"#);
    let revoked = r#""labels":{"rack":"7"},"state":"revoked","busy":0"#;
    let all = [worker(3, "anna", rack_7), worker(4, "bert", ready), worker(5, "carl", rack_7)];
    let all = format!("[{},{}]", all.join(","), worker(6, "dora", revoked));
    let stub = Stub::new();
    stub.on("GET /api/workers?all=1", "200 OK", JSON, &all);
    let problem = r#"{"code":"busy","status":503,"title":"busy","detail":"the server is busy"}"#;
    stub.on("POST /api/workers/3/cordon", "503 Service Unavailable", "application/problem+json", problem)
        .on("POST /api/workers/4/cordon", "200 OK", JSON, &worker(4, "bert", ready))
        .on("POST /api/workers/5/cordon", "200 OK", JSON, &worker(5, "carl", rack_7));
    let said = run(&mut stub.longshore(&["cordon", "bert", "5", "bert"]));
    let out = "worker bert (id 4) is cordoned and takes no new jobs\nworker carl (id 5) is cordoned and takes no new jobs\n";
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, out, ""));

    // One that is refused does not keep the others from their change.
    let said = run(&mut stub.longshore(&["cordon", "--label", "rack=7", "--yes", "-o", "json"]));
    let shown: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &shown[0]["name"], shown.as_array().unwrap().len()), (6, &"carl".into(), 1));
    assert!(said.err.contains("the server is busy"), "{said:?}");

    let before = stub.requests().len();
    let asked = run(stub.longshore(&["cordon", "--label", "rack=7"]).stdin(std::process::Stdio::null()));
    let err = "error: the label rack=7 selects 2 workers (anna, carl); to cordon them without a question, add --yes\n";
    assert_eq!((asked.code, asked.err.as_str()), (2, err));
    let unknown = run(&mut stub.longshore(&["cordon", "bert", "berta"]));
    assert_eq!((unknown.code, unknown.out.as_str()), (4, ""), "a wrong name changes nothing");
    let none = run(&mut stub.longshore(&["drain", "--label", "rack=8", "--yes"]));
    let err = "error: no worker has the label rack=8; 'longshore workers' shows the labels\n";
    assert_eq!((none.code, none.err.as_str()), (4, err));
    let changes = stub.requests()[before..].iter().filter(|asked| asked.line.starts_with("POST")).count();
    assert_eq!(changes, 0);
}

#[test]
fn drain_waits_until_the_worker_has_no_attempt_left() {
    let stub = Stub::new();
    let at = |state: &str, busy: u32, cordoned: bool| {
        worker(3, "anna", &format!(r#""state":"{state}","busy":{busy},"cordoned":{cordoned}"#))
    };
    let jobs = format!("[{}]", crate::stub::job(12, r#""state":"running","attempt_count":1"#));
    stub.on("GET /api/workers?all=1", "200 OK", JSON, &format!("[{}]", at("ready", 1, false)))
        .on("POST /api/workers/3/drain", "200 OK", JSON, &at("draining", 1, true))
        .on("GET /api/jobs?worker=3&state=running%2Cassigned&limit=10", "200 OK", JSON, &jobs)
        .on("GET /api/workers/3", "200 OK", JSON, &at("draining", 1, true))
        .on("GET /api/workers/3", "200 OK", JSON, &at("draining", 0, true))
        .on("GET /api/workers/3", "200 OK", JSON, &at("drained", 0, true));
    let said = run(&mut stub.longshore(&["drain", "anna", "--wait"]));
    let out = "worker anna (id 3) is draining: it finishes its jobs and exits\nworker anna (id 3) has no attempt left\n";
    let err = "longshore: anna has 1 attempt: job 12 (resize) running\nlongshore: anna has 0 attempts, and has not left yet\n";
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, out, err));
    let said = run(&mut stub.longshore(&["drain", "anna", "--wait", "-o", "json"]));
    let shown: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &shown["state"]), (0, &"drained".into()), "{said:?}");

    let stub = Stub::new();
    stub.on("GET /api/workers?all=1", "200 OK", JSON, &format!("[{}]", at("ready", 1, false)))
        .on("POST /api/workers/3/drain", "200 OK", JSON, &at("draining", 1, true))
        .on("GET /api/workers/3", "200 OK", JSON, &at("draining", 1, true));
    let late = run(&mut stub.longshore(&["drain", "anna", "--wait=1500ms"]));
    assert_eq!(late.code, 124, "{late:?}");
    assert!(late.err.ends_with("longshore: the drain goes on; not done yet: anna\n"), "{late:?}");
    stub.on("GET /api/workers/3", "200 OK", JSON, &at("ready", 1, false));
    let undone = run(&mut stub.longshore(&["drain", "anna", "--wait"]));
    assert_eq!(undone.code, 5, "{undone:?}");
    assert!(undone.err.contains("somebody has taken the drain back"), "{undone:?}");
}
