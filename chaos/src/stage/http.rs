//! A plain client of the public interface.

use std::time::Duration;

use reqwest::{Client, Method, Response};
use serde_json::{Value, json};

use super::wait::{eventually, holds};

/// Asks one server.
#[derive(Clone, Debug)]
pub struct Api {
    client: Client,
    base: String,
}

/// What the server answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its body: JSON, or text.
    pub body: Value,
    next: Option<String>,
}

impl Answer {
    /// Whether it is a promise.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl Api {
    /// Asks the server at this address: `host:port`.
    #[must_use]
    pub fn new(address: &str) -> Self {
        let client = Client::builder().no_proxy().timeout(REQUEST_MAX).build().unwrap();
        Self { client, base: format!("http://{address}") }
    }

    /// A `GET` that must succeed.
    pub async fn get(&self, path: &str) -> Value {
        let answer = self.ask(Method::GET, path, None, None).await.unwrap();
        assert!(answer.is_success(), "{path}: {answer:?}");
        answer.body
    }

    /// A `POST` that must succeed.
    pub async fn post(&self, path: &str, body: Option<&Value>) -> Value {
        let answer = self.ask(Method::POST, path, body, None).await.unwrap();
        assert!(answer.is_success(), "{path}: {answer:?}");
        answer.body
    }

    /// A request whose outcome is the test's to judge. The error: there was no answer, or not all of it.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> reqwest::Result<Answer> {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = request.send().await?;
        let (status, next) = (response.status().as_u16(), next_page(&response));
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer { status, body, next })
    }

    /// Every job, newest first, page by page.
    pub async fn all_jobs(&self) -> Vec<Value> {
        let mut jobs = Vec::new();
        let mut path = "/api/jobs?limit=500".to_owned();
        loop {
            let answer = self.ask(Method::GET, &path, None, None).await.unwrap();
            assert!(answer.is_success(), "{path}: {answer:?}");
            jobs.extend(answer.body.as_array().unwrap().iter().cloned());
            match answer.next {
                Some(next) => path = next,
                None => return jobs,
            }
        }
    }

    /// Output, byte for byte.
    pub async fn bytes(&self, path: &str) -> Vec<u8> {
        let response = self.client.get(format!("{}{path}", self.base)).send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {response:?}");
        response.bytes().await.unwrap().to_vec()
    }

    /// Waits until the server serves.
    pub async fn ready(&self) {
        eventually("the server is ready", async || {
            let answer = self.ask(Method::GET, "/readyz", None, None).await.ok()?;
            answer.is_success().then_some(())
        })
        .await;
    }

    /// Waits until this worker takes jobs.
    pub async fn worker_ready(&self, name: &str) -> Value {
        self.worker(name, |worker| worker["state"] == "ready").await
    }

    /// Waits until this worker is listed as it is wanted.
    pub async fn worker(&self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let what = format!("worker {name} is as it should be");
        eventually(&what, async || {
            let workers = self.get("/api/workers?all=1").await;
            workers.as_array()?.iter().find(|worker| worker["name"] == name && fits(worker)).cloned()
        })
        .await
    }

    /// Waits until a job is as it is wanted.
    pub async fn job(&self, id: u64, fits: impl Fn(&Value) -> bool) -> Value {
        let what = format!("job {id} is as it should be");
        eventually(&what, async || Some(self.get(&format!("/api/jobs/{id}")).await).filter(&fits)).await
    }

    /// Waits until no job is left that has not ended, for as long as fewer and fewer of them wait.
    pub async fn all_ended(&self) {
        let mut waiting = self.waiting().await;
        while waiting > 0 {
            waiting = eventually("jobs are taken up", async || {
                Some(self.waiting().await).filter(|now| *now < waiting)
            })
            .await;
        }
        let live = "/api/jobs?state=scheduled,queued,assigned,running,quarantined&limit=1";
        holds("all jobs end", async || self.get(live).await == json!([])).await;
    }

    async fn waiting(&self) -> u64 {
        let definitions = self.get("/api/definitions").await;
        let reasons =
            definitions.as_array().unwrap().iter().filter_map(|it| it["waiting"].as_array()).flatten();
        reasons.map(|reason| reason["count"].as_u64().unwrap()).sum()
    }
}

/// The address of the next page, from the `Link` header.
fn next_page(response: &Response) -> Option<String> {
    let link = response.headers().get("link")?.to_str().ok()?;
    let (address, rest) = link.strip_prefix('<')?.split_once('>')?;
    rest.contains("rel=\"next\"").then(|| address.to_owned())
}

const REQUEST_MAX: Duration = Duration::from_secs(30);
