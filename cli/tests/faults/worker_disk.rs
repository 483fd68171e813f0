//! A worker with a full disk that runs plain processes: it loses no outcome and starts no job twice.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use client::attempt_dir::AttemptStore;
use client::runtime::Launch as Attempt;
use protocol::{ContainerSpec, Fence, JobId, Nonce, Revision, RuntimeKind, Token};
use serde_json::Value;
use testkit::ProcessSpec;

use crate::support::{Api, Cluster, Process, own_mounts, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn worker_with_a_full_disk_keeps_outcomes_and_repeats_no_job() {
    let cluster = waiting();
    let Some(disk) = Disk::of(&cluster.path("only"), "1m").await else {
        println!("no mounts of one's own here: no disk is full");
        return;
    };
    let mut server = cluster.start_server(&[]).await;
    let (mut worker, api) = (disk.worker(&cluster), cluster.api());
    api.wait_for_ready_worker("only").await;
    let [watched, alone] = [submit(&api).await, submit(&api).await];
    for job in [watched, alone] {
        api.wait_for_job(job, |it| it["state"] == "running").await;
    }

    disk.fill();
    go(&cluster, watched);
    let untold = |worker: &Process| worker.log().matches("cannot write down how the program ended").count();
    wait_until("an end cannot be written down", async || untold(&worker) == 1).await;
    let late = submit(&api).await;
    go(&cluster, late);
    // It goes back, or the worker has noticed its full disk before.
    let is_not_taken = |job: &Value| {
        let mut attempts = job["attempts"].as_array().into_iter().flatten();
        attempts.any(|it| it["outcome"] == "released")
            || job["pending_reason"]["code"] == "runtime_unavailable"
    };
    api.wait_for_job(late, is_not_taken).await;
    worker.kill();
    go(&cluster, alone);
    wait_until("another one cannot either", async || untold(&worker) == 2).await;

    // It starts on the full disk, too: nobody else can give room back.
    let mut worker = disk.worker(&cluster);
    wait_until("it has joined", async || worker.log().contains("joined the server")).await;
    disk.empty();
    assert_ran_once(&cluster, &[watched, alone, late]).await;
    worker.terminate().await;
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_state_directory_is_reported_until_there_is_room() {
    let cluster = waiting();
    let Some(disk) = Disk::of(&cluster.path("only"), "1m").await else { return };
    let mut server = cluster.start_server(&[]).await;
    let (mut worker, api) = (disk.worker(&cluster), cluster.api());
    api.wait_for_ready_worker("only").await;
    let before = submit(&api).await;
    api.wait_for_job(before, |it| it["state"] == "running").await;

    disk.fill();
    let reason = |worker: &Value| worker["runtimes"][0]["reason"].as_str().unwrap_or_default().to_owned();
    let is_full = |worker: &Value| reason(worker).contains("no space left");
    let told = reason(&api.wait_for_worker("only", is_full).await);
    assert!(told.contains(cluster.path("only").to_str().unwrap()), "{told}");
    let (code, said) = cluster.run_cli(&["doctor", "--server", &cluster.address()]);
    assert!(said.contains(&format!("only cannot use process: {told}")), "{code} {said}");
    let waits = submit(&api).await;
    let for_runtime = |it: &Value| it["pending_reason"]["code"] == "runtime_unavailable";
    api.wait_for_job(waits, for_runtime).await;
    let explained = api.get(&format!("/api/jobs/{waits}/explain")).await;
    assert!(explained.to_string().contains("no space left"), "{explained}");
    let running = api.get(&format!("/api/jobs/{before}")).await;
    assert_eq!(
        (&running["state"], &running["pending_reason"]),
        (&"running".into(), &Value::Null),
        "{running}"
    );
    let (code, said) = cluster.run_cli(&["release", &before.to_string(), "--server", &cluster.address()]);
    assert_eq!(code, 5, "its worker sees it: {said}");

    disk.empty();
    api.wait_for_worker("only", |it| it["runtimes"][0]["available"] == true).await;
    go(&cluster, before);
    go(&cluster, waits);
    assert_ran_once(&cluster, &[before, waits]).await;
    let ended = api.get(&format!("/api/jobs/{waits}")).await;
    assert_eq!(ended["attempt_count"], 1, "a worker that says so gets nothing: {ended}");
    worker.terminate().await;
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_fills_the_disk_is_freed_once_the_server_has_it() {
    let cluster = waiting();
    let Some(disk) = Disk::of(&cluster.path("only"), "8m").await else { return };
    let mut server = cluster.start_server(&[]).await;
    let (mut worker, api) = (disk.worker(&cluster), cluster.api());
    api.wait_for_ready_worker("only").await;
    let flood = api.post("/api/jobs/flood", None).await["id"].as_u64().unwrap();
    let ended = api.wait_for_job(flood, |it| it["ended_at"].is_string()).await;
    assert_eq!((&ended["state"], &ended["exit_code"]), (&"failed".into(), &1.into()), "{ended}");
    let next = submit(&api).await;
    go(&cluster, next);
    assert_ran_once(&cluster, &[next]).await;
    worker.terminate().await;
    server.terminate().await;
}

#[tokio::test]
async fn process_whose_id_cannot_be_stored_is_stopped() {
    let Some(mut through) = own_mounts() else { return };
    let state = tempfile::tempdir().unwrap();
    let place = state.path().display().to_string();
    let spec = ContainerSpec {
        runtime: RuntimeKind::Process,
        command: ["sh", "-c", "echo it ran; sleep 60; exit", &place].map(str::to_owned).into(),
        ..ContainerSpec::default()
    };
    let token = Token { job: JobId(1), fence: Fence(1), nonce: Nonce(1) };
    let (revision, name) = (Revision(1), "test".into());
    let attempt = Attempt {
        token,
        revision,
        name,
        spec: spec.into(),
        overrides: None,
        time_left: None,
        secrets: Default::default(),
    };
    let dir = AttemptStore::open(state.path()).unwrap().create(&attempt).unwrap();
    // The disk has space for the intent to start but not for the process id, because a file is replaced by a new one. Then space is freed.
    // Nine inodes: the root, the attempt, `room`, the watcher, the result, the intent, two outputs and the working directory.
    let script = "dir=$1 out=$2; shift 2
        cp $dir/attempt.json $out/kept && mount -t tmpfs -o nr_inodes=9 none $dir && cp $out/kept $dir/attempt.json
        : > $dir/room; : > $out/said
        (while [ -e $out/said ] && ! grep -q 'cannot write down' $out/said; do sleep 0.02; done; rm $dir/room) &
        \"$@\" 2>> $out/said; cp $dir/exit $out";
    let path = dir.path().display().to_string();
    through.extend(["sh", "-c", script, "sh", &path, &place].map(str::to_owned));
    through.extend([env!("CARGO_BIN_EXE_longshore"), "shim", &path].map(str::to_owned));

    let status = tokio::process::Command::new(&through[0]).args(&through[1..]).status().await.unwrap();

    assert!(status.success(), "{status}");
    let said = std::fs::read_to_string(state.path().join("said")).unwrap();
    assert!(said.contains("stopped a program that could not be written down"), "{said}");
    let exit: Value = serde_json::from_slice(&std::fs::read(state.path().join("exit")).unwrap()).unwrap();
    assert_eq!(exit["exit"], "vanished");
    assert!(testkit::processes_mentioning(state.path()).is_empty(), "it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn unremovable_attempt_directory_does_not_hide_others() {
    let cluster = waiting();
    let Some(disk) = Disk::of(&cluster.path("only"), "1m").await else { return };
    let mut server = cluster.start_server(&[]).await;
    let (mut worker, api) = (disk.worker(&cluster), cluster.api());
    api.wait_for_ready_worker("only").await;
    let job = submit(&api).await;
    api.wait_for_job(job, |it| it["state"] == "running").await;
    worker.kill();
    // An empty directory, as after a crash during its creation, with a mount that cannot be removed.
    let only = cluster.path("only").display().to_string();
    let attempts = format!("$(ls -d {only}/attempts {only}/slot-0/attempts 2>/dev/null)");
    let mount = format!("cd {attempts} && mkdir 99-99 && mount -t tmpfs none 99-99");
    let words = disk.inside();
    let done = Command::new(&words[0]).args(&words[1..]).args(["sh", "-c", &mount]).status().unwrap();
    assert!(done.success(), "{done}");

    let mut worker = disk.worker(&cluster);
    wait_until("it was tried", async || worker.log().contains("neither be read nor moved aside")).await;
    go(&cluster, job);

    assert_ran_once(&cluster, &[job]).await;
    worker.terminate().await;
    server.terminate().await;
}

/// A cluster with jobs that write when they start, and wait for a file.
fn waiting() -> Cluster {
    let cluster = Cluster::new("");
    let (place, test) = (cluster.path("").display().to_string(), std::process::id());
    let wait =
        format!("while [ ! -e {place}/go-$LONGSHORE_JOB ] && [ -d /proc/{test} ]; do sleep 0.05; done");
    let script = format!("echo $LONGSHORE_JOB >> {place}/starts; {wait}; exit 3");
    let jobs =
        format!("version: 1\njobs:\n  wait: {{ runtime: process, command: [sh, -c, '{script}'] }}\n{FLOOD}");
    std::fs::write(cluster.path("jobs.yaml"), jobs).unwrap();
    cluster
}

/// Output in one call of the system, so that nothing is freed before the disk is full.
const FLOOD: &str = "  flood: { runtime: process, command: [dd, if=/dev/zero, bs=32M, count=1] }\n";

fn go(cluster: &Cluster, job: u64) {
    std::fs::write(cluster.path(&format!("go-{job}")), "").unwrap();
}

async fn assert_ran_once(cluster: &Cluster, jobs: &[u64]) {
    for job in jobs {
        let ended = cluster.api().wait_for_job(*job, |it| it["state"] == "failed").await;
        assert_eq!(ended["attempts"].as_array().unwrap().last().unwrap()["exit_code"], 3, "{ended}");
    }
    let starts = std::fs::read_to_string(cluster.path("starts")).unwrap();
    let mut starts: Vec<u64> = starts.lines().map(|line| line.parse().unwrap()).collect();
    starts.sort_unstable();
    assert_eq!(starts, jobs);
}

async fn submit(api: &Api) -> u64 {
    api.post("/api/jobs/wait", None).await["id"].as_u64().unwrap()
}

/// A small disk that the worker and its processes see, and that survives the worker.
struct Disk {
    holder: Child,
    path: PathBuf,
    is_of_a_user: bool,
}

impl Disk {
    /// `None` if mounting is not allowed.
    async fn of(path: &Path, size: &str) -> Option<Self> {
        let mut words = own_mounts()?;
        let is_of_a_user = words.iter().any(|word| word == "--user");
        std::fs::create_dir(path).unwrap();
        let mount = "mount -t tmpfs -o size=$2,mode=0700 none $1 && : > $1/filler && exec sleep 600";
        words.extend(["sh", "-c", mount, "sh", path.to_str().unwrap(), size].map(str::to_owned));
        let holder = Command::new(&words[0]).args(&words[1..]).spawn().unwrap();
        let disk = Self { holder, path: path.to_owned(), is_of_a_user };
        wait_until("the disk is there", async || disk.filler().exists()).await;
        Some(disk)
    }

    fn worker(&self, cluster: &Cluster) -> Process {
        let flags = ["--no-docker", "--allow-process", "--slots", "3"];
        ProcessSpec { through: self.inside(), ..cluster.worker_spec("only", &cluster.address(), &flags) }
            .start()
    }

    /// A command that runs another one in the mount namespace of this disk.
    fn inside(&self) -> Vec<String> {
        let target = self.holder.id().to_string();
        let mut words = ["nsenter", "--mount", "--target", &target].map(str::to_owned).to_vec();
        if self.is_of_a_user {
            words.extend(["--user", "--preserve-credentials"].map(str::to_owned));
        }
        words
    }

    fn fill(&self) {
        // More than the free space: the part that fits is written.
        assert!(std::fs::write(self.filler(), vec![0; 2 << 20]).is_err());
    }

    fn empty(&self) {
        std::fs::write(self.filler(), "").unwrap();
    }

    fn filler(&self) -> PathBuf {
        let inside = self.path.strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.holder.id())).join(inside).join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
