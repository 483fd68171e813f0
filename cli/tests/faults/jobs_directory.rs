//! A server that reads a directory of jobs files: what is added, broken or removed while it runs, and its next start.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::process::Signal;

use crate::support::{Cluster, wait_for};

const TEAM_A: &str = "jobs: { resize: { runtime: fake, hooks: { on_success: mail } } }";
const TEAM_B: &str = "- { name: mail, runtime: fake }";

/// A cluster whose path of the jobs file is a directory with these files.
fn cluster_with(files: &[(&str, &str)]) -> Cluster {
    let cluster = Cluster::new("");
    let directory = cluster.path("jobs.yaml");
    fs::remove_file(&directory).unwrap();
    fs::create_dir(&directory).unwrap();
    for (name, text) in files {
        fs::write(directory.join(name), text).unwrap();
    }
    cluster
}

/// The names of the definitions with their files.
async fn definitions(cluster: &Cluster) -> Vec<String> {
    let list = cluster.api().get("/api/definitions").await;
    let shown = |entry: &serde_json::Value| {
        format!("{} {}", entry["name"].as_str().unwrap(), entry["file"].as_str().unwrap())
    };
    list.as_array().unwrap().iter().map(shown).collect()
}

async fn wait_for_definitions(cluster: &Cluster, expected: &[&str]) {
    wait_for("the definitions", async || (definitions(cluster).await == expected).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_takes_new_and_removed_files_and_a_broken_one_changes_nothing() {
    let cluster = cluster_with(&[("team-a.yaml", TEAM_A), ("team-b.yml", TEAM_B), ("README", "no: [")]);
    let server = cluster.start_server(&[]).await;
    let (address, directory) = (cluster.address(), cluster.path("jobs.yaml"));
    let run = |verb: &[&str]| {
        let words: Vec<&str> = verb.iter().copied().chain(["--server", &address]).collect();
        cluster.run_cli(&words)
    };
    let path = directory.display().to_string();
    assert_eq!(definitions(&cluster).await, ["mail team-b.yml", "resize team-a.yaml"]);
    let (code, shown) = run(&["definitions", "mail"]);
    assert!(
        code == 0 && shown.lines().any(|line| line.split_whitespace().eq(["file", "team-b.yml"])),
        "{shown}"
    );
    assert_eq!(cluster.run_cli(&["validate", &path]), (0, format!("{path}: 2 jobs in 2 files, no faults\n")));
    let (code, planned) = run(&["plan", &path, "--exit-code"]);
    assert!(code == 0 && planned.starts_with("0 added, 0 removed, 0 changed, 2 unchanged"), "{planned}");

    fs::write(directory.join("team-c.yaml"), "jobs: { clean: { runtime: fake } }").unwrap();
    let (code, planned) = run(&["plan", &path, "--exit-code"]);
    assert!(code == 2 && planned.starts_with("+ clean\n"), "{planned}");
    server.signal(Signal::HUP);
    wait_for_definitions(&cluster, &["clean team-c.yaml", "mail team-b.yml", "resize team-a.yaml"]).await;

    // All faults of all files are told, by each verb that reads them, and nothing changes.
    fs::write(directory.join("team-c.yaml"), "jobs: { clean: { imgae: x, runtime: fake } }").unwrap();
    fs::write(directory.join("team-d.yaml"), "jobs:\n  mail: { runtime: fake }\n").unwrap();
    let (code, told) = run(&["reload"]);
    assert_eq!(code, 2, "{told}");
    for part in ["team-c.yaml:1:18", "team-d.yaml:2:3", "first defined at team-b.yml:1:11"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    for (code, told) in [run(&["plan", &path]), cluster.run_cli(&["validate", &path])] {
        assert_eq!(code, 2, "{told}");
        assert!(told.contains(&format!("{path}/team-c.yaml:1:18: ")), "{told}");
        assert!(told.contains(&format!("{path}/team-d.yaml:2:3: ")), "{told}");
    }
    let (code, told) = cluster.run_cli(&["upgrade-check", "--jobs", &path]);
    assert!(code == 1 && told.contains("2 faults"), "{told}");
    assert_eq!(definitions(&cluster).await.len(), 3);

    // A file that is gone takes its definitions along, if nothing else names them.
    fs::remove_file(directory.join("team-c.yaml")).unwrap();
    fs::remove_file(directory.join("team-d.yaml")).unwrap();
    assert_eq!(run(&["reload"]).0, 0);
    assert_eq!(definitions(&cluster).await, ["mail team-b.yml", "resize team-a.yaml"]);
    fs::remove_file(directory.join("team-b.yml")).unwrap();
    let (code, told) = run(&["reload"]);
    assert!(code == 2 && told.contains("none of the files has a job \"mail\""), "{told}");
    // An emptied directory is no way to remove everything.
    fs::remove_file(directory.join("team-a.yaml")).unwrap();
    let (code, told) = run(&["reload"]);
    assert!(code == 2 && told.contains("it is an empty directory"), "{told}");
    assert_eq!(definitions(&cluster).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_directory_is_read_again_when_files_come_change_go_or_are_swapped() {
    let cluster = cluster_with(&[("team-a.yaml", TEAM_A), ("team-b.yml", TEAM_B)]);
    let server = cluster.start_server(&["--watch-jobs"]).await;
    let at = |name: &str| cluster.path("jobs.yaml").join(name);
    fs::write(at("team-c.yaml"), "jobs: { clean: { runtime: fake } }").unwrap();
    wait_for_definitions(&cluster, &["clean team-c.yaml", "mail team-b.yml", "resize team-a.yaml"]).await;
    fs::write(at("team-c.yaml"), "jobs: { cleaner: { runtime: fake } }").unwrap();
    wait_for_definitions(&cluster, &["cleaner team-c.yaml", "mail team-b.yml", "resize team-a.yaml"]).await;
    fs::remove_file(at("team-c.yaml")).unwrap();
    wait_for_definitions(&cluster, &["mail team-b.yml", "resize team-a.yaml"]).await;

    // A ConfigMap: all files are links through a directory that is swapped as a whole.
    let version = |number: u32, files: &[(&str, &str)]| {
        let directory = at(&format!("..v{number}"));
        fs::create_dir(&directory).unwrap();
        files.iter().for_each(|(name, text)| fs::write(directory.join(name), text).unwrap());
        symlink(&directory, at("..new")).unwrap();
        fs::rename(at("..new"), at("..data")).unwrap();
    };
    version(1, &[("x.yaml", TEAM_A), ("y.yaml", TEAM_B)]);
    for (name, old) in [("x.yaml", "team-a.yaml"), ("y.yaml", "team-b.yml")] {
        fs::remove_file(at(old)).unwrap();
        symlink(Path::new("..data").join(name), at(name)).unwrap();
    }
    wait_for_definitions(&cluster, &["mail y.yaml", "resize x.yaml"]).await;
    version(
        2,
        &[("x.yaml", TEAM_A), ("y.yaml", "jobs: { mail: { runtime: fake }, post: { runtime: fake } }")],
    );
    wait_for_definitions(&cluster, &["mail y.yaml", "post y.yaml", "resize x.yaml"]).await;

    // The next version lacks a file, so its link leads nowhere: a fault, and no removal.
    version(3, &[("x.yaml", "jobs: { resize: { runtime: fake } }")]);
    let refused = async || server.log().contains("at=y.yaml code=\"cannot_read\"").then_some(());
    wait_for("the refusal in the log", refused).await;
    assert_eq!(definitions(&cluster).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_directory_became_faulty_starts_with_the_files_before() {
    let good = [("team-a.yaml", TEAM_A), ("team-b.yml", TEAM_B)];
    let cluster = cluster_with(&good);
    let flags = ["--removed-definitions", "cancel"];
    let mut server = cluster.start_server(&flags).await;
    let api = cluster.api();
    api.post("/api/jobs/mail", None).await;
    server.terminate().await;
    let directory = cluster.path("jobs.yaml");
    let breaks: [fn(&Path); 4] = [
        |directory| fs::write(directory.join("team-b.yml"), "- { name: mail, imgae: x }").unwrap(),
        |directory| fs::remove_file(directory.join("team-b.yml")).unwrap(),
        |directory| fs::remove_file(directory.join("team-a.yaml")).unwrap(),
        |directory| fs::remove_dir(directory).unwrap(),
    ];
    for (number, break_directory) in breaks.iter().enumerate() {
        break_directory(&directory);
        let mut server = cluster.start_server(&flags).await;
        assert_eq!(definitions(&cluster).await, ["mail team-b.yml", "resize team-a.yaml"], "{number}");
        let ready = String::from_utf8(api.get_bytes("/readyz").await).unwrap();
        assert!(ready.contains("it was refused at 2") && !ready.contains("would fail"), "{number}: {ready}");
        assert_eq!(api.get("/api/jobs/1").await["state"], "queued", "{number}");
        server.terminate().await;
    }
    let mut refused = cluster.spawn_server(&["--faulty-jobs-file", "refuse"]);
    assert_eq!(refused.wait_for_exit().await.code(), Some(2), "{}", refused.log());

    // A repaired directory ends the warning. A file that is gone while others remain removes its definitions.
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("team-c.yaml"), "jobs: { clean: { runtime: fake } }").unwrap();
    let _server = cluster.start_server(&flags).await;
    assert_eq!(definitions(&cluster).await, ["clean team-c.yaml"]);
    assert_eq!(api.get_bytes("/readyz").await, b"ready\n");
    api.wait_for_job(1, |job| job["state"] == "cancelled").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_takes_the_place_of_a_file_keeps_the_jobs() {
    let cluster = Cluster::new("jobs: { mail: { runtime: fake } }");
    let mut server = cluster.start_server(&[]).await;
    cluster.api().post("/api/jobs/mail", None).await;
    let revision = cluster.api().get("/api/jobs/1").await["revision"].clone();
    server.terminate().await;
    let file = cluster.path("jobs.yaml");
    fs::rename(&file, cluster.path("mail.yaml")).unwrap();
    fs::create_dir(&file).unwrap();
    // The directory is empty: the copy is that of the file.
    let mut server = cluster.start_server(&[]).await;
    let shown = cluster.api().get("/api/definitions/mail").await;
    assert_eq!((&shown["revision"], shown.get("file")), (&revision, None));
    server.terminate().await;
    fs::rename(cluster.path("mail.yaml"), file.join("mail.yaml")).unwrap();
    let _server = cluster.start_server(&[]).await;
    let shown = cluster.api().get("/api/definitions/mail").await;
    assert_eq!((&shown["revision"], &shown["file"]), (&revision, &serde_json::json!("mail.yaml")));
    assert_eq!(cluster.api().get("/api/jobs/1").await["state"], "queued");
}
