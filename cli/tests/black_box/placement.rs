//! Jobs go to the workers that their definitions ask for, over real processes, HTTP and WebSockets.

use serde_json::{Value, json};
use testkit::Cluster;

const JOBS: &str = "version: 1
defaults: { runtime: fake }
jobs:
  anywhere: {}
  gpu: { requires: [gpu, cores >= 8] }
  near: { prefers: { zone=b: 10 } }
  named: { specific_worker_ids: [anna, 77] }
  everywhere: { run_on: all }
  ssd: { requires: [disk=ssd] }
";

fn cluster() -> Cluster {
    Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS)
}

fn worker_of(job: &Value) -> &Value {
    &job["attempts"][0]["worker"]["name"]
}

async fn ended(cluster: &Cluster, id: u64) -> Value {
    cluster.api().wait_for_job(id, |job| job["state"] == "succeeded").await
}

#[tokio::test]
async fn labels_lists_and_preferences_choose_the_worker() {
    let cluster = cluster();
    let _server = cluster.start_server(&["--worker-labels", "zone,cores"]).await;
    let worker = ["--no-docker", "--allow-fake", "--slots", "4"];
    let labels = ["--label", "zone=a", "--label", "gpu=x", "--label", "a b=c"];
    let of_anna = cluster.start_worker("anna", &[&worker[..], &labels].concat());
    let _ben =
        cluster.start_worker("ben", &[&worker[..], &["--label", "zone=b", "--label", "cores=4"]].concat());
    let api = cluster.api();
    let anna = api.wait_for_ready_worker("anna").await;
    let ben = api.wait_for_ready_worker("ben").await;
    assert_eq!(anna["labels"], json!({ "zone": "a" }), "a worker may not claim the label gpu");
    assert!(of_anna.log().contains("no job can ask for this label"), "{}", of_anna.log());

    let near = api.post("/api/jobs/near", None).await;
    assert_eq!(worker_of(&ended(&cluster, near["id"].as_u64().expect("an id")).await), "ben");
    let named = api.post("/api/jobs/named", None).await;
    assert_eq!(worker_of(&ended(&cluster, named["id"].as_u64().expect("an id")).await), "anna");

    let gpu = api.post("/api/jobs/gpu", None).await;
    assert_eq!(gpu["warning"]["code"], "no_worker_matches", "{gpu}");
    let id = gpu["id"].as_u64().expect("an id");
    let why = api.get(&format!("/api/jobs/{id}/explain")).await;
    assert_eq!(why["reason"]["code"], "no_match");
    let text = |name: &Value| {
        let verdicts = why["workers"].as_array().expect("a list");
        verdicts.iter().find(|it| it["worker"]["name"] == *name).map(|it| it["text"].clone())
    };
    let anna_lacks = "needs a label gpu, has no such label; needs cores >= 8, has no such label";
    assert_eq!(text(&anna["name"]), Some(anna_lacks.into()));
    let ben_lacks = "needs a label gpu, has no such label; needs cores >= 8, has cores=4";
    assert_eq!(text(&ben["name"]), Some(ben_lacks.into()));

    // An operator sets what is missing, and the job that waits goes at once.
    let (code, shown) =
        cluster.run_cli(&["label", "ben", "gpu=y", "cores=16", "--server", &cluster.address()]);
    assert_eq!(code, 0, "{shown}");
    assert_eq!(worker_of(&ended(&cluster, id).await), "ben");
    let (code, shown) = cluster.run_cli(&["reset-worker", "ben", "--server", &cluster.address()]);
    assert!(code == 0 && shown.contains("is trusted again"), "{shown}");
}

#[tokio::test]
async fn a_worker_with_an_exclusive_label_takes_no_other_jobs() {
    let cluster = cluster();
    let _server = cluster.start_server(&[]).await;
    let labels = ["--label", "gpu=x", "--label", "cores=8", "--label", "exclusive=gpu"];
    let _anna = cluster.start_worker("anna", &[&["--no-docker", "--allow-fake"][..], &labels].concat());
    let api = cluster.api();
    api.wait_for_ready_worker("anna").await;
    let other = api.post("/api/jobs/anywhere", None).await;
    assert_eq!(other["pending_reason"]["code"], "no_match", "{other}");
    let gpu = api.post("/api/jobs/gpu", None).await;
    ended(&cluster, gpu["id"].as_u64().expect("an id")).await;
    let waits = api.get(&format!("/api/jobs/{}", other["id"])).await;
    assert_eq!(waits["state"], "queued");
}

#[tokio::test]
async fn slots_of_zero_are_unbounded() {
    let cluster = cluster();
    let _server = cluster.start_server(&[]).await;
    let _worker = cluster.start_worker("anna", &["--no-docker", "--allow-fake", "--slots", "0"]);
    let api = cluster.api();
    assert_eq!(api.wait_for_ready_worker("anna").await["slots"], 10_000);
    let server = cluster.address();
    let (code, shown) = cluster.run_cli(&["slots", "anna", "2", "--server", &server]);
    assert_eq!(code, 0, "{shown}");
    api.wait_for_worker("anna", |worker| worker["slots"] == 2).await;
    let (code, shown) = cluster.run_cli(&["slots", "anna", "0", "--server", &server]);
    assert_eq!(code, 0, "{shown}");
    api.wait_for_worker("anna", |worker| worker["slots"] == 10_000).await;
}

#[tokio::test]
async fn a_job_runs_on_the_worker_that_its_submission_asks_for() {
    let cluster = cluster();
    let _server = cluster.start_server(&[]).await;
    let flags = |zone| ["--no-docker", "--allow-fake", "--label", zone];
    let _anna = cluster.start_worker("anna", &flags("zone=a"));
    let ben = cluster.start_worker("ben", &flags("zone=b"));
    let api = cluster.api();
    for name in ["anna", "ben"] {
        api.wait_for_ready_worker(name).await;
    }
    let address = cluster.address();
    let cli = |words: &[&str]| cluster.run_cli(&[words, &["--server", &address]].concat());
    for (number, asked, worker) in
        [(1, "ben", "ben"), (2, "anna", "anna"), (3, "zone=b", "ben"), (4, "zone in (a, x)", "anna")]
    {
        let (code, shown) = cli(&["run", "anywhere", "--on", asked, "--wait=60s"]);
        assert_eq!(code, 0, "{shown}");
        assert_eq!(worker_of(&api.get(&format!("/api/jobs/{number}")).await), worker, "{asked}");
    }

    // A definition is only narrowed: this one lists anna.
    let (_, shown) = cli(&["run", "named", "--on", "ben"]);
    assert!(
        shown.contains("no connected worker is allowed to run it: this job asks for worker ben"),
        "{shown}"
    );
    let named = api.all_jobs().await.iter().filter_map(|job| job["id"].as_u64()).max().expect("a job");
    let shown = api.get(&format!("/api/jobs/{named}/explain")).await;
    let listed = "this job asks for worker ben; ben: the definition lists other workers: 77, anna";
    assert!(shown["reason"]["text"].as_str().unwrap().contains(listed), "{shown}");
    let labelled = api.post("/api/jobs/ssd", Some(&serde_json::json!({ "workers": ["ben"] }))).await;
    let shown = api.get(&format!("/api/jobs/{}/explain", labelled["id"])).await;
    let condition = "this job asks for worker ben; ben: needs disk=ssd, has no such label";
    assert!(shown["reason"]["text"].as_str().unwrap().contains(condition), "{shown}");
    for id in [&named.into(), &labelled["id"]] {
        api.post(&format!("/api/jobs/{id}/cancel"), None).await;
    }
    let (code, shown) = cli(&["run", "anywhere", "--on", "benn"]);
    assert!(
        code != 0 && shown.contains("there is no worker \"benn\"") && shown.contains("did you mean \"ben\"?"),
        "{shown}"
    );
    let (_, shown) = cli(&["run", "anywhere", "--on", "zone=c", "--require-worker"]);
    assert!(shown.contains("no_worker"), "{shown}");

    // Of a job on all workers, those that are asked for have a member.
    let (code, shown) = cli(&["run", "everywhere", "--on", "zone=b", "--wait=60s"]);
    assert_eq!(code, 0, "{shown}");
    let members = api.get("/api/jobs?member_of=7").await;
    assert_eq!(members.as_array().map(Vec::len), Some(1), "{members}");
    assert_eq!(members[0]["worker"]["name"], "ben");

    // A worker that is away is waited for, also by a retry.
    drop(ben);
    api.wait_for_worker("ben", |it| it["connected"] == false).await;
    let (_, shown) = cli(&["retry", "1"]);
    assert!(shown.contains("tries job 1 again"), "{shown}");
    let id = api.all_jobs().await.iter().filter_map(|job| job["id"].as_u64()).max().expect("a job");
    let (_, shown) = cli(&["explain", &id.to_string()]);
    assert!(shown.contains("this job asks for worker ben"), "{shown}");
    let (_, shown) = cli(&["show", &id.to_string()]);
    assert!(shown.contains("asks for     worker ben"), "{shown}");
    let _ben = cluster.start_worker("ben", &flags("zone=b"));
    assert_eq!(worker_of(&ended(&cluster, id).await), "ben");
}
