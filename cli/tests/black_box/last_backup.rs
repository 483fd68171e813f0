//! The record of the last backup: a metric of the server, and a line of `longshore doctor`.

use std::fs;

use testkit::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_shown_by_the_running_server_and_by_doctor() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), "jobs: { a: { image: 'a:1' } }");
    let _server = cluster.start_server(&[]).await;
    let (data, to) = (cluster.path("data").display().to_string(), cluster.path("b1").display().to_string());
    let metric = async |name: &str| {
        let text = String::from_utf8(cluster.api().get_bytes("/metrics").await).unwrap();
        let value =
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok());
        value.unwrap()
    };
    let doctor = || {
        let (_, text) = cluster.run_cli(&["doctor", "--data", &data, "--docker", "/nowhere/docker"]);
        text.lines().find(|line| line.contains(" backup ")).unwrap().to_owned()
    };
    assert_eq!(metric("longshore_last_backup_timestamp_seconds").await, 0, "none was made");
    assert!(doctor().contains("none was made"), "{}", doctor());

    let (code, said) = cluster.run_cli(&["backup", "--data", &data, "--to", &to]);
    assert_eq!(code, 0, "{said}");
    let manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(cluster.path("b1/backup.json")).unwrap()).unwrap();
    let made_at: jiff::Timestamp = manifest["made_at"].as_str().unwrap().parse().unwrap();
    let bytes: u64 = manifest["files"].as_array().unwrap().iter().filter_map(|it| it["bytes"].as_u64()).sum();
    let at = metric("longshore_last_backup_timestamp_seconds").await;
    assert_eq!(i64::try_from(at).unwrap(), made_at.as_second());
    assert_eq!(metric("longshore_last_backup_bytes").await, bytes);
    assert!(doctor().starts_with("ok") && doctor().contains("b1"), "{}", doctor());

    // A failed backup leaves the record of the last one, and one of itself until the next that is complete.
    assert_eq!(metric("longshore_last_backup_failed_timestamp_seconds").await, 0);
    let before = fs::read(cluster.path("data/last-backup.json")).unwrap();
    assert_ne!(cluster.run_cli(&["backup", "--data", &data, "--to", &to]).0, 0, "it is there already");
    assert_eq!(fs::read(cluster.path("data/last-backup.json")).unwrap(), before);
    assert!(metric("longshore_last_backup_failed_timestamp_seconds").await >= at);
    let told = doctor();
    assert!(told.starts_with("fail") && told.contains("has a backup already"), "{told}");
    assert_eq!(cluster.run_cli(&["backup", "--data", &data, "--to", &to, "--force"]).0, 0);
    assert_eq!(metric("longshore_last_backup_failed_timestamp_seconds").await, 0);
    assert!(doctor().starts_with("ok"), "{}", doctor());

    // A wrong --data gets no record.
    let wrong = cluster.path("wrong");
    fs::create_dir(&wrong).unwrap();
    let words = ["backup", "--data", &wrong.display().to_string(), "--to", &to];
    assert_eq!(cluster.run_cli(&words).0, 1);
    assert_eq!(fs::read_dir(&wrong).unwrap().count(), 0);

    // One that cannot be recorded is complete all the same.
    fs::create_dir(cluster.path("data/last-backup.json.draft")).unwrap();
    let second = cluster.path("b2").display().to_string();
    let (code, said) = cluster.run_cli(&["backup", "--data", &data, "--to", &second]);
    assert!(code == 0 && said.contains("warning: the backup is complete, but"), "{said}");
    assert!(cluster.path("b2/backup.json").exists());
}
