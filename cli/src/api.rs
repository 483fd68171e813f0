//! The client's side of the public HTTP API: one [`Api`] per call of the program.
//!
//! Everything that is not a success becomes a [`Failure`] here, with the server's own words and hint. Nothing is sent again but what makes
//! jobs, under a key: whoever calls the program decides about the rest.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use client::ws::Address;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::{Exit, Failure};

/// Where the server is, and how to be let in.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Door {
    /// The server: HOST:PORT, with the base path if it has one, or a URL.
    // Read later: what clap refuses it shows again, and an address may carry a password.
    #[arg(
        long,
        env = "LONGSHORE_SERVER",
        default_value = USUAL,
        value_name = "ADDRESS",
        help_heading = "Server"
    )]
    server: String,
    /// A file that holds the token for the API, readable by its owner only.
    #[arg(long, env = "LONGSHORE_API_TOKEN_FILE", value_name = "FILE", help_heading = "Server")]
    token_file: Option<PathBuf>,
}

impl Door {
    /// The server that was named, or the usual one.
    pub(crate) fn named(server: Option<&str>, token_file: Option<&Path>) -> Self {
        Self { server: server.unwrap_or(USUAL).to_owned(), token_file: token_file.map(Path::to_owned) }
    }
}

/// Where a server listens if nobody says otherwise.
const USUAL: &str = "127.0.0.1:8080";

/// A job that was asked for under a key.
#[derive(Debug)]
pub(crate) struct Made {
    /// The job.
    pub(crate) json: Value,
    /// Whether an earlier request with the same key has made it.
    pub(crate) is_replayed: bool,
}

/// A way to ask the server.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    client: reqwest::Client,
    base: Url,
    authorization: Option<HeaderValue>,
}

impl Api {
    /// Reads the address; nothing is sent yet.
    pub(crate) fn new(door: &Door) -> anyhow::Result<Self> {
        let base = base(&door.server)?;
        let authorization = door.token_file.as_deref().map(read_token).transpose()?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_MAX)
            .user_agent(concat!("longshore/", env!("CARGO_PKG_VERSION")))
            .build()
            .context("cannot set up the HTTP client")?;
        Ok(Self { client, base, authorization })
    }

    /// A request for `path`, whose segments are escaped here: names come from the command line.
    pub(crate) fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let request = self.client.request(method, url);
        match &self.authorization {
            Some(token) => request.header(AUTHORIZATION, token),
            None => request,
        }
    }

    /// A GET request for `path`.
    pub(crate) fn fetch(&self, path: &[&str]) -> RequestBuilder {
        self.request(Method::GET, path).header(ACCEPT, "application/json")
    }

    /// Asks, and reads the answer's JSON.
    pub(crate) async fn json(&self, request: RequestBuilder) -> anyhow::Result<Value> {
        let answer = self.try_json(request).await;
        answer.unwrap_or_else(|error| Err(self.unreachable(&error).into())).map(|made| made.json)
    }

    /// Asks for a new job and reads it. If the connection breaks before the answer is here, asks again, at most twice: the key makes sure
    /// that there is one job.
    ///
    /// # Errors
    /// Those of [`Self::json`]. If nobody knows whether the job was made, the hint is to give `key` again.
    pub(crate) async fn make(&self, request: RequestBuilder, key: &HeaderValue) -> anyhow::Result<Made> {
        let request = request.header(IDEMPOTENCY_KEY, key);
        let mut lost = None;
        for pause in PAUSES {
            tokio::time::sleep(pause).await;
            let Some(copy) = request.try_clone() else { break };
            match self.try_json(copy).await {
                // A server that leaves or begins says nothing about the request before.
                Ok(Err(error)) if lost.is_some() && is_unavailable(&error) => lost = Some(error.to_string()),
                Ok(answer) => return answer,
                Err(error) if lost.is_none() && (error.is_connect() || is_no_http(&error)) => {
                    return Err(self.unreachable(&error).into());
                }
                Err(error) => {
                    lost = Some(format!("no answer from {}: {}", self.base, innermost(&error)));
                    if error.is_timeout() {
                        break;
                    }
                }
            }
        }
        let key = key.to_str().unwrap_or_default();
        Err(Failure::new(Exit::Unavailable, lost.unwrap_or_default())
            .hint(format!(
                "the job may have been made: try again with --key {key}, which makes no second one"
            ))
            .into())
    }

    /// Asks, and reads the answer's JSON; the outer error is that of a connection.
    async fn try_json(&self, request: RequestBuilder) -> Result<anyhow::Result<Made>, reqwest::Error> {
        let response = request.send().await?;
        if !response.status().is_success() {
            return Ok(Err(refusal(response).await.into()));
        }
        let is_replayed = response.headers().contains_key(IDEMPOTENT_REPLAY);
        let body = response.bytes().await?;
        let json = serde_json::from_slice(&body).map_err(|_| self.stranger().into());
        Ok(json.map(|json| Made { json, is_replayed }))
    }

    /// Asks, and takes the answer's head if it is a success.
    pub(crate) async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(refusal(response).await.into())
    }

    /// Reads the JSON of an answer.
    pub(crate) async fn decode<T: DeserializeOwned>(&self, response: Response) -> anyhow::Result<T> {
        let body = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        serde_json::from_slice(&body).map_err(|_| self.stranger().into())
    }

    /// The connection failed, or broke.
    pub(crate) fn unreachable(&self, error: &reqwest::Error) -> Failure {
        if is_no_http(error) {
            return Failure::new(Exit::Failed, format!("{} did not answer in HTTP", self.base))
                .hint("is it another service, or does it want TLS?");
        }
        let hint = if error.is_connect() {
            "is it running? 'longshore server' and 'longshore dev' start one, --server or LONGSHORE_SERVER names another"
        } else {
            "try again"
        };
        Failure::new(Exit::Unavailable, format!("no answer from {}: {}", self.base, innermost(error)))
            .hint(hint)
    }

    /// Something answers there that is no Longshore server.
    pub(crate) fn stranger(&self) -> Failure {
        Failure::new(
            Exit::Failed,
            format!("what answers at {} does not speak like a Longshore server", self.base),
        )
        .hint("check --server or LONGSHORE_SERVER")
    }
}

/// Reads a JSON value as one of the few shapes that tables are made of.
pub(crate) fn read<T: DeserializeOwned>(api: &Api, value: &Value) -> anyhow::Result<T> {
    T::deserialize(value).map_err(|_| api.stranger().into())
}

/// Where paths are appended.
fn base(server: &str) -> Result<Url, Failure> {
    let wrong = |why: String| {
        Failure::new(Exit::Usage, format!("--server: {why}")).hint("for example 127.0.0.1:8080")
    };
    let address = Address::parse(server).map_err(|error| wrong(error.to_string()))?;
    Url::parse(&address.http_url()).map_err(|error| wrong(format!("not an address ({error})")))
}

fn read_token(path: &Path) -> anyhow::Result<HeaderValue> {
    let shown = path.display();
    let wrong = |why: String| Failure::new(Exit::Usage, format!("token file {shown}: {why}"));
    let found =
        std::fs::metadata(path).map_err(|error| wrong(error.to_string()).hint("check --token-file"))?;
    let mode = std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o777;
    if mode & 0o077 != 0 {
        return Err(wrong(format!("others may read it (mode {mode:04o})"))
            .hint(format!("run: chmod 600 {shown}"))
            .into());
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let token = text.trim();
    if token.is_empty() || !token.chars().all(|c| c.is_ascii_graphic()) {
        return Err(wrong("it must hold one line of printable ASCII".to_owned()).into());
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).context("cannot send the token")?;
    value.set_sensitive(true);
    Ok(value)
}

/// What a server that says no means, in its own words.
async fn refusal(response: Response) -> Failure {
    let status = response.status();
    let exit = Exit::of_status(status.as_u16());
    let is_problem = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/problem+json"));
    let body = response.bytes().await.unwrap_or_default();
    let problem = if is_problem { serde_json::from_slice(&body).unwrap_or_default() } else { Value::Null };
    let (code, hint) = (word(&problem, "code"), as_commands(word(&problem, "hint")));
    let told = [word(&problem, "detail"), word(&problem, "title")].into_iter().find(|text| !text.is_empty());
    let text = match told {
        Some(told) => format!("{}{}", at_field(&problem, told), in_brackets(code)),
        None => format!("the server answered {status}"),
    };
    let failure = match (code, hint.as_str(), exit) {
        // The server speaks of headers; a token comes here in a file.
        ("invalid_token" | "forbidden" | "", _, Exit::Auth) => Failure::new(exit, text)
            .hint("give the API's token with --token-file or LONGSHORE_API_TOKEN_FILE"),
        (_, "", Exit::Unavailable) => Failure::new(exit, text).hint("try again later"),
        (_, hint, _) => Failure::new(exit, text).hint(hint),
    };
    if problem.is_null() { failure } else { failure.problem(faults(&problem), problem) }
}

/// Everything that a problem lists, a line each: `jobs.yaml:4:5: out_of_range: …`.
fn faults(problem: &Value) -> Vec<String> {
    let fault = |fault: &Value| {
        let parts = ["field", "code", "detail"].map(|key| word(fault, key));
        let text = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
        match word(fault, "hint") {
            "" => text,
            hint => format!("{text}; {hint}"),
        }
    };
    problem.get("errors").and_then(Value::as_array).into_iter().flatten().map(fault).collect()
}

/// What is wrong, with the part of the request that is meant, unless it is named already.
fn at_field(problem: &Value, told: &str) -> String {
    let field = match word(problem, "field") {
        "Idempotency-Key" => "--key".to_owned(),
        // The parameters of addresses are called like the flags here.
        field => field.strip_prefix('?').map_or(field.to_owned(), |it| format!("--{}", it.replace('_', "-"))),
    };
    if told.contains(&field) { told.to_owned() } else { format!("{field}: {told}") }
}

/// A hint of the server's, which speaks to whoever speaks HTTP, for whoever types commands.
fn as_commands(hint: &str) -> String {
    COMMANDS.iter().fold(hint.to_owned(), |hint, (theirs, ours)| hint.replace(theirs, ours))
}

/// The longer ones first.
const COMMANDS: [(&str, &str); 4] = [
    ("GET /api/workers?all=1", "'longshore workers --all'"),
    ("GET /api/definitions", "'longshore definitions'"),
    ("GET /api/jobs", "'longshore ls'"),
    ("an Idempotency-Key", "--key"),
];

fn in_brackets(code: &str) -> String {
    if code.is_empty() { String::new() } else { format!(" [{code}]") }
}

/// A key's text; empty if there is none.
fn word<'v>(object: &'v Value, key: &str) -> &'v str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is_unavailable(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.exit == Exit::Unavailable)
}

/// Whether something has answered that is no HTTP.
fn is_no_http(error: &reqwest::Error) -> bool {
    let mut causes = std::iter::successors(Some(error as &dyn std::error::Error), |cause| cause.source());
    causes.any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse))
}

/// The last cause of an error: the one that tells something.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Names a request, so that it makes its jobs once.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that an earlier request has made the job.
const IDEMPOTENT_REPLAY: HeaderName = HeaderName::from_static("idempotent-replay");
/// Before each time that a job is asked for. A server that is started again takes a second or two.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(500), Duration::from_secs(2)];
/// A server on the same network answers within milliseconds; one that is down does not answer at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// More than the server is ever asked to wait here (60 s); events are kept alive by a comment every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_what_it_is_for_a_worker() {
        for (server, expected) in [
            ("host", "http://host:8080/"),
            ("host:81/base", "http://host:81/base"),
            ("http://host", "http://host/"),
            ("ws://host:9/base/", "http://host:9/base"),
            ("::1", "http://[::1]:8080/"),
        ] {
            assert_eq!(base(server).unwrap().as_str(), expected, "{server}");
        }
    }

    #[test]
    fn addresses_that_cannot_work_are_refused_without_showing_a_password() {
        for (server, why) in [
            ("htp://a", "not a scheme of a server"),
            ("https://a", "TLS is not built in"),
            ("http://", "names no host"),
            ("http://a<b", "not an address"),
            ("http://user:hunter2@a", "no user and no password"),
            ("http://a/?x=hunter2", "goes on behind its path"),
        ] {
            let told = base(server).unwrap_err().to_string();
            assert!(told.starts_with("--server: ") && told.contains(why), "{server}: {told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }

    #[test]
    fn names_are_escaped_into_one_segment_of_the_path() {
        let door = Door { server: "http://a/base/".to_owned(), token_file: None };
        let request = Api::new(&door).unwrap().fetch(&["api", "jobs", "../x?y"]).build().unwrap();
        assert_eq!(request.url().as_str(), "http://a/base/api/jobs/..%2Fx%3Fy");
    }
}
