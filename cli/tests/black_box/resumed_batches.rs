//! `longshore submit --resume`: a submitter that is run again with its key.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{Cluster, Process, ProcessSpec, wait_until};

use crate::dropping_proxy::DroppingProxy;
use crate::running::Running;
use crate::stub::{CliOutput, JSON, Stub, longshore, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_longshore");
const PROBLEM: &str = "application/problem+json";

/// A server with a list of three jobs. Each writes a line when it starts, waits for the file `go-PART`, and fails without the file `ok-PART`.
struct Submitter {
    running: Running,
    list: String,
}

impl Submitter {
    async fn start() -> Self {
        let running =
            Running::start("version: 1\njobs:\n  other: { runtime: process, command: ['true'] }\n").await;
        let home = running.cluster.path("");
        let script = format!(
            "cd {}; echo run >> runs-$0; while [ ! -e go-$0 ]; do sleep 0.02; done; test -e ok-$0",
            home.display()
        );
        let jobs = format!(
            "version: 1\njobs:\n  step:\n    runtime: process\n    params: {{ part: {{ type: integer, required: true }} }}\n    \
             command: [sh, -c, '{script}', '${{params.part}}']\n"
        );
        std::fs::write(running.cluster.path("jobs.yaml"), jobs).unwrap();
        assert_eq!(running.run_cli(&["reload"]).code, 0);
        let list = running.cluster.path("list.json").display().to_string();
        let step = |part: u64| json!({ "name": "step", "params": { "part": part } });
        std::fs::write(&list, json!([step(0), step(1), step(2)]).to_string()).unwrap();
        Self { running, list }
    }

    /// Lets these parts end when they start, and come to this end.
    fn touch(&self, kind: &str, parts: &[u64]) {
        for part in parts {
            std::fs::write(self.running.cluster.path(&format!("{kind}-{part}")), "").unwrap();
        }
    }

    fn remove(&self, kind: &str, part: u64) {
        std::fs::remove_file(self.running.cluster.path(&format!("{kind}-{part}"))).unwrap();
    }

    /// How often each part was started.
    fn runs(&self) -> [usize; 3] {
        [0, 1, 2].map(|part| {
            let runs = std::fs::read_to_string(self.running.cluster.path(&format!("runs-{part}")));
            runs.unwrap_or_default().lines().count()
        })
    }

    fn words(&self) -> [&str; 5] {
        ["submit", &self.list, "--key", "night", "--resume"]
    }

    fn resume(&self) -> CliOutput {
        self.running.run_cli(&self.words())
    }

    /// Starts the verb against a server at this address.
    fn spawn(&self, address: &str, log: &str) -> Process {
        let words = [&self.words()[..], &["--server", address]].concat();
        let log = self.running.cluster.path(log);
        ProcessSpec::new(Path::new(PROGRAM), words.into_iter().map(str::to_owned).collect(), log).start()
    }

    async fn batches(&self) -> usize {
        self.running.api.get("/api/batches").await.as_array().unwrap().len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_has_succeeded_is_not_made_again() {
    let submitter = Submitter::start().await;
    submitter.touch("go", &[0, 1, 2]);
    submitter.touch("ok", &[0, 1, 2]);
    let first = submitter.resume();
    assert_eq!(first.code, 0, "{first:?}");
    let note = "longshore: no batch of this key is known: made batch 1 of 3 jobs\n";
    assert!(first.err.starts_with(note), "{first:?}");
    let again = submitter.resume();
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.err.starts_with("longshore: this key created batch 1 before: going on with it\n"));
    assert_eq!((submitter.runs(), submitter.batches().await), ([1, 1, 1], 1));
    let quiet = submitter.running.run_cli(&[&submitter.words()[..], &["-q"]].concat());
    assert_eq!((quiet.code, quiet.out.as_str(), quiet.err.as_str()), (0, "1\n", ""));
    let shown = submitter.running.run_cli(&[&submitter.words()[..], &["-o", "json"]].concat());
    let shown: Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!((&shown["id"], &shown["state"]), (&json!(1), &json!("succeeded")));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_has_failed_is_repeated_until_it_succeeds() {
    let submitter = Submitter::start().await;
    submitter.touch("go", &[0, 1, 2]);
    submitter.touch("ok", &[0, 2]);
    let first = submitter.resume();
    assert_eq!((first.code, submitter.runs()), (1, [1, 1, 1]), "{first:?}");
    let error = |job: u64| {
        format!(
            "error: batch 1: 1 member has not succeeded (job {job}); 'longshore batch 1 results --latest' shows the members\n"
        )
    };
    assert!(first.err.ends_with(&error(2)), "{first:?}");

    let failed_again = submitter.resume();
    assert_eq!((failed_again.code, submitter.runs()), (1, [1, 2, 1]), "{failed_again:?}");
    assert!(failed_again.err.contains("longshore: batch 4 repeats 1 member of batch 1\n"));
    assert!(failed_again.err.ends_with(&error(4)), "{failed_again:?}");

    submitter.touch("ok", &[1]);
    let repaired = submitter.resume();
    assert_eq!((repaired.code, submitter.runs()), (0, [1, 3, 1]), "{repaired:?}");
    let note = "longshore: batch 1: all members have succeeded, with their retries\n";
    assert!(repaired.err.ends_with(note), "{repaired:?}");
    let nothing_left = submitter.resume();
    assert_eq!((nothing_left.code, submitter.runs()), (0, [1, 3, 1]), "{nothing_left:?}");
    assert_eq!(submitter.batches().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_was_repaired_by_hand_is_a_success_and_a_cancelled_member_is_not() {
    let submitter = Submitter::start().await;
    submitter.touch("go", &[0, 1]);
    submitter.touch("ok", &[0, 1, 2]);
    submitter.remove("ok", 1);
    let mut waiting = submitter.spawn(&submitter.running.cluster.address(), "waiting.log");
    wait_until("the last part runs", async || submitter.runs() == [1, 1, 1]).await;
    assert_eq!(submitter.running.run_cli(&["cancel", "1[2]"]).code, 0);
    assert_eq!(waiting.wait_for_exit().await.code(), Some(1), "{}", waiting.log());

    submitter.touch("ok", &[1]);
    let by_hand = submitter.running.run_cli(&["batch", "1", "retry", "--yes", "--wait"]);
    assert_eq!(by_hand.code, 0, "{by_hand:?}");
    let said = submitter.resume();
    let error = "error: batch 1: 1 member was cancelled (job 3); to repeat these: longshore batch 1 retry --cancelled\n";
    assert!(said.code == 1 && said.err.ends_with(error), "{said:?}");
    submitter.touch("go", &[2]);
    assert_eq!(submitter.running.run_cli(&["batch", "1", "retry", "--cancelled", "--yes", "--wait"]).code, 0);
    let said = submitter.resume();
    assert_eq!((said.code, submitter.runs()), (0, [1, 2, 2]), "{said:?}");
    assert_eq!(submitter.batches().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_that_go_on_are_waited_for_and_not_made_twice() {
    let submitter = Submitter::start().await;
    submitter.touch("go", &[0, 1, 2]);
    submitter.touch("ok", &[0]);
    assert_eq!(submitter.resume().code, 1);
    submitter.touch("ok", &[1, 2]);
    submitter.remove("go", 1);
    submitter.remove("go", 2);
    // One member alone, and then the rest with the batch.
    assert_eq!(submitter.running.run_cli(&["retry", "1[1]"]).code, 0);
    assert_eq!(submitter.running.run_cli(&["batch", "1", "retry", "--yes"]).code, 0);
    let mut waiting = submitter.spawn(&submitter.running.cluster.address(), "waiting.log");
    wait_until("it waits for the second batch", async || waiting.log().contains("batch 5: 0 of 1 ended"))
        .await;
    submitter.touch("go", &[2]);
    wait_until("it waits for the member", async || waiting.log().contains("retries of 1 member have not"))
        .await;
    submitter.touch("go", &[1]);
    assert_eq!(waiting.wait_for_exit().await.code(), Some(0), "{}", waiting.log());
    assert_eq!((submitter.runs(), submitter.batches().await), ([1, 2, 2], 2));
    for ended in ["batch 1: 3 of 3 ended", "batch 5: 1 of 1 ended"] {
        assert_eq!(waiting.log().matches(ended).count(), 1, "{}", waiting.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_could_not_start_is_left_until_the_job_before_it_is_repaired() {
    let submitter = Submitter::start().await;
    submitter.touch("go", &[1]);
    submitter.touch("ok", &[1]);
    // It is in no batch, and does not end yet: nothing can come after a job that has failed.
    assert_eq!(submitter.running.run_cli(&["run", "step", "-p", "part=0"]).code, 0);
    std::fs::write(&submitter.list, r#"[{"name":"step","params":{"part":1},"after":[1]}]"#).unwrap();
    let mut first = submitter.spawn(&submitter.running.cluster.address(), "first.log");
    wait_until("it waits", async || first.log().contains("batch 2: 0 of 1 ended")).await;
    submitter.touch("go", &[0]);
    assert_eq!(first.wait_for_exit().await.code(), Some(1), "{}", first.log());
    let again = submitter.resume();
    assert_eq!((again.code, submitter.runs()), (1, [1, 0, 0]), "{again:?}");
    let error =
        "error: batch 2: 1 member has not started, because a job before it did not end as required (job 2); ";
    for said in [first.log(), again.err] {
        assert!(said.contains(error), "{said}");
    }
    submitter.touch("ok", &[0]);
    assert_eq!(submitter.running.run_cli(&["retry", "1", "--wait"]).code, 0);
    let said = submitter.resume();
    assert_eq!((said.code, submitter.runs()), (0, [2, 1, 0]), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_has_succeeded_is_none_if_a_later_attempt_of_a_member_has_not() {
    let submitter = Submitter::start().await;
    submitter.touch("go", &[0, 1, 2]);
    submitter.touch("ok", &[0, 1, 2]);
    assert_eq!(submitter.resume().code, 0);
    submitter.remove("ok", 1);
    assert_eq!(submitter.running.run_cli(&["retry", "2", "--wait"]).code, 1);
    let said = submitter.resume();
    assert!(said.code == 1 && said.err.contains("1 member has not succeeded (job "), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_and_a_killed_submitter_double_nothing() {
    let mut submitter = Submitter::start().await;
    submitter.touch("ok", &[0, 1, 2]);
    let address = submitter.running.cluster.address();
    let mut killed = submitter.spawn(&address, "killed.log");
    wait_until("all parts run", async || submitter.runs() == [1, 1, 1]).await;
    submitter.running.server.kill();
    killed.kill();
    let mut again = submitter.spawn(&address, "again.log");
    wait_until("the second one waits", async || again.log().contains("trying again for 15 minutes")).await;
    submitter.running.server = submitter.running.cluster.start_server(&[]).await;
    wait_until("it goes on", async || again.log().contains("this key created batch 1 before")).await;
    submitter.touch("go", &[0, 1, 2]);
    assert_eq!(again.wait_for_exit().await.code(), Some(0), "{}", again.log());
    assert_eq!((submitter.runs(), submitter.batches().await), ([1, 1, 1], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_doubles_nothing() {
    let submitter = Submitter::start().await;
    submitter.touch("go", &[0, 1, 2]);
    submitter.touch("ok", &[0]);
    let is_made = |line: &str| line.starts_with("POST ") && !line.contains("dry_run=1");
    let proxy = DroppingProxy::start(&submitter.running.cluster.address(), is_made);
    let first = submitter.spawn(&proxy.address, "first.log").wait_for_exit().await;
    // The answer to the request that was sent again is that of an earlier run.
    assert_eq!((first.code(), submitter.runs()), (Some(1), [1, 2, 2]));
    submitter.touch("ok", &[1, 2]);
    proxy.lose_the_next();
    let mut second = submitter.spawn(&proxy.address, "second.log");
    assert_eq!(second.wait_for_exit().await.code(), Some(0), "{}", second.log());
    assert_eq!((submitter.runs(), submitter.batches().await), ([1, 3, 3], 3));
    let requests = proxy.requests();
    let retries: Vec<&String> =
        requests.iter().filter(|line| line.contains("/api/batches/1/retry")).collect();
    assert!(retries.len() >= 4 && proxy.lost() == 4, "{requests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_ends_the_wait_and_the_same_command_goes_on() {
    let submitter = Submitter::start().await;
    submitter.touch("ok", &[0, 1, 2]);
    let said = submitter.running.run_cli(&[&submitter.words()[..], &["--wait=10ms"]].concat());
    assert!(said.code == 124 && said.err.ends_with("the same command goes on with it\n"), "{said:?}");
    submitter.touch("go", &[0, 1, 2]);
    let said = submitter.resume();
    assert_eq!((said.code, submitter.runs(), submitter.batches().await), (0, [1, 1, 1], 1), "{said:?}");
}

#[test]
fn a_resumed_run_needs_a_key_and_a_batch_that_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("list.json");
    std::fs::write(&list, r#"[{"name":"step"}]"#).unwrap();
    let list = list.to_str().unwrap();
    let said = run(&mut longshore(&["submit", list, "--resume"]));
    let hint =
        "give the runs for the same data the same key, such as --key \"nightly-$LONGSHORE_SCHEDULED_AT\"";
    let error = "error: --resume needs --key, which finds the batch of an earlier run";
    assert_eq!((said.code, said.err), (2, format!("{error}; {hint}\n")));

    let made = r#"{"batch":7,"count":1,"first":7,"last":7,"replayed":true}"#;
    let pruned = r#"{"code":"pruned","detail":"the key made job 7, which has been removed since"}"#;
    let not_found = r#"{"code":"batch_not_found","detail":"there is no batch 7"}"#;
    for (status, answer, kind) in [("410 Gone", pruned, PROBLEM), ("200 OK", made, JSON)] {
        let stub = Stub::new();
        stub.on("POST /api/jobs", status, kind, answer).on(
            "GET /api/batches/7?wait=1s",
            "404 Not Found",
            PROBLEM,
            not_found,
        );
        let said = run(&mut stub.longshore(&["submit", list, "--resume", "--key", "night", "-q"]));
        let error = "error: the batch of the key night is no longer kept: it is not known what of it is left, and nothing was made; ";
        assert!(said.code == 4 && said.err.starts_with(error), "{said:?}");
        assert!(said.err.contains("give another --key"), "{said:?}");
        assert!(stub.requests().iter().all(|request| !request.line.contains("retry")), "{said:?}");
    }
}

/// The recipe of docs/batches-and-pipelines.md, with plain processes instead of containers, and without TLS.
#[tokio::test(flavor = "multi_thread")]
async fn the_recipe_of_the_docs_repairs_its_submitter() {
    let page = include_str!("../../../docs/batches-and-pipelines.md");
    let (_, recipe) = page.split_once("**A nightly submitter that can be run again.**").unwrap();
    let (_, recipe) = recipe.split_once("```yaml\n").unwrap();
    let (recipe, _) = recipe.split_once("```").unwrap();

    let cluster = Cluster::new(PROGRAM, "");
    let home: PathBuf = cluster.path("");
    let step = |name: &str| {
        let script = format!("cd {}; echo run >> runs-{name}; test -e ok-{name}", home.display());
        format!("{{ runtime: process, command: [sh, -c, '{script}'] }}")
    };
    let mut jobs = recipe.to_owned();
    for (from, to) in [
        // Its schedule fires on no day of most years.
        ("\"0 2 * * *\"", "\"0 2 29 2 *\"".to_owned()),
        ("longshore submit", format!("{PROGRAM} submit")),
        ("--server https://jobs.example:8080", format!("--server {}", cluster.address())),
        (" --ca-file /etc/longshore/ca.pem", String::new()),
        (" --token-file \"$LONGSHORE_SECRETS_DIR/nightly_token\"", String::new()),
        ("    secrets: [nightly_token]\n", String::new()),
        ("backoff: { initial: 10m }", "backoff: { initial: 10ms }".to_owned()),
        ("{ image: busybox, command: [echo, extract] }", step("extract")),
        ("{ image: busybox, command: [echo, load] }", step("load")),
    ] {
        assert!(jobs.contains(from), "{from}: {jobs}");
        jobs = jobs.replace(from, &to);
    }
    std::fs::write(cluster.path("jobs.yaml"), format!("version: 1\n{jobs}")).unwrap();
    std::fs::write(cluster.path("ok-extract"), "").unwrap();
    let _server = cluster.start_server(&[]).await;
    let flags = ["--no-docker", "--allow-process", "--slots", "4", "--label", "submits=1"];
    let _worker = cluster.start_worker("only", &flags);
    let api = cluster.api();
    api.wait_for_ready_worker("only").await;
    let runs = |name: &str| {
        std::fs::read_to_string(cluster.path(&format!("runs-{name}"))).unwrap_or_default().lines().count()
    };

    let nightly = api.post("/api/jobs/nightly?as_scheduled=1", None).await["id"].as_u64().unwrap();
    let ended = api.wait_for_job(nightly, |job| job["state"] == "failed").await;
    assert_eq!((&ended["exit_code"], &ended["attempt_count"]), (&json!(1), &json!(2)));
    assert_eq!((runs("extract"), runs("load")), (1, 2), "its own retry has repeated what had failed");

    std::fs::write(cluster.path("ok-load"), "").unwrap();
    let again = api.post(&format!("/api/jobs/{nightly}/retry"), None).await["id"].as_u64().unwrap();
    let ended = api.wait_for_job(again, |job| !job["ended_at"].is_null()).await;
    assert_eq!(ended["state"], "succeeded", "{ended}");
    assert_eq!((runs("extract"), runs("load")), (1, 3));
}
