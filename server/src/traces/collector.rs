//! Posts to the collector. The library encodes the spans and reads `OTEL_EXPORTER_OTLP_*`; this client keeps why a post failed, which the
//! library's errors do not say.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, StatusCode, redirect};

use crate::notifications::client::tls_client_config;

/// A post that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PostFailure {
    /// In one line, without the URL.
    pub(super) why: String,
    /// The collector may take the same spans later.
    pub(super) can_retry: bool,
    /// The collector asked to wait for so long.
    pub(super) retry_after: Option<Duration>,
}

/// The client. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct CollectorClient {
    client: Client,
    failure: Arc<Mutex<Option<PostFailure>>>,
    partial_rejection: Arc<Mutex<Option<String>>>,
}

impl CollectorClient {
    /// A client that trusts the certificates of the system, and waits for so long for each answer.
    ///
    /// # Errors
    /// The TLS library cannot be set up.
    pub(super) fn new(timeout: Duration) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let client = Client::builder()
            .tls_backend_preconfigured(tls_client_config()?)
            .redirect(redirect::Policy::none())
            .timeout(timeout)
            .pool_max_idle_per_host(1)
            .build()?;
        Ok(Self { client, failure: Arc::default(), partial_rejection: Arc::default() })
    }

    /// The error of the last post, if it failed. It is told once.
    pub(super) fn take_failure(&self) -> Option<PostFailure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The sentence about spans that the collector has left out of the last post that it took.
    pub(super) fn take_partial_rejection(&self) -> Option<String> {
        self.partial_rejection.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps what a collector says that took a part of a post only. Most say nothing.
    async fn read_partial_rejection(&self, mut answer: reqwest::Response) {
        let mut body = Vec::new();
        // The collector has the spans, also if the rest of its answer does not come.
        while let Ok(Some(chunk)) = answer.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER_BYTES_MAX {
                return;
            }
        }
        let answer = ExportTraceServiceResponse::decode(body.as_slice()).ok();
        let Some(partial) = answer.and_then(|answer| answer.partial_success) else { return };
        if partial.rejected_spans > 0 {
            let why = partial.error_message.replace(char::is_control, " ");
            let text = format!("the collector has left out {} spans: {why}", partial.rejected_spans);
            *self.partial_rejection.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        }
    }

    fn fail(&self, failure: PostFailure) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }
}

#[async_trait::async_trait]
impl HttpClient for CollectorClient {
    /// The library gets an answer without a body: what is in it is read here.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        drop(self.take_failure());
        let (parts, body) = request.into_parts();
        let post = self.client.post(parts.uri.to_string()).headers(parts.headers).body(body);
        let answer = post.send().await.map_err(|error| {
            let error = error.without_url();
            let why = match error.is_timeout() {
                true => "it does not answer in time".to_owned(),
                false => innermost(&error),
            };
            self.fail(PostFailure { why, can_retry: true, retry_after: None });
            error
        })?;
        let status = answer.status();
        if status.is_success() {
            self.read_partial_rejection(answer).await;
        } else {
            let seconds =
                answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            let retry_after = seconds.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
            let why = format!("it answers {status}");
            self.fail(PostFailure { why, can_retry: is_transient(status), retry_after });
        }
        Ok(Response::builder().status(status).body(Bytes::new())?)
    }
}

/// The answers after which OTLP allows another try.
const fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

/// The cause of all others, such as "Connection refused".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// An answer says in a sentence what was refused.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// A collector that asks for more is asked again after this time.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
