//! Certificates that clients show in the TLS handshake, signed by authorities of the site.
//!
//! They decide who may open a connection at all. They say nothing about the sender of a request: tokens decide the role, as without them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, server};

use super::tls_files::{TlsError, read};

/// The certificates that clients show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// The authorities that sign them, in PEM.
    pub authorities: PathBuf,
    /// Treatment of clients without one.
    pub auth: ClientAuth,
}

/// Treatment of clients that show no certificate. One that cannot be trusted always ends the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// They cannot connect.
    #[default]
    Required,
    /// They connect like all others.
    Optional,
}

impl ClientAuth {
    /// Finds the treatment by its name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        match name {
            "required" => Some(Self::Required),
            "optional" => Some(Self::Optional),
            _ => None,
        }
    }
}

impl ClientCertificates {
    /// The check of certificates, with the authorities as their file has them now.
    pub(super) fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let path: &Path = &self.authorities;
        let text = read(AUTHORITIES, path)?;
        let wrong = |cause| TlsError::Content {
            flag: AUTHORITIES,
            path: path.to_owned(),
            expected: "certificate",
            cause,
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&text) {
            let certificate = certificate.map_err(wrong)?;
            roots
                .add(certificate)
                .map_err(|cause| TlsError::Authority { path: path.to_owned(), cause: Box::new(cause) })?;
        }
        if roots.is_empty() {
            return Err(wrong(pem::Error::NoItemsFound));
        }
        let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let builder = match self.auth {
            ClientAuth::Required => builder,
            ClientAuth::Optional => builder.allow_unauthenticated(),
        };
        let refused = |cause: server::VerifierBuilderError| TlsError::Authority {
            path: path.to_owned(),
            cause: Box::new(cause),
        };
        builder.build().map_err(refused)
    }
}

const AUTHORITIES: &str = "--tls-client-ca";
