//! The client of the public HTTP API; each run of the program has one [`Api`].
//!
//! Every response other than 2xx becomes a [`Failure`] with the server's text and hint. Requests are sent once, but for those of [`keyed`].

mod deprecation;
mod keyed;
mod problem;

use std::error::Error;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use client::tls;
use client::ws::Address;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::args::ServerArgs;
use crate::failure::{Exit, Failure};
pub(crate) use keyed::{CreatedJob, idempotency_key};
pub(crate) use problem::failure_of;
use problem::{failure_from, failure_of_worker_token};

/// A client of one server.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    client: reqwest::Client,
    base: Url,
    authorization: Option<HeaderValue>,
}

impl Api {
    /// Parses the address and reads the token file; sends nothing.
    pub(crate) fn new(server_args: &ServerArgs) -> anyhow::Result<Self> {
        let authorization = server_args.token_file.as_deref().map(read_token).transpose()?;
        Self::with_authorization(server_args, authorization)
    }

    /// A client with a token that is in no file yet.
    pub(crate) fn with_token(server_args: &ServerArgs, token: &str) -> anyhow::Result<Self> {
        let wrong = || Failure::new(Exit::Usage, "the token must be one line of printable ASCII");
        Self::with_authorization(server_args, Some(bearer(token).ok_or_else(wrong)?))
    }

    fn with_authorization(
        server_args: &ServerArgs,
        authorization: Option<HeaderValue>,
    ) -> anyhow::Result<Self> {
        let address = parse_address(&server_args.address)?;
        let base = base(&address)?;
        let trust = if address.is_tls() {
            tls::trusting(server_args.ca_file.as_deref(), server_args.client_certificate().files()?)
        } else {
            tls::trusting_nobody()
        };
        let trust =
            trust.map_err(|error| Failure::new(Exit::Usage, format!("{:#}", anyhow::Error::new(error))))?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_backend_preconfigured(trust)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .user_agent(concat!("longshore/", env!("CARGO_PKG_VERSION")))
            .build()
            .context("cannot set up the HTTP client")?;
        Ok(Self { client, base, authorization })
    }

    /// Builds a request. The segments of `path` are escaped here, because names come from the command line.
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

    /// Builds a GET request for JSON.
    pub(crate) fn get(&self, path: &[&str]) -> RequestBuilder {
        self.request(Method::GET, path).header(ACCEPT, "application/json")
    }

    /// Sends a request and returns the JSON of the response.
    pub(crate) async fn json(&self, request: RequestBuilder) -> anyhow::Result<Value> {
        let answer = self.try_json(request).await;
        answer.unwrap_or_else(|error| Err(self.unreachable(&error).into())).map(|made| made.json)
    }

    /// Sends a request and returns the JSON of the response. The outer error is a connection error.
    async fn try_json(&self, request: RequestBuilder) -> Result<anyhow::Result<CreatedJob>, reqwest::Error> {
        let response = request.send().await?;
        deprecation::note(response.headers());
        if !response.status().is_success() {
            return Ok(Err(failure_from(response).await.into()));
        }
        let is_replay = response.headers().contains_key(IDEMPOTENT_REPLAY);
        let body = response.bytes().await?;
        let json = serde_json::from_slice(&body).map_err(|_| self.unexpected_response().into());
        Ok(json.map(|json| CreatedJob { json, is_replay }))
    }

    /// Sends a request and returns the response if its status is 2xx.
    pub(crate) async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        deprecation::note(response.headers());
        if response.status().is_success() {
            return Ok(response);
        }
        Err(failure_from(response).await.into())
    }

    /// Asks the server whether the token may connect a worker; opens no session.
    pub(crate) async fn check_worker_token(&self) -> anyhow::Result<()> {
        let request = self.get(&["api", "workers", "connect"]);
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        // The server checks the token first, then misses the upgrade to a WebSocket.
        match response.status() {
            StatusCode::UPGRADE_REQUIRED => Ok(()),
            status if status.is_success() => Err(self.unexpected_response().into()),
            _ => Err(failure_of_worker_token(response).await.into()),
        }
    }

    /// Reads the JSON of a response.
    pub(crate) async fn decode<T: DeserializeOwned>(&self, response: Response) -> anyhow::Result<T> {
        let body = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        serde_json::from_slice(&body).map_err(|_| self.unexpected_response().into())
    }

    /// The failure for a connection error.
    pub(crate) fn unreachable(&self, error: &reqwest::Error) -> Failure {
        if is_not_http(error) {
            return Failure::new(
                Exit::Failed,
                format!("{} answered with something else than HTTP", self.base),
            )
            .hint("check the address: another service may listen there, or TLS is required (https://)")
            .knows_remedy();
        }
        if let Some(cause) = tls_error(error) {
            let text = format!("no TLS connection with {}: {}", self.base, tls::in_words(cause));
            return Failure::new(Exit::Unavailable, text)
                .hint(tls::advice_for(cause))
                .persistent()
                .knows_remedy();
        }
        let cause = root_cause(error);
        let hint = if error.is_connect() {
            "check that it runs ('longshore server', 'longshore dev'), or give another address with --server or LONGSHORE_SERVER"
        } else {
            "try again"
        };
        let failure =
            Failure::new(Exit::Unavailable, format!("no answer from {}: {cause}", self.base)).hint(hint);
        if is_unknown_name(&cause) { failure.persistent() } else { failure }
    }

    /// The failure for a response that a Longshore server does not send.
    pub(crate) fn unexpected_response(&self) -> Failure {
        Failure::new(Exit::Failed, format!("the response from {} is not from a Longshore server", self.base))
            .hint("check --server or LONGSHORE_SERVER")
    }
}

/// Converts a JSON value into the type that a table needs.
pub(crate) fn parse<T: DeserializeOwned>(api: &Api, value: &Value) -> anyhow::Result<T> {
    T::deserialize(value).map_err(|_| api.unexpected_response().into())
}

fn parse_address(server: &str) -> Result<Address, Failure> {
    Address::parse(server).map_err(|error| wrong_address(&error.to_string()))
}

/// The URL below which all paths are.
fn base(address: &Address) -> Result<Url, Failure> {
    Url::parse(&address.http_url()).map_err(|error| wrong_address(&format!("not an address ({error})")))
}

fn wrong_address(why: &str) -> Failure {
    Failure::new(Exit::Usage, format!("--server: {why}")).hint("for example 127.0.0.1:8080")
}

fn read_token(path: &Path) -> anyhow::Result<HeaderValue> {
    let wrong = |why: String| Failure::new(Exit::Usage, why).hint("check --token-file");
    let token = match is_private_pipe(path) {
        true => std::fs::read_to_string(path).map_err(anyhow::Error::new),
        false => client::ws::read_token_file(path).map_err(anyhow::Error::new),
    };
    let token = token.map_err(|error| wrong(format!("{error:#}")))?;
    bearer(token.trim())
        .ok_or_else(|| wrong(format!("the token file {} holds no token", path.display())).into())
}

/// A pipe that only this user may open: a shell's `<(…)`, or standard input. It is read once, which is enough for a verb.
fn is_private_pipe(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|found| found.file_type().is_fifo() && found.permissions().mode() & 0o077 == 0)
}

/// The header that carries a token; none if it is not one line of printable ASCII.
fn bearer(token: &str) -> Option<HeaderValue> {
    let is_token = !token.is_empty() && token.chars().all(|c| c.is_ascii_graphic());
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok().filter(|_| is_token)?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns true if the peer answered with something else than HTTP.
fn is_not_http(error: &reqwest::Error) -> bool {
    let mut causes = std::iter::successors(Some(error as &dyn Error), |cause| (*cause).source());
    causes.any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse))
}

/// The TLS error that is the cause, if there is one.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    error.downcast_ref().or_else(|| {
        // The error inside of an `io::Error` is not its source.
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inside = inside.map(|inside| inside as &(dyn Error + 'static));
        tls_error(inside.or_else(|| error.source())?)
    })
}

/// The name of the server does not exist. The standard library has no other sign of it than the text of the resolver.
fn is_unknown_name(cause: &str) -> bool {
    let is_lookup = cause.starts_with("failed to lookup address information");
    // Of glibc and of musl, when the servers of the resolver do not answer.
    is_lookup && !["Temporary failure", "Try again"].iter().any(|passes| cause.contains(passes))
}

/// The innermost cause of an error, which has the useful text.
pub(crate) fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Response header that marks a job created by an earlier request.
const IDEMPOTENT_REPLAY: HeaderName = HeaderName::from_static("idempotent-replay");
/// Servers on the same network answer within milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than any `wait` of this program (60 s). Event streams carry a comment every 15 s.
const READ_TIMEOUT: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use super::*;

    fn url(server: &str) -> Result<Url, Failure> {
        base(&parse_address(server)?)
    }

    #[test]
    fn an_address_is_what_it_is_for_a_worker() {
        for (server, expected) in [
            ("host", "http://host:8080/"),
            ("host:81/base", "http://host:81/base"),
            ("http://host", "http://host/"),
            ("ws://host:9/base/", "http://host:9/base"),
            ("::1", "http://[::1]:8080/"),
            ("https://host/base", "https://host/base"),
            ("wss://host:8443", "https://host:8443/"),
        ] {
            assert_eq!(url(server).unwrap().as_str(), expected, "{server}");
        }
    }

    #[test]
    fn addresses_that_cannot_work_are_refused_without_showing_a_password() {
        for (server, why) in [
            ("htp://a", "not a scheme of a server"),
            ("http://", "has no host"),
            ("http://a<b", "not an address"),
            ("http://user:hunter2@a", "no user and no password"),
            ("http://a/?x=hunter2", "query nor fragment"),
        ] {
            let told = url(server).unwrap_err().to_string();
            assert!(told.starts_with("--server: ") && told.contains(why), "{server}: {told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }

    #[test]
    fn a_name_that_does_not_exist_is_told_from_a_resolver_that_is_away() {
        let lookup = |why: &str| is_unknown_name(&format!("failed to lookup address information: {why}"));
        assert!(lookup("Name or service not known") && lookup("Name does not resolve"));
        assert!(!lookup("Temporary failure in name resolution") && !lookup("Try again"));
        assert!(!is_unknown_name("Connection refused (os error 111)"));
    }

    #[test]
    fn names_are_escaped_into_one_segment_of_the_path() {
        let server_args = ServerArgs::new(Some("http://a/base/"), None, None, Default::default());
        let request = Api::new(&server_args).unwrap().get(&["api", "jobs", "../x?y"]).build().unwrap();
        assert_eq!(request.url().as_str(), "http://a/base/api/jobs/..%2Fx%3Fy");
    }
}
