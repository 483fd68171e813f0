//! `longshore grep`, against a stub server and against a real server with a real worker.

use testkit::Cluster;

use crate::stub::{JSON, Stub, run};

fn line(job: u64, text: &str) -> String {
    format!(
        r#"{{"job":{job},"name":"resize","attempt":1,"stream":"stderr","offset":0,"text":"{text}","matches":[[0,1]]}}"#
    )
}

fn page(lines: &str, next: &str) -> String {
    let complete = next.is_empty();
    format!(
        r#"{{"lines":[{lines}],"scanned_bytes":9,"scanned_jobs":1,"jobs_left_at_most":1,"complete":{complete}{next}}}"#
    )
}

#[test]
fn the_cursor_is_followed_and_hostile_output_is_harmless() {
    let stub = Stub::new();
    let first = "GET /api/logs/search?q=a+b&regex=1&name=resize&limit=500";
    stub.on(first, "200 OK", JSON, &page(&line(9, "a\\u001b[2Jb"), r#","next":"c2""#))
        .on(&format!("{first}&cursor=c2"), "200 OK", JSON, &page("", r#","next":"c3""#))
        .on(&format!("{first}&cursor=c3"), "200 OK", JSON, &page(&line(7, "ab"), ""));
    let said = run(&mut stub.longshore(&["grep", "-E", "a b", "--name", "resize"]));
    assert_eq!((said.code, said.out.as_str()), (0, "job 9 stderr: a␛[2Jb\njob 7 stderr: ab\n"), "{said:?}");
}

#[test]
fn nothing_found_exits_with_1_and_every_error_with_2() {
    let stub = Stub::new();
    stub.on("GET /api/logs/search?q=x&limit=500", "200 OK", JSON, &page("", "")).on(
        "GET /api/logs/search?q=x&job=7&limit=500",
        "404 Not Found",
        "application/problem+json",
        r#"{"status":404,"code":"job_not_found","title":"there is no job with this id"}"#,
    );
    let said = run(&mut stub.longshore(&["grep", "x"]));
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (1, "", ""));
    let said = run(&mut stub.longshore(&["grep", "x", "--job", "7"]));
    assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
}

const JOBS: &str = r#"
jobs:
  talks:
    runtime: process
    command: ["sh", "-c", "echo Needle in stdout; echo other; echo needle 12 in stderr >&2"]
  silent: {runtime: process, command: ["sh", "-c", "echo no such thing as a needle"]}
"#;

fn grep(cluster: &Cluster, arguments: &[&str]) -> (i32, String) {
    cluster.run_cli(&[&["grep"], arguments, &["--server", &cluster.address()]].concat())
}

#[tokio::test]
async fn output_of_jobs_is_found_by_text_and_by_pattern() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&[]).await;
    let _worker = cluster.start_worker("w1", &["--no-docker", "--allow-process", "--slots", "2"]);
    cluster.api().wait_for_ready_worker("w1").await;
    for name in ["talks", "silent"] {
        let (code, said) = cluster.run_cli(&["run", name, "--follow", "--server", &cluster.address()]);
        assert_eq!(code, 0, "{said}");
    }
    let (code, said) = grep(&cluster, &["needle"]);
    let (silent, talks) =
        ("job 2 stdout: no such thing as a needle\n", "job 1 stderr: needle 12 in stderr\n");
    assert_eq!((code, said), (0, format!("{silent}{talks}")));
    let (code, said) = grep(&cluster, &["-i", "NEEDLE", "--name", "talks"]);
    assert_eq!((code, said), (0, format!("job 1 stdout: Needle in stdout\n{talks}")));
    // A page of one line: the cursor leads on.
    let first = cluster.api().get("/api/logs/search?q=needle&limit=1").await;
    assert_eq!((first["lines"].as_array().map(Vec::len), &first["complete"]), (Some(1), &false.into()));
    let next = first["next"].as_str().unwrap();
    let second = cluster.api().get(&format!("/api/logs/search?q=needle&limit=500&cursor={next}")).await;
    assert_eq!((&second["lines"][0]["job"], &second["complete"]), (&1.into(), &true.into()));
    assert_eq!(second["lines"][0]["matches"], serde_json::json!([[0, 6]]));
    let (code, said) = grep(&cluster, &["-E", r"needle \d+", "--stream", "stderr", "--job", "1"]);
    assert_eq!((code, said.as_str()), (0, talks));
    assert_eq!(grep(&cluster, &["-E", "needle (", "--job", "1"]).0, 2);
    assert_eq!(grep(&cluster, &[r"needle \d+"]), (1, String::new()));
    assert_eq!(grep(&cluster, &["needle", "--job", "77"]).0, 2);

    let batch = serde_json::json!([{ "name": "talks" }, { "name": "silent" }, { "name": "talks" }]);
    let api = cluster.api();
    api.post("/api/jobs", Some(&batch)).await;
    for job in 3..=5 {
        api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    }
    let (code, said) = grep(&cluster, &["needle 12", "--batch", "3"]);
    let found = "job 5 stderr: needle 12 in stderr\njob 3 stderr: needle 12 in stderr\n";
    assert_eq!((code, said.as_str()), (0, found), "job 1 is of no batch");
    let (code, said) = grep(&cluster, &["needle 12", "--batch", "1"]);
    assert!(code == 2 && said.contains("there is no batch 1"), "{said}");
}
