//! A server on a busy day: the definitions of a small company, five workers, schedules, failures, a batch in progress, a job that waits.
//!
//! Jobs run for real within seconds. Then the server is stopped, the times of its ended jobs are laid over the last day, and it is started
//! again. Nothing that it shows names this machine.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use testkit::smtp::{MailServer, Offer};
use testkit::{Api, Cluster, Database, Process, SeededRng, wait_until};

const JOBS_FILE: &str = r#"
version: 1
defaults: { runtime: process, owner: platform }
jobs:
  build-site:
    description: Builds the public site from the main branch
    tags: [web]
    params:
      branch: { default: main, description: The branch that is built }
      pages: { type: integer, min: 1, max: 500, default: 60 }
      theme: { enum: [day, night], default: day }
      drafts: { type: boolean, default: false }
      sites: { type: list, enum: [shop, blog, guide], required: false }
      skip: { type: list, required: false, description: Files that are left out }
      deploy_key: { secret: true, required: false, pattern: "[a-z-]+" }
    command: [build-site, --strict]
    timeout: 20m
  import-orders:
    description: Takes the orders of the shop into the warehouse
    tags: [data]
    command: [import-orders, --shop, north]
    notify: { email: orders@example.org, on: [failed, recovered], period: 1s }
  nightly-report:
    description: Mails the figures of the day
    tags: [data, nightly]
    command: [write-report, --format, pdf]
    schedule: { id: night, cron: "0 2 * * *", timezone: Europe/Berlin }
    notify: { email: [figures@example.org, former-colleague@example.org], on: [succeeded, failed], period: 1s }
  backup-db:
    description: Dumps the databases and copies them to the other site
    tags: [ops]
    requires: { role: db }
    command: [dump-databases, --to, oslo]
    schedule: { id: hourly, cron: "5 * * * *" }
    expect: { success_within: 26h, max_duration: 1h }
  sync-mirror:
    description: Copies the package mirror
    tags: [ops]
    command: [sync-mirror]
    schedule: { id: half-hourly, cron: "*/30 * * * *" }
  check-certificates:
    description: Looks for certificates that end within three weeks
    tags: [ops]
    command: [check-certificates, --days, "21"]
    schedule: { id: morning, at: "06:30" }
  resize-images:
    description: Makes the small pictures of the shop
    tags: [web]
    command: [make-thumbnails, --width, "320"]
  render-film:
    description: Renders a film, a frame in each job
    tags: [media]
    command: [render-frame]
  update-kiosk:
    description: Brings the shop window in Lisbon up to date
    tags: [web]
    requires: { zone: lisbon }
    command: [update-kiosk]
  train-model:
    description: Trains the model of the search
    tags: [research]
    requires: { gpu: a100 }
    command: [train, --epochs, "20"]
    timeout: 12h
    concurrency: { limit: 1, key: labels.team }
    rate_limit: { limit: 12, per: 1h, burst: 4 }
    max_queued: 20
"#;

/// The programs that the definitions name. They stand in the search path of the workers.
const PROGRAMS: [(&str, &str); 9] = [
    ("build-site", BUILD),
    (
        "import-orders",
        "echo 'orders of the shop north: 1,204'\n[ $((LONGSHORE_JOB % 8)) -ne 5 ] || { echo 'the warehouse answered 503' >&2; exit 75; }\n",
    ),
    ("write-report", "echo 'report of 14 pages'\n"),
    ("dump-databases", "echo '4 databases, 18.2 GiB'\n"),
    ("sync-mirror", "echo '212 packages are new'\n"),
    ("check-certificates", "echo '41 certificates are good'\n"),
    (
        "make-thumbnails",
        "[ $LONGSHORE_INDEX -ne 17 ] || { echo 'image 17 is damaged' >&2; exit 2; }\necho done\n",
    ),
    (
        "render-frame",
        "[ $LONGSHORE_INDEX -ge 14 ] || exit 0\necho \"frame $LONGSHORE_INDEX\"\nexec sleep 600\n",
    ),
    ("train", "for loss in 2.31 1.87 1.52; do echo \"loss $loss\"; done\nexec sleep 600\n"),
];

/// Output with colours, as build tools write it.
const BUILD: &str = r#"
green=$(printf '\033[32m') red=$(printf '\033[31m') yellow=$(printf '\033[33m') bold=$(printf '\033[1m') off=$(printf '\033[0m')
echo "${bold}==> Fetching main${off}"
echo "    9f3c2d1 Explain the new prices"
echo "${bold}==> Compiling 60 pages${off}"
n=1
while [ $n -le 60 ]; do
  echo "${green}ok${off}    guide/chapter-$n.md  $((n * 7 % 40 + 12)) ms"
  [ $((n % 13)) -ne 0 ] || echo "${yellow}warn${off}  guide/chapter-$n.md: the link ../old/$n leads nowhere"
  n=$((n + 1))
done
echo "${bold}==> Checking links${off}"
if [ "$PRICES" = draft ]; then
  echo "${red}error${off} prices.md:18: unknown variable 'vat'"
  echo "the site was not built: 1 error, 4 warnings" >&2
  exit 1
fi
echo "${green}${bold}==> The site is built${off}: 60 pages, 1,203 links, 4 warnings"
"#;

/// Names, slots and labels of the workers.
const WORKERS: [(&str, &str, &[&str]); 5] = [
    ("build-1", "4", &["zone=berlin", "disk=ssd"]),
    ("build-2", "4", &["zone=oslo", "disk=ssd"]),
    ("db-2", "2", &["zone=berlin", "role=db"]),
    ("gpu-1", "1", &["zone=oslo", "gpu=a100"]),
    ("edge-3", "1", &["zone=lisbon"]),
];

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// The running server with its workers, and the numbers of what it shows.
pub(crate) struct BusyDay {
    pub(crate) base: String,
    /// A build with coloured output that failed.
    pub(crate) failed: u64,
    /// A job that runs.
    pub(crate) running: u64,
    /// A job that waits, because its only worker is away.
    pub(crate) waiting: u64,
    /// The difference between two revisions of a definition.
    pub(crate) revisions: String,
    /// A batch of which a part has ended.
    pub(crate) batch: u64,
    _server: Process,
    _workers: Vec<Process>,
    _cluster: Cluster,
}

impl BusyDay {
    pub(crate) async fn start() -> Self {
        let mail =
            MailServer::start(Offer::default().without_mailbox("former-colleague@example.org"), &[]).await;
        let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS_FILE);
        write_programs(&cluster);
        let url = format!("smtp+plain://localhost:{}", mail.port);
        let flags = ["--smtp", &url, "--smtp-from", "Longshore <longshore@example.org>"];
        let mut server = cluster.start_server(&flags).await;
        let mut workers = start_workers(&cluster).await;
        let api = cluster.api();
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        let past = run_the_past(&api, now).await;
        let resized =
            batch(&api, "resize-images", json!({"count": 20, "batch_name": "autumn catalogue"})).await;
        api.wait_until_all_ended().await;
        wait_until("all mails are sent or refused", async || {
            let waiting = api.get("/api/notifications?state=waiting").await;
            waiting.as_array().unwrap().is_empty()
        })
        .await;
        let failed = api.get("/api/jobs?state=failed&name=build-site&limit=1").await;
        let former = failed[0]["revision"].as_str().unwrap().to_owned();
        let failed = failed[0]["id"].as_u64().unwrap();
        workers.pop().unwrap().terminate().await;
        for mut worker in workers {
            worker.terminate().await;
        }
        server.terminate().await;
        change_the_build(&cluster);
        let data = cluster.path("data");
        // The store forbids this to the server itself.
        let trigger = "SELECT sql FROM sqlite_schema WHERE name = 'ended_is_for_good'";
        let trigger: String = Database::open(&data).query_one(trigger);
        let moves = move_into_the_past(&past, resized, now);
        Database::execute(&data, &format!("DROP TRIGGER ended_is_for_good;\n{moves}{trigger};"));

        let server = cluster.start_server(&flags).await;
        let mut workers = start_workers(&cluster).await;
        workers.pop().unwrap().terminate().await;
        // It takes the only slot with a GPU before the film does.
        let running = train(&api, "search").await;
        api.wait_for_job(running, |job| job["state"] == "running").await;
        for team in ["search", "search", "prices"] {
            train(&api, team).await;
        }
        let film = json!({"count": 24, "batch_name": "summer film", "concurrency": 4});
        let batch = batch(&api, "render-film", film).await;
        let waiting = submit(&api, "update-kiosk").await;
        wait_until("most frames are rendered", async || {
            let batch = api.get(&format!("/api/batches/{batch}")).await;
            batch["counts"]["succeeded"] == 14 && batch["counts"]["running"] == 4
        })
        .await;
        let base = format!("http://{}", cluster.address());
        let present = api.get("/api/definitions/build-site").await["revision"].as_str().unwrap().to_owned();
        let revisions = format!("/definitions/build-site/revisions?from={former}&to={present}");
        Self {
            base,
            failed,
            running,
            waiting,
            revisions,
            batch,
            _server: server,
            _workers: workers,
            _cluster: cluster,
        }
    }
}

fn write_programs(cluster: &Cluster) {
    std::fs::create_dir(cluster.path("programs")).unwrap();
    for (name, script) in PROGRAMS {
        let file = cluster.path("programs").join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

async fn start_workers(cluster: &Cluster) -> Vec<Process> {
    let mut workers = Vec::new();
    let search_path = format!("{}:{}", cluster.path("programs").display(), std::env::var("PATH").unwrap());
    for (name, slots, labels) in WORKERS {
        let mut flags = vec!["--no-docker", "--allow-process", "--slots", slots];
        flags.extend(labels.iter().flat_map(|label| ["--label", label]));
        let mut command = cluster.worker_spec(name, &cluster.address(), &flags).command();
        command.env("PATH", &search_path);
        workers.push(Process::spawn(command, &cluster.path(&format!("{name}.log"))).unwrap());
        cluster.api().wait_for_ready_worker(name).await;
    }
    workers
}

async fn submit(api: &Api, name: &str) -> u64 {
    api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap()
}

async fn train(api: &Api, team: &str) -> u64 {
    let body = json!({"labels": {"team": team}});
    api.post("/api/jobs/train-model", Some(&body)).await["id"].as_u64().unwrap()
}

/// Changes a definition for the next start of the server.
fn change_the_build(cluster: &Cluster) {
    let (file, jobs) =
        (cluster.path("jobs.yaml"), JOBS_FILE.replace("timeout: 20m", "timeout: 30m\n    retry: 1"));
    let jobs = jobs.replace("[build-site, --strict]", "[build-site, --strict, --no-cache]");
    std::fs::write(
        file,
        jobs.replace("pages: { type: integer, min: 1, max: 500", "pages: { type: integer, min: 1, max: 900"),
    )
    .unwrap();
}

async fn batch(api: &Api, name: &str, body: Value) -> u64 {
    api.post(&format!("/api/jobs/{name}"), Some(&body)).await["batch"].as_u64().unwrap()
}

/// A job of the past day.
struct PastJob {
    id: u64,
    name: &'static str,
    created_at: i64,
    /// The schedule that made it.
    schedule: Option<&'static str>,
}

/// Runs the jobs of the past day, in the order in which they shall have been made.
async fn run_the_past(api: &Api, now: i64) -> Vec<PastJob> {
    let mut random = SeededRng::new(24);
    let hour = now - now.rem_euclid(HOUR_MS);
    let mut jobs = Vec::new();
    let mut add = |name, schedule, created_at: i64| {
        if created_at < now - 2 * MINUTE_MS {
            jobs.push(PastJob { id: 0, name, created_at, schedule });
        }
    };
    for n in 0..24 {
        add("backup-db", Some("hourly"), hour + 5 * MINUTE_MS - n * HOUR_MS);
        add("sync-mirror", Some("half-hourly"), hour - n * HOUR_MS);
        add("sync-mirror", Some("half-hourly"), hour + 30 * MINUTE_MS - n * HOUR_MS);
    }
    add("nightly-report", Some("night"), hour - 9 * HOUR_MS);
    add("check-certificates", Some("morning"), hour - 6 * HOUR_MS + 30 * MINUTE_MS);
    for (name, count) in [("build-site", 40), ("import-orders", 44)] {
        for n in 0..count {
            // Most people work in the last ten of these hours.
            let hours = if n % 3 == 0 { 24 } else { 10 };
            let age = i64::try_from(random.below(hours * 3_600_000)).unwrap();
            add(name, None, now - age);
        }
    }
    jobs.sort_by_key(|job| job.created_at);
    let mut builds = 0;
    for job in &mut jobs {
        builds += u32::from(job.name == "build-site");
        // Each sixth build fails.
        job.id = if job.name == "build-site" && builds % 6 == 2 {
            let draft = json!({"environment": {"PRICES": "draft"}});
            api.post("/api/jobs/build-site", Some(&draft)).await["id"].as_u64().unwrap()
        } else {
            submit(api, job.name).await
        };
    }
    jobs
}

/// The statements that lay ended jobs, their schedules and messages over the day.
fn move_into_the_past(past: &[PastJob], resized: u64, now: i64) -> String {
    // About how long a job of each definition runs, in seconds.
    let usual = HashMap::from([
        ("build-site", 250),
        ("import-orders", 95),
        ("nightly-report", 40),
        ("backup-db", 760),
        ("sync-mirror", 130),
        ("check-certificates", 8),
    ]);
    let mut random = SeededRng::new(60);
    let mut sql = String::new();
    for job in past {
        let usual: u64 = usual[job.name] * 1_000;
        let ran = i64::try_from(usual * 3 / 4 + random.below(usual / 2)).unwrap();
        let created = job.created_at;
        let ended = (created + 900 + ran).min(now - 20_000);
        let (id, started) = (job.id, created + 900);
        writeln!(
            sql,
            "UPDATE ended SET created_at = {created}, due_at = {created}, assigned_at = {created} + 40, started_at = {started}, \
             closed_at = {ended}, ended_at = {ended} WHERE id = {id};"
        )
        .unwrap();
        if let Some(schedule) = job.schedule {
            let name = job.name;
            writeln!(
                sql,
                "INSERT INTO fires (definition, schedule, first_slot, last_slot, count, exact, verdict, job, at) \
                 VALUES ('{name}', '{schedule}', {created}, {created}, 1, 1, 'fired', {id}, {created} + 4);"
            )
            .unwrap();
        }
    }
    let created = now - 100 * MINUTE_MS;
    writeln!(
        sql,
        "UPDATE ended SET created_at = {created}, due_at = {created}, assigned_at = {created} + 40 + (id - {resized}) * 7000, \
         started_at = {created} + 900 + (id - {resized}) * 7000, closed_at = {created} + 26000 + (id - {resized}) * 7000, \
         ended_at = {created} + 26000 + (id - {resized}) * 7000 WHERE batch = {resized};
         UPDATE batches SET created_at = {created}, ended_at = {created} + 300000 WHERE id = {resized};
         UPDATE notifications SET first_at = {now} - 1500000 * (1 + (SELECT max(id) FROM notifications) - id);
         UPDATE notifications SET last_at = first_at, tried_at = first_at + 800;"
    )
    .unwrap();
    sql
}
