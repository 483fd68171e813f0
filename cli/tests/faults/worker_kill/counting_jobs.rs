//! Jobs that count on both output streams for some seconds, and end with their own exit code.

use serde_json::{Value, json};

use crate::support::docker::DefinitionContainers;
use crate::support::{Api, Cluster, Process, wait_for, wait_until};

/// The runtime of the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    Process,
    Docker,
}

/// A server, a worker, and running jobs.
pub(super) struct CountingJobs {
    pub(super) server: Process,
    pub(super) worker: Process,
    api: Api,
    jobs: Vec<u64>,
    flags: Vec<String>,
    containers: Option<DefinitionContainers>,
    cluster: Cluster,
}

impl CountingJobs {
    /// Starts everything and waits until all jobs run.
    pub(super) async fn begin(runtime: Runtime) -> Self {
        let cluster = Cluster::new("");
        let name = format!("count-{}", cluster.port());
        std::fs::create_dir(cluster.path("truth")).unwrap();
        std::fs::write(cluster.path("jobs.yaml"), jobs_file(&cluster, runtime, &name)).unwrap();
        let flags = flags(&cluster, runtime);
        let containers = (runtime == Runtime::Docker).then(|| DefinitionContainers::new(&name));
        let server = cluster.start_server(&[]).await;
        let worker = start_worker(&cluster, &flags);
        let api = cluster.api();
        let mut jobs = Vec::new();
        for code in 0..JOBS {
            let body = json!({ "environment": { "CODE": code.to_string() } });
            jobs.push(api.post(&format!("/api/jobs/{name}"), Some(&body)).await["id"].as_u64().unwrap());
        }
        for job in &jobs {
            api.wait_for_job(*job, |job| job["state"] == "running").await;
        }
        Self { server, worker, api, jobs, flags, containers, cluster }
    }

    pub(super) async fn start_worker(&mut self) {
        self.worker = start_worker(&self.cluster, &self.flags);
        self.api.wait_for_ready_worker("only").await;
    }

    pub(super) async fn start_server(&mut self) {
        self.server = self.cluster.start_server(&[]).await;
    }

    pub(super) async fn one_has_ended(&self) {
        wait_until("a job ends", async || self.jobs.iter().any(|job| self.truth(*job).len() == 2)).await;
    }

    pub(super) async fn all_have_ended(&self) {
        wait_until("all jobs end", async || self.have_all_ended()).await;
    }

    pub(super) fn have_all_ended(&self) -> bool {
        self.jobs.iter().all(|job| self.truth(*job).len() == 2)
    }

    /// Checks that all outcomes and output are complete and nothing is left.
    pub(super) async fn all_is_told(&mut self) {
        self.api.wait_until_all_ended().await;
        for (code, job) in self.jobs.iter().enumerate() {
            let shown = self.api.get(&format!("/api/jobs/{job}")).await;
            let state = if code == 0 { "succeeded" } else { "failed" };
            assert_eq!((&shown["state"], &shown["exit_code"]), (&json!(state), &json!(code)), "{shown}");
            assert_eq!(shown["attempt_count"], 1, "{shown}");
            assert_eq!(shown["late_reports"], json!([]), "{shown}");
            let fence = &shown["attempts"][0]["fence"];
            assert_eq!(self.truth(*job), [format!("start {fence}"), format!("end {fence}")], "it ran once");
            self.check_output(*job, &shown).await;
        }
        if let Some(containers) = &self.containers {
            wait_until("no container is left", async || containers.ids().is_empty()).await;
        }
        let attempts = self.cluster.attempts_dir("only");
        wait_until("no attempt directory is left", async || {
            std::fs::read_dir(&attempts).unwrap().next().is_none()
        })
        .await;
        self.worker.terminate().await;
        self.server.terminate().await;
    }

    async fn check_output(&self, job: u64, shown: &Value) {
        for stream in ["stdout", "stderr"] {
            let expected: String = (1..=LINES).map(|n| format!("{stream} {job} {n}\n")).collect();
            let path = format!("/api/jobs/{job}/logs?stream={stream}");
            let told = shown["attempts"][0]["output"][format!("{stream}_bytes")].as_u64();
            assert_eq!(told, Some(expected.len() as u64), "{shown}");
            wait_for(&format!("all of {stream} is there"), async || {
                Some(self.api.get_bytes(&path).await).filter(|bytes| bytes.len() >= expected.len())
            })
            .await;
            let got = String::from_utf8(self.api.get_bytes(&path).await).unwrap();
            assert_eq!(got, expected, "job {job}");
        }
    }

    /// The start and end that the job itself recorded, with its fence.
    fn truth(&self, job: u64) -> Vec<String> {
        let text =
            std::fs::read_to_string(self.cluster.path("truth").join(job.to_string())).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn start_worker(cluster: &Cluster, flags: &[String]) -> Process {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    cluster.start_worker("only", &flags)
}

fn flags(cluster: &Cluster, runtime: Runtime) -> Vec<String> {
    let mut flags: Vec<String> = ["--on-term", "detach", "--slots"].map(String::from).into();
    flags.push(JOBS.to_string());
    match runtime {
        Runtime::Process => flags.extend(["--no-docker", "--allow-process"].map(String::from)),
        Runtime::Docker => {
            flags.extend(["--allow-mount".to_owned(), cluster.path("truth").display().to_string()])
        }
    }
    flags
}

fn jobs_file(cluster: &Cluster, runtime: Runtime, name: &str) -> String {
    let truth = cluster.path("truth").display().to_string();
    let manner = match runtime {
        Runtime::Process => format!("runtime: process\n    environment: {{ TRUTH: {truth} }}"),
        Runtime::Docker => format!(
            "image: busybox\n    pull_policy: never\n    network: none\n    environment: {{ TRUTH: /truth }}\n    volumes: ['{truth}:/truth']"
        ),
    };
    format!(
        "version: 1\njobs:\n  {name}:\n    {manner}\n    command:\n      - sh\n      - -c\n      - |\n{}\n",
        SCRIPT.replace('$', "$$")
    )
}

const JOBS: usize = 4;
const LINES: u32 = 40;
/// Each line is written to stdout, then to stderr; a killed reader must not stop either.
const SCRIPT: &str = r#"        truth="$TRUTH/$LONGSHORE_JOB"
        echo "start $LONGSHORE_ATTEMPT" >> "$truth"
        for n in $(seq 40); do
          echo "stdout $LONGSHORE_JOB $n"
          echo "stderr $LONGSHORE_JOB $n" >&2
          sleep 0.1
        done
        echo "end $LONGSHORE_ATTEMPT" >> "$truth"
        exit "$CODE""#;
