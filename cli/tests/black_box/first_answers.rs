//! Verbs that wait, and whose server is away at their first request.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use testkit::{Cluster, ProcessSpec, wait_until};

use crate::stub::{JSON, RecordedRequest, Stub, job, longshore, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_longshore");
const PROBLEM: &str = "application/problem+json";

const JOBS: &str = "version: 1
jobs:
  quick: { runtime: process, command: ['true'] }
  broken: { runtime: process, command: [sh, -c, 'exit 3'] }
  each: { runtime: process, command: [echo, '${params.size}'], params: { size: { type: integer, required: true } } }
";

#[tokio::test(flavor = "multi_thread")]
async fn a_verb_that_waits_also_waits_for_the_start_of_the_server() {
    let cluster = Cluster::new(PROGRAM, JOBS);
    let mut server = cluster.start_server(&[]).await;
    let flags = ["--no-docker", "--allow-process", "--slots", "8"];
    let worker = cluster.start_worker("only", &flags);
    let api = cluster.api();
    api.wait_for_ready_worker("only").await;
    api.post("/api/jobs/broken", None).await;
    for _ in 0..2 {
        api.post("/api/jobs/broken", Some(&serde_json::json!({ "count": 2 }))).await;
    }
    api.wait_until_all_ended().await;
    server.terminate().await;

    let [list, sizes] = ["list.json", "sizes.txt"].map(|name| cluster.path(name).display().to_string());
    std::fs::write(&list, r#"[{"name":"quick"},{"name":"quick"}]"#).unwrap();
    std::fs::write(&sizes, "1\n2\n").unwrap();
    // The verb, its exit code, and the jobs that it makes.
    let verbs: &[(&[&str], i32, usize)] = &[
        (&["run", "quick", "--wait"], 0, 1),
        (&["run", "broken", "--follow"], 3, 1),
        (&["run", "quick", "--count", "2", "--wait"], 0, 2),
        (&["run", "each", "--each", &sizes, "--wait"], 0, 2),
        (&["submit", &list, "--wait"], 0, 2),
        (&["wait", "1"], 3, 0),
        (&["wait", "2[1]"], 3, 0),
        (&["wait", "1", "batch:2"], 3, 0),
        (&["logs", "-f", "1"], 0, 0),
        (&["logs", "-f", "1", "--exit-code"], 3, 0),
        (&["batch", "2", "--wait"], 1, 0),
        (&["batch", "2", "--follow"], 1, 0),
        (&["batch", "2", "retry", "--yes", "--wait"], 1, 2),
        (&["retry", "1", "--wait"], 3, 1),
        (&["retry", "4", "5", "--wait"], 3, 2),
    ];
    let address = cluster.address();
    let with_server = ["--server", &*address];
    let mut waiting = Vec::new();
    for (number, (words, ..)) in verbs.iter().enumerate() {
        let words = words.iter().chain(&with_server).map(|word| (*word).to_owned());
        let log = cluster.path(&format!("verb-{number}.log"));
        waiting.push(ProcessSpec::new(Path::new(PROGRAM), words.collect(), log).start());
    }
    for (verb, (words, ..)) in waiting.iter_mut().zip(verbs) {
        let told = format!("longshore: no answer from http://{address}/: ");
        let whole = "; trying again for 15 minutes\n";
        wait_until(&format!("{words:?} waits"), async || {
            let log = verb.log();
            log.starts_with(&told) && log.ends_with(whole)
        })
        .await;
    }
    let mut server = cluster.start_server(&[]).await;
    for (verb, (words, code, _)) in waiting.iter_mut().zip(verbs) {
        let status = verb.wait_for_exit().await;
        assert_eq!(status.code(), Some(*code), "{words:?}: {}", verb.log());
        assert_eq!(verb.log().matches("trying again").count(), 1, "{words:?}: {}", verb.log());
    }
    let expected = 5 + verbs.iter().map(|(.., jobs)| jobs).sum::<usize>();
    assert_eq!(api.all_jobs().await.len(), expected, "nothing was made twice");
    drop(worker);
    server.terminate().await;
}

#[test]
fn a_limit_also_ends_the_wait_for_the_first_answer() {
    for words in [
        &["wait", "12", "--timeout", "150ms"][..],
        &["wait", "12", "13", "--timeout", "150ms", "-o", "ndjson"],
        &["batch", "12", "--wait=150ms"],
        &["run", "resize", "--wait=150ms"],
        &["run", "resize", "--count", "2", "--wait=150ms"],
        &["retry", "12", "--wait=150ms"],
        &["retry", "12", "13", "--wait=150ms"],
    ] {
        let said = run(&mut longshore(words));
        let (note, error) = said.err.split_once('\n').unwrap_or_default();
        let why = "no answer from http://127.0.0.1:1/: Connection refused";
        assert!(note.starts_with(&format!("longshore: {why}")) && note.ends_with("for 150ms"), "{said:?}");
        assert!(error.starts_with(&format!("error: gave up after 150ms: {why}")), "{words:?}: {said:?}");
        assert!(error.contains("check that it runs"), "{said:?}");
        assert_eq!((said.code, said.out.as_str()), (6, ""), "{words:?}: {said:?}");
    }
}

#[test]
fn a_server_that_answers_late_is_not_one_that_is_away() {
    // Connections are made, and nobody reads from them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    for words in [&["wait", "12", "--timeout", "150ms"][..], &["batch", "12", "--wait=150ms"]] {
        let said = run(longshore(words).env("LONGSHORE_SERVER", &address));
        assert!(said.code == 124 && said.err.contains("has not ended"), "{words:?}: {said:?}");
    }
}

#[test]
fn a_limit_bounds_every_request_to_a_silent_server() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let [list, sizes] = ["list.json", "sizes.txt"].map(|name| directory.path().join(name));
    std::fs::write(&list, r#"[{"name":"resize"}]"#).unwrap();
    std::fs::write(&sizes, "1\n2\n").unwrap();
    let [list, sizes] = [list.to_str().unwrap(), sizes.to_str().unwrap()];
    let (unmade, made) = ("the server has not answered\n", "the server has not answered; the ");
    for (words, told) in [
        (&["wait", "12[3]", "--timeout", "150ms"][..], unmade),
        (&["retry", "12[3]", "--wait=150ms"], unmade),
        (&["pipeline", "12[3]", "retry", "--wait=150ms"], unmade),
        (&["run", "each", "--each", sizes, "--wait=150ms"], unmade),
        (&["run", "resize", "--wait=150ms"], made),
        (&["run", "resize", "--count", "2", "--wait=150ms"], made),
        (&["submit", list, "--wait=150ms"], made),
        (&["retry", "12", "--wait=150ms"], made),
        (&["retry", "12", "13", "--wait=150ms"], made),
        (&["batch", "12", "retry", "--yes", "--wait=150ms"], made),
    ] {
        let said = run(longshore(words).env("LONGSHORE_SERVER", &address));
        let error = format!("error: the time of 150ms is up: {told}");
        assert!(said.code == 124 && said.err.starts_with(&error), "{words:?}: {said:?}");
        assert_eq!(said.err.contains("may have been"), told == made, "{words:?}: {said:?}");
    }
}

#[test]
fn a_server_that_has_refused_once_and_is_back_is_not_away() {
    let busy = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ";
    let batch = r#"{"id":12,"state":"running","created_at":"2026-03-01T09:30:00.000Z","count":1,"counts":{"scheduled":0,
        "queued":0,"assigned":0,"running":1,"quarantined":0,"succeeded":0,"failed":0,"cancelled":0,"expired":0,"lost":0},
        "progress":0.0}"#;
    let running = job(12, r#""state":"running""#);
    for (words, shown) in
        [(&["wait", "12", "--timeout", "4s"][..], running.as_str()), (&["batch", "12", "--wait=4s"], batch)]
    {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", server.local_addr().unwrap());
        let answers = [busy.to_owned(), format!("{head}{}\r\n\r\n{shown}", shown.len())];
        let serving = std::thread::spawn(move || {
            let mut unanswered = Vec::new();
            for (number, answer) in answers.iter().enumerate() {
                let (mut client, _) = server.accept().unwrap();
                let mut request = [0; 4096];
                let length = client.read(&mut request).unwrap();
                // A request that waits for the end of the job gets no answer before.
                let is_wait = String::from_utf8_lossy(&request[..length]).contains("?wait=");
                match number > 0 && is_wait {
                    true => unanswered.push(client),
                    false => client.write_all(answer.as_bytes()).unwrap(),
                }
            }
            (server, unanswered)
        });
        let said = run(longshore(words).env("LONGSHORE_SERVER", &address));
        assert!(said.code == 124 && said.err.contains("trying again"), "{words:?}: {said:?}");
        drop(serving.join().unwrap());
    }
}

#[test]
fn a_retry_of_several_jobs_with_changes_gives_up_once() {
    let said = run(&mut longshore(&["retry", "4", "5", "6", "-e", "A=1", "--wait=150ms"]));
    assert_eq!((said.code, said.err.matches("trying again").count()), (6, 1), "{said:?}");
    assert_eq!(said.err.matches("error: ").count(), 1, "{said:?}");
    assert!(said.err.contains("error: job 4: gave up after 150ms: no answer"), "{said:?}");
    assert!(said.err.ends_with("longshore: later jobs were not requested\n"), "{said:?}");
}

#[test]
fn verbs_that_do_not_wait_fail_at_once() {
    for words in [&["run", "resize"][..], &["retry", "12"], &["batch", "12"], &["logs", "12"], &["ls"]] {
        let said = run(&mut longshore(words));
        assert!(said.code == 6 && said.err.starts_with("error: no answer from "), "{words:?}: {said:?}");
    }
}

#[test]
fn errors_that_a_wait_does_not_mend_end_a_verb_at_once() {
    let no_name = format!("http://{}.invalid", "a".repeat(64));
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let no_tls = format!("https://{}", plain.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut client in plain.incoming().flatten() {
            // Its first bytes are no HTTP, and neither is the answer TLS.
            let read = client.read(&mut [0; 1024]);
            let _ = read.and_then(|_| client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        }
    });
    for (address, why) in [(&no_name, "failed to lookup"), (&no_tls, "no TLS connection")] {
        for words in [&["run", "resize", "--wait"][..], &["wait", "12"], &["batch", "12", "--wait"]] {
            let said = run(longshore(words).env("LONGSHORE_SERVER", address));
            assert!(said.code == 6 && said.err.starts_with("error: ") && said.err.contains(why), "{said:?}");
        }
    }
    for (status, code, exit) in [
        ("401 Unauthorized", "invalid_token", 3),
        ("403 Forbidden", "forbidden", 3),
        ("404 Not Found", "unknown_job", 4),
        ("429 Too Many Requests", "limit_full", 6),
        ("503 Service Unavailable", "no_worker", 6),
        ("507 Insufficient Storage", "storage_low", 6),
    ] {
        let stub = Stub::new();
        let problem = format!(r#"{{"code":"{code}","detail":"no"}}"#);
        stub.on("POST /api/jobs/resize", status, PROBLEM, &problem);
        let said = run(&mut stub.longshore(&["run", "resize", "--wait"]));
        assert_eq!((said.code, stub.requests().len()), (exit, 1), "{said:?}");
        assert!(said.err.starts_with("error: no ["), "{said:?}");
    }
}

#[test]
fn a_server_that_refuses_for_a_while_is_asked_again_with_the_same_key() {
    let (line, ended) = ("POST /api/jobs/resize", job(12, r#""state":"succeeded""#));
    let stub = Stub::new();
    let busy = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 0\r\n\
                content-length: 38\r\nconnection: close\r\n\r\n{\"code\":\"draining\",\"detail\":\"leaving\"}";
    stub.on_raw(line, busy.as_bytes())
        .on(line, "502 Bad Gateway", "text/plain", "no upstream")
        .on(line, "201 Created", JSON, &job(12, r#""state":"queued""#))
        .on("GET /api/jobs/12?wait=60s", "200 OK", JSON, &ended)
        .on("GET /api/jobs/12", "200 OK", JSON, &ended);
    let said = run(&mut stub.longshore(&["run", "resize", "--wait"]));
    assert_eq!(said.code, 0, "{said:?}");
    let note = "longshore: leaving [draining]; trying again for 15 minutes\n";
    assert!(said.err.starts_with(note) && said.err.matches("trying again").count() == 1, "{said:?}");
    let keys = keys(&stub, line);
    assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[test]
fn an_answer_that_is_lost_is_asked_for_until_it_comes() {
    let (line, ended) = ("POST /api/jobs", job(12, r#""state":"succeeded""#));
    let stub = Stub::new();
    for _ in 0..4 {
        stub.on_raw(line, b"");
    }
    let counts = r#"{"scheduled":0,"queued":0,"assigned":0,"running":0,"quarantined":0,"succeeded":1,"failed":0,
        "cancelled":0,"expired":0,"lost":0}"#;
    let batch = format!(
        r#"{{"id":12,"state":"succeeded","created_at":"2026-03-01T09:30:00.000Z","count":1,"counts":{counts},
            "progress":1.0,"ended_at":"2026-03-01T09:31:00.000Z"}}"#
    );
    let made = r#"{"batch":12,"count":1,"first":12,"last":12,"replayed":true}"#;
    stub.on(line, "200 OK", JSON, made).on("GET /api/batches/12?wait=1s", "200 OK", JSON, &batch).on(
        "GET /api/jobs/12",
        "200 OK",
        JSON,
        &ended,
    );
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("list.json");
    std::fs::write(&list, r#"[{"name":"resize"}]"#).unwrap();
    let said = run(&mut stub.longshore(&["submit", list.to_str().unwrap(), "--wait"]));
    assert_eq!(said.code, 0, "{said:?}");
    let keys = keys(&stub, line);
    assert!(keys.len() == 5 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test]
async fn ctrl_c_ends_the_wait_for_the_first_answer() {
    for (words, told) in [
        (&["run", "resize", "--wait", "--key", "mine"][..], "repeat the command with --key mine"),
        (&["run", "resize", "--follow", "--key", "mine"], "repeat the command with --key mine"),
        (&["wait", "12"], "job 12 has not ended"),
        (&["wait", "12[3]"], "trying again"),
        (&["batch", "12", "--wait"], "batch 12 continues"),
        (&["retry", "12", "--wait"], "interrupted"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("err");
        let mut command = longshore(words);
        command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let said = || std::fs::read_to_string(&log).unwrap();
        wait_until("it tries again", async || said().ends_with("trying again for 15 minutes\n")).await;
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let status = child.wait().unwrap();
        assert!(status.code() == Some(130) && said().contains(told), "{words:?}: {status}: {}", said());
    }
}

/// The keys of the requests with this line.
fn keys(stub: &Stub, line: &str) -> Vec<String> {
    let key = |request: RecordedRequest| {
        request.head.iter().find_map(|header| header.strip_prefix("idempotency-key: ").map(str::to_owned))
    };
    stub.requests().into_iter().filter(|request| request.line == line).filter_map(key).collect()
}
