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
