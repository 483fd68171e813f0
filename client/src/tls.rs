//! TLS of clients: the certificates that workers and commands trust, and the one that they show.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{AlertDescription, ClientConfig, RootCertStore};

use crate::client_certificate::{ClientCertificate, ClientCertificateError, ClientCertificateFiles};

/// The certificates that are trusted cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file cannot be read, or is not PEM.
    #[error("--ca-file: {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system or of the parser.
        #[source]
        cause: pem::Error,
    },
    /// The file has no certificate that can be used.
    #[error("--ca-file: {} contains no certificate in PEM (-----BEGIN CERTIFICATE-----)", .0.display())]
    Empty(PathBuf),
    /// The machine has no trusted certificates.
    #[error(
        "this machine trusts no certificate authority: install the package ca-certificates, or name the server's with --ca-file"
    )]
    NoRoots,
    /// The certificate of the client cannot be used.
    #[error(transparent)]
    Own(#[from] ClientCertificateError),
    /// The TLS library refuses its own defaults.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

/// The TLS settings of a client that trusts the certificates in `ca_file`, or those that the system trusts if there is no such file. It
/// shows the certificate `own` to a server that asks for one.
///
/// # Errors
/// See [`TrustError`].
pub fn trusting(
    ca_file: Option<&Path>,
    own: Option<ClientCertificateFiles>,
) -> Result<ClientConfig, TrustError> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => roots.add_parsable_certificates(read(path)?),
        // A certificate of the system that cannot be parsed does not make the others useless.
        None => roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    };
    match (roots.is_empty(), ca_file) {
        (true, Some(path)) => Err(TrustError::Empty(path.to_owned())),
        (true, None) => Err(TrustError::NoRoots),
        (false, _) => with_roots(roots, own),
    }
}

/// The TLS settings of a client that trusts nobody: an HTTP client wants settings for plain connections, too.
///
/// # Errors
/// The TLS library refuses its own defaults.
pub fn trusting_nobody() -> Result<ClientConfig, TrustError> {
    with_roots(RootCertStore::empty(), None)
}

fn with_roots(roots: RootCertStore, own: Option<ClientCertificateFiles>) -> Result<ClientConfig, TrustError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let own = own.map(|files| ClientCertificate::load(files, provider.clone())).transpose()?;
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().map_err(TrustError::Setup)?;
    let config = config.with_root_certificates(roots);
    Ok(match own {
        Some(own) => config.with_client_cert_resolver(Arc::new(own)),
        None => config.with_no_client_auth(),
    })
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let failed = |cause| TrustError::File { path: path.to_owned(), cause };
    CertificateDer::pem_file_iter(path).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)
}

/// Advice for a TLS handshake that failed; `None` if the error is not about TLS.
#[must_use]
pub fn advice(error: &io::Error) -> Option<&'static str> {
    let cause = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(advice_for(cause))
}

/// A TLS error in words: of a certificate with its date or its names.
#[must_use]
pub fn in_words(error: &rustls::Error) -> String {
    use rustls::CertificateError as Certificate;
    let rustls::Error::InvalidCertificate(fault) = error else { return error.to_string() };
    match fault {
        Certificate::ExpiredContext { not_after, .. } => {
            format!("the certificate of the server expired at {}", date(*not_after))
        }
        Certificate::NotValidYetContext { not_before, .. } => {
            format!("the certificate of the server is not valid before {}", date(*not_before))
        }
        // Two authorities of `longshore cert` have the same name, so the signature alone tells them apart.
        Certificate::UnknownIssuer | Certificate::BadSignature => {
            "the issuer of the server's certificate is unknown here".into()
        }
        Certificate::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            format!(
                "the certificate of the server is not for {}, only for {}",
                expected.to_str(),
                names.join(", ")
            )
        }
        _ => error.to_string(),
    }
}

fn date(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds)
        .map_or_else(|_| format!("{seconds} (Unix time)"), |at| at.to_string())
}

/// The name in `DnsName("server.example")`, as the TLS library writes it.
fn bare(name: &str) -> &str {
    name.split_once('(').map_or(name, |(_, name)| name.trim_end_matches(')').trim_matches('"'))
}

/// Advice for a TLS error.
#[must_use]
pub const fn advice_for(error: &rustls::Error) -> &'static str {
    use rustls::CertificateError as Certificate;
    match error {
        rustls::Error::InvalidCertificate(Certificate::UnknownIssuer | Certificate::BadSignature) => {
            "no authority that this machine trusts has signed the server's certificate: name the CA's file with --ca-file"
        }
        rustls::Error::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        ) => "the server's certificate is for another name: use one of its names as the address",
        rustls::Error::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. }) => {
            "the server's certificate has expired: renew it (the server reads the files of its --tls-cert and --tls-key again by itself), and check this machine's clock"
        }
        rustls::Error::InvalidCertificate(
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. },
        ) => "the server's certificate is not valid yet: check this machine's clock",
        rustls::Error::InvalidCertificate(_) => {
            "the server's certificate cannot be used: replace it, for example by one of 'longshore cert'"
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server wants a certificate of this client: name one with --tls-client-cert and --tls-client-key"
        }
        rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::DecryptError
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate,
        ) => {
            "the server does not trust the certificate of --tls-client-cert: an authority of its --tls-client-ca must have signed it, for clients"
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "the certificate of --tls-client-cert has expired: renew it"
        }
        rustls::Error::InvalidMessage(_) => {
            "the server does not speak TLS on this port: use http:// if its network can be trusted"
        }
        _ => "the server and this program cannot agree on TLS",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::CertificateError as Certificate;
    use rustls::pki_types::ServerName;

    use super::*;

    #[test]
    fn a_certificate_that_cannot_be_trusted_is_told_with_its_fault_and_a_remedy() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let name = ServerName::try_from("10.0.0.7").expect("an address");
        let presented = vec!["DnsName(\"jobs.example\")".to_owned(), "IpAddress(127.0.0.1)".to_owned()];
        for (fault, text, advice) in [
            (
                Certificate::ExpiredContext { time: at(1_800_000_000), not_after: at(1_767_225_600) },
                "the certificate of the server expired at 2026-01-01T00:00:00Z",
                "the server's certificate has expired: renew it",
            ),
            (
                Certificate::NotValidYetContext { time: at(0), not_before: at(1_767_225_600) },
                "the certificate of the server is not valid before 2026-01-01T00:00:00Z",
                "check this machine's clock",
            ),
            (
                Certificate::UnknownIssuer,
                "the issuer of the server's certificate is unknown here",
                "name the CA's file with --ca-file",
            ),
            (
                Certificate::NotValidForNameContext { expected: name, presented },
                "the certificate of the server is not for 10.0.0.7, only for jobs.example, 127.0.0.1",
                "use one of its names as the address",
            ),
            (Certificate::Revoked, "invalid peer certificate: Revoked", "replace it"),
        ] {
            let error = rustls::Error::InvalidCertificate(fault);
            assert_eq!(in_words(&error), text);
            assert!(advice_for(&error).contains(advice), "{}", advice_for(&error));
        }
    }
}
