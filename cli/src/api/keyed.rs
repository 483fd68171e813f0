//! Requests that create jobs under an idempotency key, which makes it safe to send them again.

use std::time::Duration;

use reqwest::RequestBuilder;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::{Api, is_not_http, root_cause};
use crate::failure::{Exit, Failure};
use crate::outage::{Awaited, Outage, within};
use crate::screen;

/// A response to a request that creates a job under an idempotency key.
#[derive(Debug)]
pub(crate) struct CreatedJob {
    /// The job.
    pub(crate) json: Value,
    /// True if an earlier request with the same key created the job.
    pub(crate) is_replay: bool,
}

impl Api {
    /// Creates a job. If the connection breaks before the response, the request is sent again, at most twice; the key prevents a second
    /// job. With an outage, of a verb that waits, it is sent until the server answers, also if the server was away at first.
    ///
    /// # Errors
    /// As [`Self::json`]. If the job may have been created, the hint says to repeat the command with `--key`.
    ///
    /// # Cancel safety
    /// The job may be created nevertheless.
    pub(crate) async fn create_job(
        &self,
        request: RequestBuilder,
        key: &HeaderValue,
        outage: Option<&mut Outage>,
    ) -> anyhow::Result<CreatedJob> {
        self.send_with_key(request, key, outage).await.unwrap_or_else(|lost| {
            let key = key.to_str().unwrap_or_default();
            let hint = format!(
                "the job may have been created: repeat the command with --key {key}, which creates no second job"
            );
            Err(lost.hint(hint).into())
        })
    }

    /// As [`Self::create_job`]. Ctrl-C ends a verb that waits, with a note of the key.
    pub(crate) async fn create_job_until_interrupt(
        &self,
        request: RequestBuilder,
        key: &HeaderValue,
        outage: Option<&mut Outage>,
    ) -> anyhow::Result<CreatedJob> {
        if outage.is_none() {
            return self.create_job(request, key, None).await;
        }
        tokio::select! {
            // Its signal handler is there before the first note.
            biased;
            _ = tokio::signal::ctrl_c() => {
                let key = key.to_str().unwrap_or_default();
                screen::note(&format!(
                    "longshore: interrupted before the server has answered: to go on, repeat the command with --key {key}, which creates no second job"
                ));
                Err(Failure::silent(Exit::Interrupted).into())
            }
            made = self.create_job(request, key, outage) => made,
        }
    }

    /// Sends a request that creates jobs as [`Self::create_job`] does, until the limit of the outage is up. The outer error has the cause and no
    /// hint: it is unknown whether they were created.
    pub(crate) async fn send_with_key(
        &self,
        request: RequestBuilder,
        key: &HeaderValue,
        mut outage: Option<&mut Outage>,
    ) -> Result<anyhow::Result<CreatedJob>, Failure> {
        let request = request.header(IDEMPOTENCY_KEY, key);
        let left = outage.as_ref().and_then(|outage| outage.left());
        let mut sent = SentRequest::default();
        let answered = self.send_until_answered(request, outage.as_deref_mut(), &mut sent);
        let answered = within(left, answered).await;
        let unknown = |lost| Failure::new(Exit::Unavailable, lost);
        match (answered, outage) {
            (Some(answered), _) => answered.map_err(unknown),
            (None, Some(outage)) if sent.is_unanswered || sent.lost.is_some() => Err(outage.time_is_up()),
            (None, Some(outage)) => Ok(Err(outage.time_is_up().into())),
            // Without an outage there is no limit.
            (None, None) => Err(unknown(sent.lost.unwrap_or_default())),
        }
    }

    /// The outer error is the cause if it is unknown whether the request was carried out.
    ///
    /// # Cancel safety
    /// `sent` says whether the request may have been carried out.
    async fn send_until_answered(
        &self,
        request: RequestBuilder,
        mut outage: Option<&mut Outage>,
        sent: &mut SentRequest,
    ) -> Result<anyhow::Result<CreatedJob>, String> {
        let SentRequest { lost, is_unanswered } = sent;
        let mut delays = RETRY_DELAYS.into_iter();
        while let Some(pause) = delays.next().or_else(|| outage.as_ref().map(|outage| outage.pause())) {
            let asked_pause = outage.as_ref().map_or(Duration::ZERO, |outage| outage.pause());
            tokio::time::sleep(pause.max(asked_pause)).await;
            let Some(copy) = request.try_clone() else { break };
            *is_unanswered = true;
            let answer = self.try_json(copy).await;
            *is_unanswered = false;
            let failure = match answer {
                Ok(Err(error)) if is_unavailable(&error) && (lost.is_some() || outage.is_some()) => {
                    // A server that is stopping or starting does not know about the first request.
                    *lost = lost.take().map(|_| error.to_string());
                    error
                }
                Ok(answer) => {
                    if let Some(outage) = outage {
                        outage.end();
                    }
                    return Ok(answer);
                }
                Err(error) if lost.is_none() && (error.is_connect() || is_not_http(&error)) => {
                    let failure = self.unreachable(&error).into();
                    if outage.is_none() {
                        return Ok(Err(failure));
                    }
                    failure
                }
                Err(error) => {
                    *lost = Some(format!("no answer from {}: {}", self.base, root_cause(&error)));
                    if error.is_timeout() && outage.is_none() {
                        break;
                    }
                    self.unreachable(&error).into()
                }
            };
            if let Some(outage) = outage.as_deref_mut()
                && let Err(error) = retry_or_fail(outage, failure)
            {
                return lost.take().map_or(Ok(Err(error)), Err);
            }
        }
        Err(lost.take().unwrap_or_default())
    }
}

/// A request with a key that was sent, perhaps several times.
#[derive(Default)]
struct SentRequest {
    /// Why an answer was lost: it is unknown whether the request was carried out.
    lost: Option<String>,
    /// It was sent, and neither an answer nor an error has come.
    is_unanswered: bool,
}

/// As [`Outage::retry_or_fail`]. A refusal that lasts ends the verb also if the server has answered other requests before.
fn retry_or_fail(outage: &mut Outage, error: anyhow::Error) -> anyhow::Result<()> {
    if error.downcast_ref::<Failure>().is_some_and(|failure| failure.is_persistent) {
        return Err(error);
    }
    outage.retry_or_fail(error, Awaited::Nothing)
}

fn is_unavailable(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.exit == Exit::Unavailable)
}

/// The given key, or a random one, with which a request without an answer can be sent again.
pub(crate) fn idempotency_key(given: Option<&str>) -> Result<HeaderValue, Failure> {
    let new = || format!("longshore-{:032x}", rand::random::<u128>());
    let key = given.map_or_else(new, str::to_owned);
    HeaderValue::try_from(key)
        .map_err(|_| Failure::new(Exit::Usage, "--key must be visible ASCII characters"))
}

/// Request header with the idempotency key.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Delays before the first attempts to create a job. A restart of the server takes one or two seconds.
const RETRY_DELAYS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(500), Duration::from_secs(2)];
