//! The state of TLS as an operator has to know it: the end of the certificate in use, and files that were refused since.

use std::sync::{Arc, Mutex, PoisonError};

use protocol::Timestamp;

use super::expiry::CertificateExpiry;
use super::tls_files::TlsError;
use crate::rfc3339::Time;

/// The state of TLS. Clones share it.
#[derive(Clone, Debug)]
pub struct TlsStatus {
    /// None if the certificate does not say when it expires.
    expiry: Option<CertificateExpiry>,
    refusal: Arc<Mutex<Option<Refusal>>>,
}

/// Changed files that cannot be used.
#[derive(Debug)]
struct Refusal {
    at: Timestamp,
    reason: String,
}

impl TlsStatus {
    pub(super) fn new(expiry: Option<CertificateExpiry>) -> Self {
        Self { expiry, refusal: Arc::default() }
    }

    /// The end of the certificate in use.
    pub(super) fn expiry(&self) -> Option<&CertificateExpiry> {
        self.expiry.as_ref()
    }

    /// The instant at which the certificate in use expires.
    #[must_use]
    pub fn not_after(&self) -> Option<Timestamp> {
        self.expiry.as_ref().map(CertificateExpiry::not_after)
    }

    /// Changed files were refused at this instant.
    pub(super) fn refuse(&self, at: Timestamp, error: &TlsError) {
        *self.refusal() = Some(Refusal { at, reason: error.without_path() });
    }

    /// The files are those in use.
    pub(super) fn accept(&self) {
        *self.refusal() = None;
    }

    /// The warnings of the moment, a line each; empty if there are none. They name no paths, because anybody may read them.
    #[must_use]
    pub fn warnings(&self, now: Timestamp) -> Vec<String> {
        let refused = self.refusal().as_ref().map(|Refusal { at, reason }| {
            let at = Time(*at);
            format!(
                "TLS: the files were changed and refused at {at}: {reason}; the certificate before them stays in use, and a restart would fail: the log names the file"
            )
        });
        let expires = self.expiry.as_ref().and_then(|expiry| expiry.warning(now));
        refused.into_iter().chain(expires).collect()
    }

    fn refusal(&self) -> std::sync::MutexGuard<'_, Option<Refusal>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn refused_files_are_a_warning_without_a_path_until_files_are_accepted() {
        let status = TlsStatus::new(None);
        assert_eq!(status.warnings(Timestamp(0)), [""; 0]);
        status
            .refuse(Timestamp(0), &TlsError::PublicKey { path: PathBuf::from("/etc/key.pem"), mode: 0o644 });
        let warnings = status.clone().warnings(Timestamp(0));
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("at 1970-01-01T00:00:00.000Z: everyone can read the file of --tls-key"));
        assert!(!warnings[0].contains("/etc/"), "{warnings:?}");
        status.accept();
        assert_eq!(status.warnings(Timestamp(0)), [""; 0]);
    }
}
