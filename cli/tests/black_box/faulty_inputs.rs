//! Files that a verb cannot take: the text names the file and the fault, before anything is sent.

use testkit::Cluster;

const JOBS: &str = "jobs: { hello: { runtime: fake } }\n";

async fn start() -> (Cluster, testkit::Process) {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let server = cluster.start_server(&["--allow-deploy"]).await;
    (cluster, server)
}

/// Runs a verb on a file, and returns its text.
fn refused(cluster: &Cluster, verb: &str, file: &str) -> String {
    let address = cluster.address();
    let server = if verb == "validate" { Vec::new() } else { vec!["--server", &address] };
    let (code, text) = cluster.run_cli(&[&[verb, file], &server[..]].concat());
    assert_eq!(code, 2, "{verb}: {text}");
    text
}

#[tokio::test]
async fn a_file_without_jobs_is_the_same_fault_for_each_verb() {
    let (cluster, _server) = start().await;
    let file = cluster.path("mine.yaml").display().to_string();
    for text in ["", "# nothing yet\n", "jobs: {}\n"] {
        std::fs::write(&file, text).unwrap();
        for verb in ["validate", "plan", "deploy"] {
            let told = refused(&cluster, verb, &file);
            assert!(told.contains(&format!("{file}: no_jobs: file defines no jobs\n")), "{verb}: {told}");
        }
    }
    std::fs::write(cluster.path("jobs.yaml"), "jobs: {}\n").unwrap();
    let (code, told) = cluster.run_cli(&["reload", "--server", &cluster.address()]);
    assert!(code == 2 && told.contains("jobs.yaml: no_jobs: file defines no jobs"), "{told}");
    let (code, told) = cluster.run_cli(&["validate", &file, "-o", "json"]);
    assert!(code == 2 && told.contains("\"valid\": false") && told.contains("no_jobs"), "{told}");
}

#[test]
fn a_fault_that_follows_from_the_default_lease_says_that_the_server_may_have_another() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let file = cluster.path("mine.yaml").display().to_string();
    std::fs::write(&file, "jobs: { a: { image: a, lost_after: 20s } }\n").unwrap();
    let assumed = "that is for the default lease, and the server may have another one: give it with --lease";
    let (code, told) = cluster.run_cli(&["validate", &file]);
    assert!(code == 2 && told.contains("at least 30s") && told.contains(assumed), "{told}");
    let (code, told) = cluster.run_cli(&["validate", &file, "--lease", "30s"]);
    assert!(code == 2 && told.contains("at least 30s") && !told.contains(assumed), "{told}");
}

#[tokio::test]
async fn a_file_that_is_too_large_or_no_utf8_is_named() {
    let (cluster, _server) = start().await;
    let file = cluster.path("mine.yaml").display().to_string();
    std::fs::write(&file, format!("{JOBS}#{}", "x".repeat(2_000_000))).unwrap();
    for verb in ["validate", "plan", "deploy"] {
        let told = refused(&cluster, verb, &file);
        let expected = format!("{file}: file_too_large: it is larger than 2000000 bytes");
        assert!(told.contains(&expected), "{verb}: {told}");
    }
    std::fs::write(&file, b"{\"name\": \"hello\"}\n# \xff\n").unwrap();
    for verb in ["validate", "plan", "deploy", "submit"] {
        let told = refused(&cluster, verb, &file);
        let expected = format!("{file}: not_utf8: it is not UTF-8 at byte offset 20");
        assert!(told.contains(&expected), "{verb}: {told}");
    }
    std::fs::File::create(&file).unwrap().set_len((64 << 20) + 1).unwrap();
    let told = refused(&cluster, "submit", &file);
    assert!(told.contains(&format!("{file}: file_too_large: it is larger than 67108864 bytes")), "{told}");
}

#[tokio::test]
async fn a_jobs_file_is_no_list_of_jobs() {
    let (cluster, _server) = start().await;
    let file = cluster.path("jobs.yaml").display().to_string();
    let told = refused(&cluster, "submit", &file);
    assert!(told.contains(&format!("{file}: this is no list of jobs")) && told.contains("NDJSON"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    for list in ["[{\"name\": \"hello\"}]", "\n {\"name\": \"hello\"}\n"] {
        std::fs::write(cluster.path("list"), list).unwrap();
        let list = cluster.path("list").display().to_string();
        let (code, told) = cluster.run_cli(&["submit", &list, "--server", &cluster.address()]);
        assert_eq!(code, 0, "{told}");
    }
}

#[tokio::test]
async fn a_plan_shows_targets_in_words_and_hides_their_urls() {
    let (cluster, _server) = start().await;
    let file = cluster.path("mine.yaml").display().to_string();
    let notify = "notify: { webhook: 'https://hooks.example/planted', on: [failed] }";
    std::fs::write(&file, JOBS.replace("runtime: fake", &format!("runtime: fake, {notify}"))).unwrap();
    let (code, told) = cluster.run_cli(&["plan", &file, "--server", &cluster.address()]);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("    notify: none -> webhook hooks.example on failed, at most every "), "{told}");
    assert!(!told.contains("planted") && !told.contains("period_ms"), "{told}");
}
