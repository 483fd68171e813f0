//! A disk that is full, under a worker that runs plain processes: it neither loses how they ended nor starts anything twice.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use chaos::stage::Launch;
use client::attempt_dir::Ledger;
use client::runtime::Launch as Attempt;
use protocol::{ContainerSpec, Fence, JobId, Nonce, Revision, RuntimeKind, Token};
use serde_json::Value;

use crate::support::{Api, Process, Stage, holds, own_mounts};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_no_outcome_and_starts_nothing_twice() {
    let stage = waiting();
    let Some(disk) = Disk::small(&stage.path("only")).await else {
        println!("no mounts of one's own here: no disk is full");
        return;
    };
    let mut server = stage.server(&[]).await;
    let (mut worker, api) = (disk.worker(&stage), stage.api());
    api.worker_ready("only").await;
    let [watched, alone] = [submit(&api).await, submit(&api).await];
    for job in [watched, alone] {
        api.job(job, |it| it["state"] == "running").await;
    }

    disk.fill();
    go(&stage, watched);
    let untold = |worker: &Process| worker.said().matches("cannot write down how the program ended").count();
    holds("an end cannot be written down", async || untold(&worker) == 1).await;
    let late = submit(&api).await;
    go(&stage, late);
    let given_back = |job: &Value| {
        job["attempts"].as_array().is_some_and(|all| all.iter().any(|it| it["outcome"] == "released"))
    };
    api.job(late, given_back).await;
    worker.kill();
    go(&stage, alone);
    holds("another one cannot either", async || untold(&worker) == 2).await;

    disk.empty();
    let mut worker = disk.worker(&stage);
    have_run_once(&stage, &[watched, alone, late]).await;
    worker.leave().await;
    server.leave().await;
}

#[tokio::test]
async fn a_program_that_cannot_be_written_down_is_stopped() {
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
    let attempt = Attempt { token, revision, name, spec: spec.into(), body: None, time_left: None };
    let dir = Ledger::open(state.path()).unwrap().create(&attempt).unwrap();
    // There is room for it to be about to start, and none for which process it is: a file is replaced by one beside it. When that has
    // been seen there is room again.
    let script = "dir=$1 out=$2; shift 2
        cp $dir/attempt.json $out/kept && mount -t tmpfs -o nr_inodes=8 none $dir && cp $out/kept $dir/attempt.json
        : > $dir/room
        (while ! grep -q 'cannot write down' $out/said; do sleep 0.02; done; rm $dir/room) &
        : > $out/said; \"$@\" 2>> $out/said; cp $dir/exit $out";
    let path = dir.path().display().to_string();
    through.extend(["sh", "-c", script, "sh", &path, &place].map(str::to_owned));
    through.extend([env!("CARGO_BIN_EXE_longshore"), "shim", &path].map(str::to_owned));

    let status = tokio::process::Command::new(&through[0]).args(&through[1..]).status().await.unwrap();

    assert!(status.success(), "{status}");
    let said = std::fs::read_to_string(state.path().join("said")).unwrap();
    assert!(said.contains("stopped a program that could not be written down"), "{said}");
    let exit: Value = serde_json::from_slice(&std::fs::read(state.path().join("exit")).unwrap()).unwrap();
    assert_eq!(exit["exit"], "vanished");
    assert!(chaos::stage::mentioning(state.path()).is_empty(), "it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_cannot_be_removed_hides_no_other() {
    let stage = waiting();
    let Some(disk) = Disk::small(&stage.path("only")).await else { return };
    let mut server = stage.server(&[]).await;
    let (mut worker, api) = (disk.worker(&stage), stage.api());
    api.worker_ready("only").await;
    let job = submit(&api).await;
    api.job(job, |it| it["state"] == "running").await;
    worker.kill();
    // Blank, as after a crash while it was made; and a disk of its own, which nobody can remove.
    let only = stage.path("only").display().to_string();
    let attempts = format!("$(ls -d {only}/attempts {only}/slot-0/attempts 2>/dev/null)");
    let mount = format!("cd {attempts} && mkdir 99-99 && mount -t tmpfs none 99-99");
    let words = disk.inside();
    let done = Command::new(&words[0]).args(&words[1..]).args(["sh", "-c", &mount]).status().unwrap();
    assert!(done.success(), "{done}");

    let mut worker = disk.worker(&stage);
    holds("it was tried", async || worker.said().contains("neither be read nor set aside")).await;
    go(&stage, job);

    have_run_once(&stage, &[job]).await;
    worker.leave().await;
    server.leave().await;
}

/// A stage for jobs that tell when they start, and wait until they may go.
fn waiting() -> Stage {
    let stage = Stage::new("");
    let (place, test) = (stage.path("").display().to_string(), std::process::id());
    let wait =
        format!("while [ ! -e {place}/go-$LONGSHORE_JOB ] && [ -d /proc/{test} ]; do sleep 0.05; done");
    let script = format!("echo $LONGSHORE_JOB >> {place}/starts; {wait}; exit 3");
    let jobs =
        format!("version: 1\njobs: {{ wait: {{ runtime: process, command: [sh, -c, '{script}'] }} }}\n");
    std::fs::write(stage.path("jobs.yaml"), jobs).unwrap();
    stage
}

fn go(stage: &Stage, job: u64) {
    std::fs::write(stage.path(&format!("go-{job}")), "").unwrap();
}

async fn have_run_once(stage: &Stage, jobs: &[u64]) {
    for job in jobs {
        let ended = stage.api().job(*job, |it| it["state"] == "failed").await;
        assert_eq!(ended["attempts"].as_array().unwrap().last().unwrap()["exit_code"], 3, "{ended}");
    }
    let starts = std::fs::read_to_string(stage.path("starts")).unwrap();
    let mut starts: Vec<u64> = starts.lines().map(|line| line.parse().unwrap()).collect();
    starts.sort_unstable();
    assert_eq!(starts, jobs);
}

async fn submit(api: &Api) -> u64 {
    api.post("/api/jobs/wait", None).await["id"].as_u64().unwrap()
}

/// A small disk that is there for a worker and the processes it starts, and stays when the worker dies.
struct Disk {
    holder: Child,
    path: PathBuf,
    is_of_a_user: bool,
}

impl Disk {
    /// None where nobody may mount.
    async fn small(path: &Path) -> Option<Self> {
        let mut words = own_mounts()?;
        let is_of_a_user = words.iter().any(|word| word == "--user");
        std::fs::create_dir(path).unwrap();
        let mount = "mount -t tmpfs -o size=1m,mode=0700 none $1 && : > $1/filler && exec sleep 600";
        words.extend(["sh", "-c", mount, "sh", path.to_str().unwrap()].map(str::to_owned));
        let holder = Command::new(&words[0]).args(&words[1..]).spawn().unwrap();
        let disk = Self { holder, path: path.to_owned(), is_of_a_user };
        holds("the disk is there", async || disk.filler().exists()).await;
        Some(disk)
    }

    fn worker(&self, stage: &Stage) -> Process {
        let flags = ["--no-docker", "--allow-process", "--slots", "3"];
        Launch { through: self.inside(), ..stage.worker_launch("only", &stage.address(), &flags) }.start()
    }

    /// A command that runs another where this disk is.
    fn inside(&self) -> Vec<String> {
        let target = self.holder.id().to_string();
        let mut words = ["nsenter", "--mount", "--target", &target].map(str::to_owned).to_vec();
        if self.is_of_a_user {
            words.extend(["--user", "--preserve-credentials"].map(str::to_owned));
        }
        words
    }

    fn fill(&self) {
        // More than there is room for: what fits is written.
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
        // It may have ended already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
