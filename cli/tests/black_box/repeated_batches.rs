//! Batches whose idempotency key was used before: nothing is made, and the command says so.

use testkit::Cluster;

const JOBS: &str = "version: 1\njobs:\n  resize: { runtime: process, command: ['true'] }\n";

#[tokio::test]
async fn a_key_that_made_a_batch_before_is_told() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&[]).await;
    let server = format!("http://{}", cluster.address());
    let run = |words: &[&str]| cluster.run_cli(&[words, &["--server", &server]].concat());
    let list = cluster.path("jobs.json");
    std::fs::write(&list, r#"[{"name":"resize"},{"name":"resize"}]"#).unwrap();
    let list = list.display().to_string();
    for (batch, words) in [
        (1, ["run", "resize", "--count=2", "--key", "one"]),
        (3, ["submit", &list, "--batch-name=x", "--key", "two"]),
    ] {
        let (code, first) = run(&words);
        assert!(code == 0 && first.contains("has 2 jobs") && !first.contains("before"), "{code}: {first}");
        let (code, again) = run(&words);
        let note = format!("longshore: this key created batch {batch} before; no second batch was created");
        assert!(code == 0 && again.contains(&note), "{code}: {again}");
        let (_, shown) = run(&[&words[..], &["-o", "json"]].concat());
        assert!(shown.contains("\"replayed\": true") && !shown.contains("created_at"), "{shown}");
    }
    let words = ["run", "resize", "--key", "three"];
    let (_, first) = run(&words);
    assert!(!first.contains("before"), "{first}");
    let (_, again) = run(&[&words[..], &["-o", "json"]].concat());
    assert!(
        again.contains("this key created job 5 before") && again.contains("\"replayed\": true"),
        "{again}"
    );
}
