//! TLS of clients: the certificates that workers and commands trust, and the one that they show.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
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

/// Advice for a TLS error.
#[must_use]
pub const fn advice_for(error: &rustls::Error) -> &'static str {
    use rustls::CertificateError as Certificate;
    match error {
        // Two authorities of `longshore cert` have the same name, so the signature alone tells them apart.
        rustls::Error::InvalidCertificate(Certificate::UnknownIssuer | Certificate::BadSignature) => {
            "no authority that this machine trusts has signed the server's certificate: name the CA's file with --ca-file"
        }
        rustls::Error::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        ) => "the server's certificate is for another name: use one of its names as the address",
        rustls::Error::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. }) => {
            "the server's certificate has expired: renew it, and check this machine's clock"
        }
        rustls::Error::InvalidCertificate(
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. },
        ) => "the server's certificate is not valid yet: check this machine's clock",
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
