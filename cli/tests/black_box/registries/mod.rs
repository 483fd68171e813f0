//! Logins for private registries, with real processes, a real engine, and a registry on loopback that refuses all others.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

mod registry;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use registry::Registry;
use serde_json::Value;
use testkit::{Cluster, docker, wait_until};

/// Passwords, and the value of `Authorization` with each.
const FIRST: (&str, &str) = ("planted-registry-3d17", "cm9ib3Q6cGxhbnRlZC1yZWdpc3RyeS0zZDE3");
const SECOND: (&str, &str) = ("planted-registry-9e4b", "cm9ib3Q6cGxhbnRlZC1yZWdpc3RyeS05ZTRi");

fn put_password(cluster: &Cluster, value: &str) {
    let path = cluster.path("password");
    std::fs::write(&path, format!("{value}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Every file below this directory that shows a password in any form. Files that vanish meanwhile show none.
fn files_with_passwords(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_with_passwords(&path)),
            Ok(kind) if kind.is_file() && has_password(&std::fs::read(&path).unwrap_or_default()) => {
                found.push(path.display().to_string());
            }
            _ => {}
        }
    }
    found
}

fn has_password(bytes: &[u8]) -> bool {
    // Libraries show bytes in hexadecimal: the last form is "planted-reg".
    let forms = [FIRST.0, SECOND.0, FIRST.1, SECOND.1, "706c616e7465642d726567"];
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    forms.iter().any(|form| text.contains(&form.to_ascii_lowercase()))
}

fn command_lines_and_environments_are_clean() {
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        for file in ["cmdline", "environ"] {
            let path = process.path().join(file);
            assert!(!has_password(&std::fs::read(&path).unwrap_or_default()), "{}", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_of_the_server_pulls_a_private_image_and_is_nowhere_else() {
    if !docker::is_required() {
        return;
    }
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), "");
    let registry = Registry::start(&cluster.path("image"));
    registry.accept(FIRST.1);
    let name = format!("private-{}", cluster.port());
    let jobs = format!(
        "version: 1
jobs:
  {name}: {{ image: '{}', network: none, pull_policy: always, command: [sh, -c, 'echo pulled; env'] }}
",
        registry.image()
    );
    std::fs::write(cluster.path("jobs.yaml"), jobs).unwrap();
    let registries = format!(
        "version: 1\nregistries:\n  {}/team: {{ username: robot, password_file: password }}\n",
        registry.host()
    );
    std::fs::write(cluster.path("registries.yaml"), registries).unwrap();
    let containers = docker::DefinitionContainers::new(&name);
    let file = cluster.path("registries.yaml").display().to_string();
    let server = cluster.start_server(&["--registries", &file, "--log", "trace"]).await;
    assert!(server.log().contains("password: No such file"), "{}", server.log());
    let flags = ["--secrets-tmpfs", "/dev/shm", "--on-term", "detach", "--log", "trace"];
    let mut worker = cluster.start_worker("w1", &flags);
    cluster.api().wait_for_ready_worker("w1").await;

    // Without the password the job waits, and says why.
    let path = format!("/api/jobs/{name}");
    cluster.api().post(&path, None).await;
    let is_told = |job: &Value| job.to_string().contains("cannot be used: cannot read");
    cluster.api().wait_for_job(1, is_told).await;
    assert_eq!(registry.refused(), 0, "no pull without the login that the server has for it");

    // During the pull the login is in the tmpfs, readable for its owner only.
    let held = registry.hold();
    put_password(&cluster, FIRST.0);
    wait_until("the pull has logged in", async || registry.manifests() > 0).await;
    command_lines_and_environments_are_clean();
    let in_memory = files_with_passwords(Path::new("/dev/shm"));
    assert_eq!(in_memory.len(), 1, "{in_memory:?}");
    let directory = Path::new(&in_memory[0]).parent().unwrap();
    assert_eq!(std::fs::metadata(directory).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(files_with_passwords(&cluster.path("w1")), Vec::<String>::new());

    // The worker is killed: its next start removes the login before it does anything else.
    worker.kill();
    assert!(directory.exists());
    let worker = cluster.start_worker("w1", &flags);
    wait_until("the login that was left is removed", async || !directory.exists()).await;
    drop(held);
    cluster.api().wait_for_job(1, |job| job["state"] == "succeeded").await;
    assert!(registry.refused() > 0, "the registry has asked for the login");

    // A new password counts from the next attempt on, without a restart.
    registry.forget_image();
    registry.accept(SECOND.1);
    put_password(&cluster, SECOND.0);
    cluster.api().post(&path, None).await;
    cluster.api().wait_for_job(2, |job| job["state"] == "succeeded").await;
    let output = String::from_utf8(cluster.api().get_bytes("/api/jobs/2/logs").await).unwrap();
    assert!(output.contains("pulled") && !has_password(output.as_bytes()), "{output}");

    // A text that became faulty changes nothing.
    std::fs::write(&file, "registries: [").unwrap();
    cluster.api().post(&path, None).await;
    cluster.api().wait_for_job(3, |job| job["state"] == "succeeded").await;
    assert!(server.log().contains("the logins of its last valid content stay in use"), "{}", server.log());

    wait_until("nothing is left", async || {
        containers.ids().is_empty() && files_with_passwords(Path::new("/dev/shm")).is_empty()
    })
    .await;
    let backup = cluster.path("backup").display().to_string();
    let data = cluster.path("data").display().to_string();
    let (code, said) = cluster.run_cli(&["backup", "--data", &data, "--to", &backup]);
    assert_eq!(code, 0, "{said}");
    for directory in ["data", "backup", "w1"] {
        assert_eq!(files_with_passwords(&cluster.path(directory)), Vec::<String>::new());
    }
    for path in ["/api/jobs/1", "/api/jobs", "/api/definitions", "/api/workers", "/metrics"] {
        assert!(!has_password(&cluster.api().get_bytes(path).await), "{path}");
    }
    for log in ["server.log", "w1.log"] {
        assert!(!has_password(&std::fs::read(cluster.path(log)).unwrap()), "{log}");
    }
    drop(worker);
}

#[test]
fn a_faulty_file_of_registries_is_refused_at_the_start_with_its_place() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), "version: 1\njobs: {}\n");
    let file = cluster.path("registries.yaml");
    std::fs::write(&file, "registries:\n  registry.example: { username: robot, password: hunter2 }\n")
        .unwrap();
    let run = |flags: &[&str]| cluster.server_spec(flags).run();
    let (code, said) = run(&["--registries", file.to_str().unwrap()]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("registries.yaml are not valid: ") && said.contains("line 2"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    let (code, said) = run(&["--registries", "/nonexistent"]);
    assert_eq!((code, said.contains("cannot read the registries /nonexistent: ")), (2, true), "{said}");
}
