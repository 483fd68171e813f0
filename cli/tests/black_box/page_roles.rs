//! Pages of the dashboard offer each role what it may do, and a submitter of some definitions their jobs only. Other forms are refused.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use reqwest::Client;
use testkit::{Cluster, Process, http, wait_until};

const JOBS: &str = "version: 1
jobs:
  hello: { runtime: fake, environment: { FAKE_SLEEP: 100s }, schedule: { every: 1h } }
  other: { runtime: fake }
";

/// A server with a worker and a job of each definition, and its pages as each role sees them.
struct Site {
    cluster: Cluster,
    admin: String,
    _processes: [Process; 2],
}

impl Site {
    async fn start() -> Self {
        let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
        let server = cluster.start_server(&["--require-tokens"]).await;
        let admin = cluster.admin_token();
        let join = cluster.make_token(&admin, "machines", &["--role", "worker"]);
        let worker = cluster.start_worker("anna", &["--no-docker", "--allow-fake", "--token-file", &join]);
        let site = Self { cluster, admin, _processes: [server, worker] };
        wait_until("the worker has joined", async || site.run(&["workers"]).contains("anna")).await;
        site.run(&["run", "hello"]);
        site.run(&["run", "other"]);
        site
    }

    fn run(&self, words: &[&str]) -> String {
        run(&self.cluster, &self.admin, words)
    }

    /// Makes a token with these flags, and signs in with it.
    async fn sign_in(&self, name: &str, flags: &[&str]) -> Visitor {
        let token = std::fs::read_to_string(self.cluster.make_token(&self.admin, name, flags)).unwrap();
        let base = format!("http://{}", self.cluster.address());
        let client = http::client().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let login = client.post(format!("{base}/login")).header("content-type", FORM);
        let answer = login.body(format!("to=%2F&token={}", token.trim())).send().await.unwrap();
        let cookie = answer.headers()["set-cookie"].to_str().unwrap();
        Visitor { client, base, cookie: cookie.split(';').next().unwrap().to_owned() }
    }
}

/// A signed-in user of the dashboard.
struct Visitor {
    client: Client,
    base: String,
    cookie: String,
}

impl Visitor {
    async fn page(&self, path: &str) -> String {
        let request = self.client.get(format!("{}{path}", self.base)).header("cookie", &self.cookie);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.text().await.unwrap()
    }

    /// True if a page has a form that leads to this address.
    async fn is_offered(&self, path: &str, action: &str) -> bool {
        self.page(path).await.contains(&format!("action=\"{action}\""))
    }

    /// The status of the answer to a form.
    async fn send(&self, path: &str, form: &'static str) -> u16 {
        let request = self.client.post(format!("{}{path}", self.base)).header("cookie", &self.cookie);
        let request = request.header("content-type", FORM).header("origin", &self.base);
        request.body(form).send().await.unwrap().status().as_u16()
    }
}

fn run(cluster: &Cluster, admin: &str, words: &[&str]) -> String {
    let address = cluster.address();
    let (code, text) = cluster.run_cli(&[words, &["--server", &address, "--token-file", admin]].concat());
    assert_eq!(code, 0, "{words:?}: {text}");
    text
}

const FORM: &str = "application/x-www-form-urlencoded";

#[tokio::test]
async fn pages_offer_to_each_role_what_it_may_do_and_forms_of_others_are_refused() {
    let site = Site::start().await;
    let viewer = site.sign_in("eyes", &["--role", "viewer"]).await;
    let submitter = site.sign_in("ci", &["--role", "submitter"]).await;
    let operator = site.sign_in("oncall", &["--role", "operator"]).await;
    let admin = site.sign_in("boss", &["--role", "admin"]).await;
    // Page, form on it, and the weakest of viewer, submitter, operator and admin that gets it.
    let forms = [
        ("/definitions/hello", "/definitions/hello/run", 1),
        ("/definitions/hello", "/definitions/hello/pause", 2),
        ("/jobs/1", "/jobs/1/cancel", 1),
        ("/jobs?name=hello", "/jobs/bulk", 1),
        ("/workers/1", "/workers/1/cordon", 2),
        ("/workers/1", "/workers/1/revoke", 2),
        ("/schedules", "/schedules/pause", 2),
    ];
    let roles = [("viewer", &viewer), ("submitter", &submitter), ("operator", &operator), ("admin", &admin)];
    for (page, action, weakest) in forms {
        for (rank, (role, visitor)) in roles.iter().enumerate() {
            let offered = visitor.is_offered(page, action).await;
            assert_eq!(offered, rank >= weakest, "{action} on {page} for the {role}");
            if rank < weakest {
                assert_eq!(
                    visitor.send(action, "verb=cancel&selection=name%3Dhello").await,
                    403,
                    "{action} by the {role}"
                );
            }
        }
    }
    for (role, visitor) in roles {
        let has_audit = visitor.page("/").await.contains("href=\"/audit\"");
        assert_eq!(has_audit, role == "admin", "the audit log for the {role}");
    }
    assert_eq!(operator.send("/workers/1/cordon", "").await, 303);
    assert_eq!(operator.send("/schedules/pause", "").await, 303);
    assert!(operator.is_offered("/schedules", "/schedules/resume").await);
    assert!(!submitter.is_offered("/schedules", "/schedules/resume").await);
}

#[tokio::test]
async fn a_submitter_of_some_definitions_is_offered_operations_on_their_jobs_only() {
    let site = Site::start().await;
    let submitter = site.sign_in("ci", &["--role", "submitter", "--definitions", "hel*"]).await;
    for (definition, job, is_offered) in [("hello", 1, true), ("other", 2, false)] {
        for (page, action) in [
            (format!("/definitions/{definition}"), format!("/definitions/{definition}/run")),
            (format!("/jobs?name={definition}"), "/jobs/bulk".to_owned()),
            (format!("/jobs/{job}"), format!("/jobs/{job}/again")),
        ] {
            if page.starts_with("/jobs/") {
                // A job that has ended and one that runs are offered different things.
                let text = submitter.page(&page).await;
                let offers = text.contains(&format!("action=\"/jobs/{job}/"));
                assert_eq!(offers, is_offered, "operations on {page}");
                continue;
            }
            assert_eq!(submitter.is_offered(&page, &action).await, is_offered, "{action} on {page}");
        }
    }
    assert!(!submitter.is_offered("/jobs?name=*", "/jobs/bulk").await, "the filter has jobs of others");
    let operator = site.sign_in("some", &["--role", "operator", "--definitions", "hel*"]).await;
    assert!(operator.is_offered("/definitions/hello", "/definitions/hello/pause").await);
    for (page, action) in [
        ("/definitions/other", "/definitions/other/pause"),
        ("/definitions", "/pause"),
        ("/schedules", "/schedules/pause"),
    ] {
        assert!(!operator.is_offered(page, action).await, "{action} on {page}");
    }
    assert_eq!(submitter.send("/definitions/other/run", "").await, 403);
    let entries = |name: &str| {
        let file = site.cluster.path(&format!("{name}.json"));
        std::fs::write(&file, format!("[{{\"name\":\"{name}\"}},{{\"name\":\"{name}\"}}]")).unwrap();
        site.run(&["submit", file.to_str().unwrap()]);
    };
    entries("hello");
    entries("other");
    assert!(submitter.is_offered("/batches/3", "/jobs/bulk").await, "a batch of its own definition");
    assert!(!submitter.is_offered("/batches/5", "/jobs/bulk").await, "a batch of another definition");
    let retry = "/batches/3/retry";
    assert!(!submitter.is_offered("/batches/3", retry).await, "nothing has ended without success");
    site.run(&["cancel", "3", "4"]);
    wait_until("members have ended", async || submitter.is_offered("/batches/3", retry).await).await;
    let batch = site.run(&["batch", "3", "retry", "--yes"]);
    assert!(batch.contains("0 members can be retried; 2 were cancelled"), "{batch}");
    assert_eq!(submitter.send(retry, "").await, 409, "somebody has cancelled all");
    assert_eq!(submitter.send("/batches/3/cancel", "").await, 404);
}
