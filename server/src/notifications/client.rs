//! The HTTP client of notifications: it posts to allowed addresses only, follows no redirect, and waits for a limited time.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;
use protocol::Timestamp;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Url, header, redirect};
use rustls::{ClientConfig, RootCertStore};

use super::addresses::AllowedNetworks;
use crate::clock;

/// The time for one try, from the name's resolution to the answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an error that are kept.
const ERROR_BYTES_MAX: usize = 500;

/// Posts messages.
#[derive(Clone, Debug)]
pub struct WebClient {
    client: Client,
    allowed: Arc<AllowedNetworks>,
}

/// The reason for which a message was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// The address is not allowed.
    #[error("{0} is not a public address; --allow-webhook {0} allows it")]
    Address(IpAddr),
    /// The target did not answer.
    #[error("{}", one_line(.0))]
    Connection(#[source] reqwest::Error),
    /// The target answered with another status than 2xx.
    #[error("the target answered {status}")]
    Status {
        /// The status.
        status: reqwest::StatusCode,
        /// The time until another try, if the target named it: `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// The target answered with a redirect, which is not followed.
    #[error("the target answered {0}, a redirect, which is not followed; write its final URL into jobs.yaml")]
    Redirect(reqwest::StatusCode),
}

impl WebClient {
    /// A client that trusts the certificates of the system.
    ///
    /// # Errors
    /// The TLS library cannot be set up.
    pub fn new(allowed: AllowedNetworks) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let tls = tls_client_config()?;
        let allowed = Arc::new(allowed);
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(Arc::new(CheckedResolver(Arc::clone(&allowed))))
            // A proxy would resolve the name itself.
            .no_proxy()
            .redirect(redirect::Policy::none())
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(1)
            .user_agent(concat!("longshore/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { client, allowed })
    }

    /// Posts JSON. The body of the answer is not read.
    ///
    /// # Errors
    /// See [`PostError`].
    pub async fn post(&self, url: &Url, headers: HeaderMap, body: String) -> Result<(), PostError> {
        // An address in the URL is not resolved, so the resolver does not see it.
        if let Some(address) = literal_address(url).filter(|address| !self.allowed.allow(*address)) {
            return Err(PostError::Address(address));
        }
        let json = HeaderValue::from_static("application/json");
        let request =
            self.client.post(url.clone()).headers(headers).header(header::CONTENT_TYPE, json).body(body);
        let answer = request.send().await.map_err(PostError::of)?;
        let status = answer.status();
        match status {
            _ if status.is_success() => Ok(()),
            _ if status.is_redirection() => Err(PostError::Redirect(status)),
            _ => {
                let retry_after = retry_after(answer.headers(), clock::now().utc);
                Err(PostError::Status { status, retry_after })
            }
        }
    }
}

impl PostError {
    /// The error says which address was not allowed, and never shows the URL.
    fn of(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(link) = cause {
            if let Some(NotAllowed(address)) = link.downcast_ref() {
                return Self::Address(*address);
            }
            cause = link.source();
        }
        Self::Connection(error)
    }
}

/// The time until another try: seconds, with a fraction by some services, or a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = DateTimeParser::new().parse_timestamp(value).ok()?;
    u64::try_from(date.as_millisecond().saturating_sub(now.0)).ok().map(Duration::from_millis)
}

/// The configuration of a TLS client that trusts the certificates of the system.
///
/// # Errors
/// The TLS library cannot be set up.
pub fn tls_client_config() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(tls.with_root_certificates(roots).with_no_client_auth())
}

/// An error with its causes in one line.
fn one_line(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() {
        format!("the target did not answer within {} s", TIMEOUT.as_secs())
    } else {
        error.to_string()
    };
    let mut cause = error.source();
    while let Some(link) = cause {
        text.push_str(": ");
        text.push_str(&link.to_string());
        cause = link.source();
    }
    text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
    text
}

fn literal_address(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Resolves names to addresses that are allowed. The connection goes to one of these, so a name that changes in between gains nothing.
#[derive(Debug)]
struct CheckedResolver(Arc<AllowedNetworks>);

/// A name has only addresses that are not allowed; this is one.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not allowed")]
struct NotAllowed(IpAddr);

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = Arc::clone(&self.0);
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let (fit, other): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|address| allowed.allow(address.ip()));
            match other.first().filter(|_| fit.is_empty()) {
                Some(address) => Err(NotAllowed(address.ip()).into()),
                None => Ok(Box::new(fit.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_names_the_time_until_another_try_in_seconds_or_as_a_date() {
        // 2026-11-27T19:59:00Z
        let now = Timestamp(1_795_809_540_000);
        let of = |value: &'static str| {
            let headers = [(header::RETRY_AFTER, HeaderValue::from_static(value))].into_iter().collect();
            retry_after(&headers, now).map(|wait| wait.as_millis())
        };
        assert_eq!((of("120"), of("0.75")), (Some(120_000), Some(750)));
        assert_eq!(of("Fri, 27 Nov 2026 20:00:00 GMT"), Some(60_000));
        for none in ["-1", "soon", "NaN", "inf", "1e300", "Fri, 27 Nov 2026 19:00:00 GMT"] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }

    async fn post(url: &str) -> String {
        let client = WebClient::new(AllowedNetworks::default()).unwrap();
        client.post(&url.parse().unwrap(), HeaderMap::new(), String::new()).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn an_inner_address_is_refused_as_literal_and_by_name() {
        for url in ["http://127.0.0.1:9/planted", "http://[::1]:9/planted", "http://localhost:9/planted"] {
            let error = post(url).await;
            assert!(error.contains("--allow-webhook") && !error.contains("planted"), "{url}: {error}");
        }
        assert!(post("http://2130706433/planted").await.contains("127.0.0.1 is not a public address"));
    }
}
