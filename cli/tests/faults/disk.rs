//! A disk that fails or is full, under a real server.

use std::io::Write as _;
use std::path::PathBuf;

use chaos::stage::Launch;
use reqwest::Method;
use serde_json::Value;

use crate::support::{Api, Process, Stage, eventually, holds, own_mounts};

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fails_ends_the_server_and_the_next_one_has_all_that_was_told() {
    let stage = Stage::new("version: 1\njobs: { quick: { runtime: fake } }\n");
    // A file that grows beyond its limit fails like a bad disk; by default the system would kill whoever tries.
    let unkillable = ["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"].map(str::to_owned);
    let mut server = Launch { through: unkillable.to_vec(), ..stage.server_launch(&[]) }.start();
    let api = stage.api();
    api.ready().await;
    let log = stage.path("data/longshore.db-wal");
    let mut told = 0;
    holds("the store's log is longer than what the server has said", async || {
        told = submit(&api).await.unwrap();
        std::fs::metadata(&log).is_ok_and(|log| log.len() > LIMIT)
    })
    .await;

    server.limit_files(LIMIT);
    while let Some(job) = submit(&api).await {
        told = job;
    }
    let status = server.ended().await;
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(6),
        "{status}:\n{}",
        server.said()
    );
    assert!(server.said().contains("cannot go on: ending, to recover from the store"), "{}", server.said());

    let mut server = stage.server(&[]).await;
    let newest = api.get("/api/jobs?limit=1").await[0]["id"].as_u64().unwrap();
    assert!(told <= newest && newest <= told + 1, "{told} was told, {newest} is there");
    assert_eq!(submit(&api).await, Some(newest + 1));
    server.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_jobs_and_takes_what_workers_report() {
    let stage = Stage::new("");
    let go = stage.path("go");
    let test = std::process::id();
    let wait = format!("while [ ! -e {} ] && [ -d /proc/{test} ]; do sleep 0.05; done", go.display());
    let jobs = format!("version: 1\njobs: {{ wait: {{ runtime: process, command: [sh, -c, '{wait}'] }} }}\n");
    std::fs::write(stage.path("jobs.yaml"), jobs).unwrap();
    let data = stage.path("data");
    std::fs::create_dir(&data).unwrap();
    let mount = format!("mount -t tmpfs -o size={DISK} none {} && exec \"$@\"", data.display());
    let Some(mut through) = own_mounts() else {
        println!(
            "no mounts of one's own here: only the store's tests saw a full disk (cargo test -p longshore-server --lib power)"
        );
        return;
    };
    through.extend(["sh", "-c", &mount, "sh"].map(str::to_owned));
    let mut server = Launch { through, ..stage.server_launch(&[]) }.start();
    let api = stage.api();
    api.ready().await;
    let mut worker = stage.worker("only", &["--no-docker", "--allow-process", "--slots", "2"]);
    api.worker_ready("only").await;
    let running = api.post("/api/jobs/wait", None).await["id"].as_u64().unwrap();
    api.job(running, |job| job["state"] == "running").await;

    let reserve = server.root().join(data.strip_prefix("/").unwrap()).join("ballast");
    assert!(reserve.exists());
    let filler = Filler::of(&server, data);
    filler.fill_but(LEFT);
    let refusal = eventually("jobs are refused", async || {
        let answer = api.ask(Method::POST, "/api/jobs/wait", None, None).await.unwrap();
        (answer.status == 507).then_some(answer.body)
    })
    .await;
    assert_eq!(refusal["code"], "storage_low");
    filler.fill_but(0);
    std::fs::write(go, "").unwrap();
    api.job(running, |job| job["state"] == "succeeded").await;
    let still = api.ask(Method::POST, "/api/jobs/wait", None, None).await.unwrap();
    assert_eq!(still.status, 507, "the report was taken while there was no room for jobs");
    assert!(!reserve.exists() && server.said().contains("the reserve is in use"), "{}", server.said());
    filler.empty();
    holds("there is a reserve again", async || reserve.exists()).await;
    holds("jobs are taken again", async || {
        api.ask(Method::POST, "/api/jobs/wait", None, None).await.unwrap().is_success()
    })
    .await;
    assert!(server.is_alive(), "it needed no restart");
    api.all_ended().await;
    worker.leave().await;
    server.leave().await;
}

/// By now most of it waits in the worker: what the server has room for is less than the jobs write.
#[tokio::test(flavor = "multi_thread")]
async fn what_jobs_write_onto_a_full_disk_does_not_hold_up_what_their_worker_reports() {
    let stage = Stage::new(
        "version: 1\njobs: { talk: { runtime: fake, environment: { FAKE_OUTPUT_BYTES: '20' } } }\n",
    );
    let logs = stage.path("data/logs");
    std::fs::create_dir_all(&logs).unwrap();
    let Some(mut through) = own_mounts() else { return };
    let mount = format!("mount -t tmpfs -o size={SMALL} none {} && exec \"$@\"", logs.display());
    through.extend(["sh", "-c", &mount, "sh"].map(str::to_owned));
    let mut server = Launch { through, ..stage.server_launch(&[]) }.start();
    let api = stage.api();
    api.ready().await;
    let filler = Filler::of(&server, logs);
    filler.fill_but(0);
    let mut worker = stage.worker("only", &["--no-docker", "--allow-fake", "--slots", "64"]);
    api.worker_ready("only").await;

    let talk = serde_json::json!({ "name": "talk" });
    let batch = api.post("/api/jobs", Some(&Value::Array(vec![talk; SHORT_OUTPUTS]))).await;
    api.all_ended().await;
    assert!(server.said().contains("output cannot be stored"), "{}", server.said());
    assert!(!server.said().contains("rate_limited") && !worker.said().contains("rate_limited"));

    filler.empty();
    let last = batch["last"].as_u64().unwrap();
    let path = format!("/api/jobs/{last}/logs");
    holds("its output follows", async || api.bytes(&path).await.len() == 20).await;
    worker.leave().await;
    server.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_finds_its_disk_full_says_where_what_it_lacks_and_what_to_do() {
    let stage = Stage::new("version: 1\njobs: { quick: { runtime: fake } }\n");
    let data = stage.path("data");
    std::fs::create_dir(&data).unwrap();
    let Some(through) = own_mounts() else { return };
    // With no room at all not even the lock can be taken; with a little, it is the store that finds out.
    for left in [0, 64 << 10] {
        let fill = format!(
            "mount -t tmpfs -o size={SMALL} none {0} && mkdir {0}/lost+found && head -c {1} /dev/zero >{0}/lost+found/filler; exec \"$@\"",
            data.display(),
            SMALL - left
        );
        let mut through = through.clone();
        through.extend(["sh", "-c", &fill, "sh"].map(str::to_owned));
        let log = stage.path(&format!("full-{left}.log"));
        let mut server = Launch { through, log, ..stage.server_launch(&[]) }.start();
        let status = server.ended().await;
        assert_eq!(status.code(), Some(1), "{}", server.said());
        let said = server.said();
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

/// The new job's number, unless it was not accepted.
async fn submit(api: &Api) -> Option<u64> {
    let answer = api.ask(Method::POST, "/api/jobs/quick", Some(&long()), None).await.ok()?;
    answer.is_success().then(|| answer.body["id"].as_u64().unwrap())
}

/// So that the log grows fast.
fn long() -> Value {
    serde_json::json!({ "environment": { "LONG": "x".repeat(20_000) } })
}

/// Takes up what is left of a disk.
struct Filler(PathBuf);

impl Filler {
    /// Of the disk that the server sees in this directory.
    fn of(server: &Process, directory: PathBuf) -> Self {
        let inside = directory.strip_prefix("/").unwrap();
        Self(server.root().join(inside).join("filler"))
    }

    /// Leaves so many bytes of what is free.
    fn fill_but(&self, left: u64) {
        let disk = rustix::fs::statvfs(self.0.parent().unwrap()).unwrap();
        let free = disk.f_bavail * disk.f_frsize;
        let mut file = std::fs::File::options().create(true).append(true).open(&self.0).unwrap();
        file.write_all(&vec![0; usize::try_from(free - left).unwrap()]).unwrap();
    }

    fn empty(&self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// Above what a server says in a test, and far below what its store's log becomes.
const LIMIT: u64 = 512 << 10;
/// More chunks of output than a session has room for, at 20 bytes each.
const SHORT_OUTPUTS: usize = 15_000;
/// The size of a disk on which nothing starts.
const SMALL: u64 = 4 << 20;
/// The size of the small disk; five percent of it are the mark below which no jobs are taken.
const DISK: u64 = 256 << 20;
/// Below that mark, and more than what is asked for until the server has seen how little it is.
const LEFT: u64 = 10 << 20;
