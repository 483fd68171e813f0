//! Reload of jobs.yaml while a server runs.

use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::process::Signal;

use crate::support::{Cluster, wait_for, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn sighup_reads_jobs_yaml_again_and_a_bad_file_changes_nothing() {
    let cluster = Cluster::new("jobs: { old: { runtime: fake } }");
    let server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let names = async || {
        let list = api.get("/api/definitions").await;
        list.as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    std::fs::write(cluster.path("jobs.yaml"), "jobs: { new: { runtime: fake } }").unwrap();
    server.signal(Signal::HUP);
    wait_for("the new definition", async || (names().await == ["new"]).then_some(())).await;
    wait_for("the log line", async || server.log().contains("jobs.yaml reloaded").then_some(())).await;

    std::fs::write(cluster.path("jobs.yaml"), "jobs: { newer: { imgae: x } }").unwrap();
    server.signal(Signal::HUP);
    let refused =
        async || server.log().contains("jobs.yaml refused; the definitions stay unchanged").then_some(());
    wait_for("the refusal in the log", refused).await;
    assert_eq!(names().await, ["new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_file_is_read_again_when_it_is_replaced_or_its_symlink_is_swapped() {
    let cluster = Cluster::new("jobs: { old: { runtime: fake } }");
    let server = cluster.start_server(&["--watch-jobs"]).await;
    let api = cluster.api();
    let has = async |name: &str| {
        let list = api.get("/api/definitions").await;
        list.as_array().unwrap().iter().any(|entry| entry["name"] == name).then_some(())
    };
    let replace = |text: &str| {
        std::fs::write(cluster.path("draft"), text).unwrap();
        std::fs::rename(cluster.path("draft"), cluster.path("jobs.yaml")).unwrap();
    };
    replace("jobs: { by-rename: { runtime: fake } }");
    wait_for("the replaced file", async || has("by-rename").await).await;
    // A ConfigMap: the file is a symlink through a directory that is a symlink, too.
    let version = |number: u32, text: &str| {
        let directory = cluster.path(&format!("v{number}"));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("jobs.yaml"), text).unwrap();
        symlink(&directory, cluster.path("new")).unwrap();
        std::fs::rename(cluster.path("new"), cluster.path("current")).unwrap();
    };
    version(1, "jobs: { first: { runtime: fake } }");
    symlink("current/jobs.yaml", cluster.path("draft")).unwrap();
    std::fs::rename(cluster.path("draft"), cluster.path("jobs.yaml")).unwrap();
    wait_for("the file behind the symlink", async || has("first").await).await;
    version(2, "jobs: { second: { runtime: fake } }");
    wait_for("the swapped symlink", async || has("second").await).await;
    version(3, "jobs: { third: { imgae: x } }");
    let refused = async || server.log().contains("jobs.yaml refused").then_some(());
    wait_for("the refusal in the log", refused).await;
    assert!(has("second").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_jobs_of_a_removed_definition_are_cancelled_if_the_operator_wants_it() {
    let cluster =
        Cluster::new("jobs: { old: { runtime: fake }, kept: { runtime: fake }, older: { runtime: fake } }");
    let flags = ["--removed-definitions", "cancel"];
    let mut server = cluster.start_server(&flags).await;
    let api = cluster.api();
    let later = serde_json::json!({ "delay": "1h" });
    // Jobs 1 to 3: one in an hour, one that waits for a worker, and one of a definition that stays.
    for (name, body) in [("old", Some(&later)), ("old", None), ("kept", None)] {
        api.post(&format!("/api/jobs/{name}"), body).await;
    }
    std::fs::write(cluster.path("jobs.yaml"), "jobs: { kept: { runtime: fake }, older: { runtime: fake } }")
        .unwrap();
    let plan = cluster.path("jobs.yaml").display().to_string();
    // Queued jobs are counted in the last snapshot, which may be a moment older.
    wait_until("the plan tells of both jobs", async || {
        let (code, planned) = cluster.run_cli(&["plan", &plan, "--server", &cluster.address()]);
        assert_eq!(code, 0, "{planned}");
        planned.contains("- old\n    2 waiting jobs will be cancelled\n")
    })
    .await;
    server.signal(Signal::HUP);
    for job in [1, 2] {
        let ended = api.wait_for_job(job, |job| job["state"] == "cancelled").await;
        assert_eq!(ended["reason"], "cancelled by the removal of its definition from jobs.yaml");
    }
    assert_eq!(api.get("/api/jobs/3").await["state"], "queued");

    // A definition that is gone when the server starts is removed as well.
    api.post("/api/jobs/older", None).await;
    server.terminate().await;
    std::fs::write(cluster.path("jobs.yaml"), "jobs: { kept: { runtime: fake } }").unwrap();
    let mut server = cluster.start_server(&flags).await;
    api.wait_for_job(4, |job| job["state"] == "cancelled").await;
    assert_eq!(api.get("/api/jobs/3").await["state"], "queued");
    server.terminate().await;

    // A start with an empty file and without a copy of the one before, as after a restore, must not cancel all jobs.
    std::fs::remove_file(cluster.path("data/accepted-jobs.json")).unwrap();
    std::fs::write(cluster.path("jobs.yaml"), "jobs: {}").unwrap();
    let server = cluster.start_server(&flags).await;
    std::fs::write(cluster.path("jobs.yaml"), "jobs: { kept: { runtime: fake } }").unwrap();
    server.signal(Signal::HUP);
    wait_for("the repaired file", async || {
        api.get("/api/definitions").await.as_array().is_some_and(|all| all.len() == 1).then_some(())
    })
    .await;
    assert_eq!(api.get("/api/jobs/3").await["state"], "queued");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_jobs_file_became_faulty_starts_with_the_definitions_before() {
    let good = "jobs: { old: { runtime: fake, schedule: { every: 1h } } }";
    let cluster = Cluster::new("jobs: { first: { runtime: fake } }");
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let file = cluster.path("jobs.yaml");
    let reload = || cluster.run_cli(&["reload", "--server", &cluster.address()]);
    // The copy is that of the last reload, not that of the start.
    std::fs::write(&file, good).unwrap();
    assert_eq!(reload().0, 0);
    server.kill();

    let breaks: [fn(&Path); 3] = [
        |file| std::fs::write(file, "jobs: { newer: { imgae: x } }").unwrap(),
        |file| std::fs::write(file, "jobs: {}").unwrap(),
        |file| std::fs::remove_file(file).unwrap(),
    ];
    for (number, break_file) in breaks.iter().enumerate() {
        break_file(&file);
        let mut server = cluster.start_server(&[]).await;
        let definition = api.get("/api/definitions/old").await;
        assert_eq!(definition["schedules"].as_array().map(Vec::len), Some(1), "{number}: {definition}");
        // All servers write into one log.
        let told = "starting with the definitions that were accepted last";
        assert_eq!(server.log().matches(told).count(), number + 1, "{}", server.log());
        let ready = String::from_utf8(api.get_bytes("/readyz").await).unwrap();
        assert!(ready.contains("warning: jobs.yaml: it was refused at 2"), "{number}: {ready}");
        assert!(!ready.contains("a restart would fail"), "{number}: {ready}");
        server.terminate().await;
    }

    // The operator may prefer no server to one with the definitions before.
    for (break_file, fault) in [(breaks[2], "cannot_read"), (breaks[1], "no_jobs")] {
        // The last one has left no file.
        std::fs::write(&file, good).unwrap();
        break_file(&file);
        let mut refused = cluster.spawn_server(&["--faulty-jobs-file", "refuse"]);
        assert_eq!(refused.wait_for_exit().await.code(), Some(2), "{}", refused.log());
        assert!(refused.log().contains(fault), "{}", refused.log());
    }

    // A repaired file ends the warning.
    let server = cluster.start_server(&[]).await;
    std::fs::write(&file, good).unwrap();
    assert_eq!(reload().0, 0, "{}", server.log());
    let ready = String::from_utf8(api.get_bytes("/readyz").await).unwrap();
    assert_eq!(ready, "ready\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_would_fail_for_the_copy_as_well_is_told_of() {
    let cluster = Cluster::new("jobs: { job: { runtime: fake, env_file: job.env } }");
    std::fs::write(cluster.path("job.env"), "A=b\n").unwrap();
    let (_server, api) = (cluster.start_server(&[]).await, cluster.api());
    // The copy names the same file.
    std::fs::remove_file(cluster.path("job.env")).unwrap();
    assert_eq!(cluster.run_cli(&["reload", "--server", &cluster.address()]).0, 2);
    let ready = String::from_utf8(api.get_bytes("/readyz").await).unwrap();
    assert!(ready.contains("are in force; a restart would fail"), "{ready}");
}
