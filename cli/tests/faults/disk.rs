//! A real server on a disk that fails or is full.

use std::io::Write as _;
use std::path::PathBuf;

use reqwest::Method;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use testkit::ProcessSpec;

use crate::support::{Api, Cluster, Process, own_mounts, wait_for, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn server_ends_on_a_disk_error_and_its_successor_has_all_acknowledged_jobs() {
    let cluster = Cluster::new("version: 1\njobs: { quick: { runtime: fake } }\n");
    // Writes beyond the file size limit fail like a bad disk; SIGXFSZ would kill the process by default.
    let unkillable = ["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"].map(str::to_owned);
    let mut server = ProcessSpec { through: unkillable.to_vec(), ..cluster.server_spec(&[]) }.start();
    let api = cluster.api();
    api.wait_until_ready().await;
    let log = cluster.path("data/longshore.db-wal");
    let mut told = 0;
    wait_until("the store's log is longer than what the server has said", async || {
        told = submit(&api).await.unwrap();
        std::fs::metadata(&log).is_ok_and(|log| log.len() > LIMIT)
    })
    .await;

    server.limit_file_size(LIMIT);
    while let Some(job) = submit(&api).await {
        told = job;
    }
    let status = server.wait_for_exit().await;
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(6),
        "{status}:\n{}",
        server.log()
    );
    assert!(server.log().contains("the store failed: ending the process"), "{}", server.log());

    let mut server = cluster.start_server(&[]).await;
    let newest = api.get("/api/jobs?limit=1").await[0]["id"].as_u64().unwrap();
    assert!(told <= newest && newest <= told + 1, "{told} was told, {newest} is there");
    assert_eq!(submit(&api).await, Some(newest + 1));
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_with_a_full_disk_refuses_jobs_and_accepts_reports() {
    let cluster = Cluster::new("");
    let go = cluster.path("go");
    let test = std::process::id();
    let wait = format!("while [ ! -e {} ] && [ -d /proc/{test} ]; do sleep 0.05; done", go.display());
    let jobs = format!("version: 1\njobs: {{ wait: {{ runtime: process, command: [sh, -c, '{wait}'] }} }}\n");
    std::fs::write(cluster.path("jobs.yaml"), jobs).unwrap();
    let data = cluster.path("data");
    std::fs::create_dir(&data).unwrap();
    let mount = format!("mount -t tmpfs -o size={DISK} none {} && exec \"$@\"", data.display());
    let Some(mut through) = own_mounts() else {
        println!(
            "no mounts of one's own here: only the store's tests saw a full disk (cargo test -p longshore-server --lib power)"
        );
        return;
    };
    through.extend(["sh", "-c", &mount, "sh"].map(str::to_owned));
    let mut server = ProcessSpec { through, ..cluster.server_spec(&[]) }.start();
    let api = cluster.api();
    api.wait_until_ready().await;
    let mut worker = cluster.start_worker("only", &["--no-docker", "--allow-process", "--slots", "2"]);
    api.wait_for_ready_worker("only").await;
    let running = api.post("/api/jobs/wait", None).await["id"].as_u64().unwrap();
    api.wait_for_job(running, |job| job["state"] == "running").await;

    let reserve = server.root().join(data.strip_prefix("/").unwrap()).join("ballast");
    assert!(reserve.exists());
    let filler = Filler::of(&server, data);
    filler.fill_but(LEFT);
    let refusal = wait_for("jobs are refused", async || {
        let answer = api.request(Method::POST, "/api/jobs/wait", None, None).await.unwrap();
        (answer.status == 507).then_some(answer.body)
    })
    .await;
    assert_eq!(refusal["code"], "storage_low");
    filler.fill_but(0);
    std::fs::write(go, "").unwrap();
    api.wait_for_job(running, |job| job["state"] == "succeeded").await;
    let still = api.request(Method::POST, "/api/jobs/wait", None, None).await.unwrap();
    assert_eq!(still.status, 507, "the report was taken while there was no room for jobs");
    assert!(!reserve.exists() && server.log().contains("the reserve is in use"), "{}", server.log());
    filler.empty();
    wait_until("there is a reserve again", async || reserve.exists()).await;
    wait_until("jobs are taken again", async || {
        api.request(Method::POST, "/api/jobs/wait", None, None).await.unwrap().is_success()
    })
    .await;
    assert!(server.is_running(), "it needed no restart");
    api.wait_until_all_ended().await;
    worker.terminate().await;
    server.terminate().await;
}

/// Most output waits in the worker by then, because the jobs write more than the server can store.
#[tokio::test(flavor = "multi_thread")]
async fn output_that_waits_for_disk_space_does_not_delay_reports() {
    let cluster = Cluster::new(
        "version: 1\njobs: { talk: { runtime: fake, environment: { FAKE_OUTPUT_BYTES: '20' } } }\n",
    );
    let logs = cluster.path("data/logs");
    std::fs::create_dir_all(&logs).unwrap();
    let Some(mut through) = own_mounts() else { return };
    let mount = format!("mount -t tmpfs -o size={SMALL} none {} && exec \"$@\"", logs.display());
    through.extend(["sh", "-c", &mount, "sh"].map(str::to_owned));
    let mut server = ProcessSpec { through, ..cluster.server_spec(&[]) }.start();
    let api = cluster.api();
    api.wait_until_ready().await;
    let filler = Filler::of(&server, logs);
    filler.fill_but(0);
    let mut worker = cluster.start_worker("only", &["--no-docker", "--allow-fake", "--slots", "64"]);
    api.wait_for_ready_worker("only").await;

    let talk = serde_json::json!({ "name": "talk" });
    let batch = api.post("/api/jobs", Some(&Value::Array(vec![talk; SHORT_OUTPUTS]))).await;
    api.wait_until_all_ended().await;
    assert!(server.log().contains("the disk is full: output waits with the workers"), "{}", server.log());
    assert!(!server.log().contains("rate_limited") && !worker.log().contains("rate_limited"));

    filler.empty();
    let last = batch["last"].as_u64().unwrap();
    let path = format!("/api/jobs/{last}/logs");
    wait_until("its output follows", async || api.get_bytes(&path).await.len() == 20).await;
    worker.terminate().await;
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_starts_on_a_full_disk_names_path_and_remedy() {
    let cluster = Cluster::new("version: 1\njobs: { quick: { runtime: fake } }\n");
    let data = cluster.path("data");
    std::fs::create_dir(&data).unwrap();
    let Some(through) = own_mounts() else { return };
    // Without any space not even the lock file can be created; with a little, the database reports the error.
    for left in [0, 64 << 10] {
        let fill = format!(
            "mount -t tmpfs -o size={SMALL} none {0} && mkdir {0}/lost+found && head -c {1} /dev/zero >{0}/lost+found/filler; exec \"$@\"",
            data.display(),
            SMALL - left
        );
        let mut through = through.clone();
        through.extend(["sh", "-c", &fill, "sh"].map(str::to_owned));
        let log = cluster.path(&format!("full-{left}.log"));
        let mut server = ProcessSpec { through, log, ..cluster.server_spec(&[]) }.start();
        let status = server.wait_for_exit().await;
        assert_eq!(status.code(), Some(1), "{}", server.log());
        let said = server.log();
        for expected in [
            data.to_str().unwrap(),
            "it has 0 MiB free",
            "8 MiB to start",
            "make room there",
            "nothing is lost",
        ] {
            assert!(said.contains(expected), "{expected} in {said}");
        }
    }
}

/// The database has no room there, then only the output.
#[tokio::test(flavor = "multi_thread")]
async fn backup_onto_a_full_disk_names_the_target_and_is_shown_by_doctor() {
    let cluster = Cluster::new("version: 1\njobs: { quick: { runtime: fake } }\n");
    let mut server = cluster.start_server(&[]).await;
    cluster.api().wait_until_ready().await;
    server.terminate().await;
    let (data, target) = (cluster.path("data"), cluster.path("target"));
    std::fs::write(data.join("logs/0000000001.seg"), vec![0; usize::try_from(SMALL).unwrap()]).unwrap();
    std::fs::create_dir(&target).unwrap();
    let Some(through) = own_mounts() else { return };
    let to = target.join("b");
    for size in [64 << 10, SMALL] {
        let mount = format!("mount -t tmpfs -o size={size} none {} && exec \"$@\"", target.display());
        let mut command = std::process::Command::new(&through[0]);
        command.args(&through[1..]).args([
            "sh",
            "-c",
            &mount,
            "sh",
            env!("CARGO_BIN_EXE_longshore"),
            "backup",
        ]);
        let output = command.arg("--data").arg(&data).arg("--to").arg(&to).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        let expected = format!("error: the disk of {}, the target of the backup, is full", to.display());
        assert!(output.status.code() == Some(1) && told.starts_with(&expected), "{told}");
        let (_, told) = cluster.run_cli(&["doctor", "--data", data.to_str().unwrap()]);
        let line = told.lines().find(|line| line.contains(" backup ")).unwrap();
        assert!(line.starts_with("fail") && line.contains("the target of the backup, is full"), "{line}");
    }
}

/// The id of the new job, or `None` if it was not accepted.
async fn submit(api: &Api) -> Option<u64> {
    let answer = api.request(Method::POST, "/api/jobs/quick", Some(&long()), None).await.ok()?;
    answer.is_success().then(|| answer.body["id"].as_u64().unwrap())
}

/// Large labels make the database log grow quickly.
fn long() -> Value {
    serde_json::json!({ "environment": { "LONG": "x".repeat(20_000) } })
}

/// Fills the free space of a disk.
struct Filler(PathBuf);

impl Filler {
    /// The disk that the server sees in this directory.
    fn of(server: &Process, directory: PathBuf) -> Self {
        let inside = directory.strip_prefix("/").unwrap();
        Self(server.root().join(inside).join("filler"))
    }

    /// Leaves this many bytes free.
    fn fill_but(&self, left: u64) {
        let disk = rustix::fs::statvfs(self.0.parent().unwrap()).unwrap();
        let free = disk.f_bavail * disk.f_frsize;
        let mut file = std::fs::File::options().create(true).append(true).open(&self.0).unwrap();
        let written = file.write_all(&vec![0; usize::try_from(free - left).unwrap()]);
        // The server may have used some of the space meanwhile: then the disk is full before all is written.
        assert!(
            written.is_ok() || written.is_err_and(|error| error.kind() == std::io::ErrorKind::StorageFull)
        );
    }

    fn empty(&self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// More than a server logs in a test, and far less than its database log.
const LIMIT: u64 = 512 << 10;
/// More chunks of 20 bytes than a session buffers.
const SHORT_OUTPUTS: usize = 15_000;
/// A disk on which no server can start.
const SMALL: u64 = 4 << 20;
/// The small disk; below five percent of free space the server accepts no jobs.
const DISK: u64 = 256 << 20;
/// Below that limit, and more than the server needs until it notices.
const LEFT: u64 = 10 << 20;

/// A writer of a pipe hangs until somebody reads it, like a writer to a disk that does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn worker_whose_own_files_hang_joins_runs_jobs_and_leaves() {
    let cluster = Cluster::new("version: 1\njobs: { quick: { runtime: fake } }\n");
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let health = cluster.path("health");
    std::fs::create_dir(cluster.path("only")).unwrap();
    for file in ["only/membership.new", "only/contact.new", "health.new"] {
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, cluster.path(file), FileType::Fifo, mode, 0).unwrap();
    }
    let flags = ["--no-docker", "--allow-fake", "--health-file", health.to_str().unwrap()];
    let mut worker = cluster.start_worker("only", &flags);
    api.wait_for_ready_worker("only").await;

    submit(&api).await.unwrap();
    api.wait_until_all_ended().await;
    assert!(!health.exists(), "nothing was written");
    worker.terminate().await;
    server.terminate().await;
}
