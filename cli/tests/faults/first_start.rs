//! First steps with an open data directory or a wrong jobs file: the server warns.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::{Cluster, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn files_in_an_open_data_directory_are_private() {
    let cluster = Cluster::new(JOBS);
    let data = cluster.path("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = cluster.start_server(&[]).await;
    let warning = format!("To close it: chmod 700 {}", data.display());
    assert!(server.log().contains(&warning), "{}", server.log());
    let api = cluster.api();
    let _worker = cluster.start_worker("only", &["--no-docker", "--allow-fake"]);
    api.post("/api/jobs/say", None).await;
    api.wait_until_all_ended().await;
    let logs = data.join("logs");
    wait_for("the output is kept", async || first_of(&logs).map(|_| ())).await;
    for directory in [&data, &logs] {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode & 0o077, 0, "{}: {mode:04o}", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_jobs_file_is_shown_to_the_caller_and_in_the_log() {
    let cluster = Cluster::new(JOBS);
    let server = cluster.start_server(&[]).await;
    std::fs::write(cluster.path("jobs.yaml"), "jobs:\n  say: { imgae: x, priority: 9999 }\n").unwrap();
    let (code, said) = cluster.run_cli(&["reload", "--server", &cluster.address()]);
    assert_eq!(code, 2, "{said}");
    for expected in ["jobs.yaml:2:10: unknown_field: ", "out_of_range: ", "[invalid_jobs_file]"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let log = server.log();
    assert!(log.contains("jobs.yaml refused; the definitions stay unchanged faults=2"), "{log}");
    for expected in [
        "jobs.yaml:2:10",
        "code=\"unknown_field\"",
        "code=\"out_of_range\"",
        "is not a whole number in -100..100",
    ] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
}

fn first_of(directory: &Path) -> Option<std::fs::DirEntry> {
    std::fs::read_dir(directory).ok()?.next()?.ok()
}

const JOBS: &str = "jobs: { say: { runtime: fake, environment: { FAKE_STDOUT: hello } } }";
