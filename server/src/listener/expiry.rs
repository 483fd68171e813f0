//! The end of the certificate in use: for logs, readiness and metrics, because nothing else tells an operator before clients are refused.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use protocol::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::rfc3339::Time;

/// The time after which clients refuse the certificate in use. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct CertificateExpiry(Arc<AtomicI64>);

impl CertificateExpiry {
    /// The certificate can be used until this instant.
    #[must_use]
    pub(super) fn at(not_after: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(not_after.0)))
    }

    /// Another certificate is in use, until this instant.
    pub(super) fn set(&self, not_after: Timestamp) {
        self.0.store(not_after.0, Ordering::Relaxed);
    }

    /// The instant at which the certificate expires.
    #[must_use]
    pub(super) fn not_after(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }

    /// A warning if the certificate has expired or is about to.
    #[must_use]
    pub(super) fn warning(&self, now: Timestamp) -> Option<String> {
        let at = self.not_after();
        let left = at.since(now);
        let when = Time(at);
        match () {
            () if at <= now => Some(format!(
                "TLS: the certificate expired at {when}: workers and clients refuse it; replace the files of --tls-cert and --tls-key"
            )),
            () if left <= WARN_WITHIN => Some(format!(
                "TLS: the certificate expires in {} days, at {when}; replace the files of --tls-cert and --tls-key before",
                left.as_secs() / DAY.as_secs()
            )),
            () => None,
        }
    }

    /// Logs the warning, if there is one.
    pub(super) fn log(&self, now: Timestamp, certificate: &Path) {
        let Some(warning) = self.warning(now) else { return };
        let certificate = certificate.display();
        if self.not_after() <= now {
            tracing::error!(%certificate, "{warning}");
        } else {
            tracing::warn!(%certificate, "{warning}");
        }
    }
}

/// The end of a chain: the earliest one of its certificates. A certificate that cannot be parsed says nothing; rustls has accepted it.
pub(super) fn not_after(chain: &[CertificateDer<'_>]) -> Option<Timestamp> {
    let ends = chain.iter().filter_map(|der| {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(Timestamp(certificate.validity().not_after.timestamp().saturating_mul(1_000)))
    });
    ends.min()
}

const DAY: Duration = Duration::from_secs(86_400);

/// Time before the end at which warnings begin. Certificates that are renewed by a program usually are a month before.
const WARN_WITHIN: Duration = Duration::from_secs(21 * 86_400);

/// Interval of the warnings in the log.
pub(super) const REMIND_EVERY: Duration = DAY;

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(year: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["jobs.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn the_end_of_a_chain_is_the_earliest_one() {
        let of_2030 = Timestamp(1_893_456_000_000);
        assert_eq!(not_after(&[certificate(2040), certificate(2030)]), Some(of_2030));
        assert_eq!(not_after(&[CertificateDer::from(vec![1, 2, 3])]), None);
        assert_eq!(not_after(&[]), None);
    }

    #[test]
    fn a_warning_begins_three_weeks_before_the_end() {
        const DAY_MILLIS: i64 = 86_400_000;
        let end = Timestamp(1_893_456_000_000);
        let expiry = CertificateExpiry::at(end);
        let before = |days: i64| expiry.warning(Timestamp(end.0 - days * DAY_MILLIS));
        assert_eq!(before(22), None);
        let soon = before(21).unwrap();
        assert!(soon.contains("expires in 21 days, at 2030-01-01T00:00:00.000Z"), "{soon}");
        assert!(before(1).unwrap().contains("in 1 days"));
        let over = before(0).unwrap();
        assert!(over.contains("expired at 2030-01-01T00:00:00.000Z"), "{over}");
        expiry.set(Timestamp(end.0 + 100 * DAY_MILLIS));
        assert_eq!(expiry.clone().warning(end), None, "it was replaced");
    }
}
