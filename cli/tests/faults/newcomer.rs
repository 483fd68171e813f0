//! What somebody comes upon who has just made a directory, and written a jobs file: what is not as it should be is said.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::{Stage, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_that_others_may_open_has_nothing_for_them_to_read() {
    let stage = Stage::new(JOBS);
    let data = stage.path("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = stage.server(&[]).await;
    let warning = format!("To close it: chmod 700 {}", data.display());
    assert!(server.said().contains(&warning), "{}", server.said());
    let api = stage.api();
    let _worker = stage.worker("only", &["--no-docker", "--allow-fake"]);
    api.post("/api/jobs/say", None).await;
    api.all_ended().await;
    let logs = data.join("logs");
    eventually("the output is kept", async || first_of(&logs).map(|_| ())).await;
    for directory in [&data, &logs] {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode & 0o077, 0, "{}: {mode:04o}", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jobs_file_that_is_refused_is_told_to_whoever_asks_and_in_the_log() {
    let stage = Stage::new(JOBS);
    let server = stage.server(&[]).await;
    std::fs::write(stage.path("jobs.yaml"), "jobs:\n  say: { imgae: x, priority: 9999 }\n").unwrap();
    let (code, said) = stage.verb(&["reload", "--server", &stage.address()]);
    assert_eq!(code, 2, "{said}");
    for expected in ["jobs.yaml:2:10: unknown_field: ", "out_of_range: ", "[invalid_jobs_file]"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let log = server.said();
    assert!(log.contains("is refused: the definitions stay as they were faults="), "{log}");
}

fn first_of(directory: &Path) -> Option<std::fs::DirEntry> {
    std::fs::read_dir(directory).ok()?.next()?.ok()
}

const JOBS: &str = "jobs: { say: { runtime: fake, environment: { FAKE_STDOUT: hello } } }";
