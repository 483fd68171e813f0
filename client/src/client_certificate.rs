//! The certificate that a worker or a command shows to a server that asks for one.
//!
//! Certificate and key are read again when their files change, so that a worker that runs for months can be given new ones. Files that
//! cannot be used change nothing.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificateFiles {
    /// The certificate, then those of the authorities in between, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
}

/// A certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientCertificateError {
    /// A file cannot be read.
    #[error("{flag}: cannot read {}", path.display())]
    Read {
        /// The flag that names the file.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
    /// A file is not PEM of the expected kind.
    #[error("{flag}: {} contains no {expected} in PEM", path.display())]
    Content {
        /// The flag that names the file.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The kind of object that should be in it.
        expected: &'static str,
        /// The error of the parser.
        #[source]
        cause: pem::Error,
    },
    /// Everyone on the machine can read the key.
    #[error("{KEY}: everyone can read {} (mode {mode:04o}); run: chmod 600 {}", path.display(), path.display())]
    PublicKey {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Certificate and key cannot be used together.
    #[error("{CERTIFICATE} and {KEY} cannot be used together")]
    Pair(#[source] rustls::Error),
}

/// The certificate for handshakes.
#[derive(Debug)]
pub(crate) struct ClientCertificate {
    files: ClientCertificateFiles,
    provider: Arc<CryptoProvider>,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    key: Arc<CertifiedKey>,
    versions: [FileVersion; 2],
}

/// Inode and time of the last change: a replaced file or link leads to another inode. `None`: there is no file.
type FileVersion = Option<(u64, i64, i64)>;

impl ClientCertificate {
    /// Reads certificate and key.
    pub(crate) fn load(
        files: ClientCertificateFiles,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, ClientCertificateError> {
        // Taken before the files are read: a change in between is noticed.
        let versions = files.versions();
        let key = files.read(&provider)?;
        Ok(Self { files, provider, current: Mutex::new(Current { key, versions }) })
    }
}

impl ResolvesClientCert for ClientCertificate {
    /// Looks for new files at each handshake; a worker has one at each connection.
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let versions = self.files.versions();
        if versions != current.versions {
            current.versions = versions;
            let certificate = self.files.certificate.display();
            match self.files.read(&self.provider) {
                Ok(key) => {
                    current.key = key;
                    tracing::info!(%certificate, "new TLS certificate in use");
                }
                Err(error) => tracing::warn!(
                    %certificate,
                    error = &error as &dyn std::error::Error,
                    "TLS certificate or key changed but cannot be used; the old ones stay in use"
                ),
            }
        }
        Some(current.key.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ClientCertificateFiles {
    fn versions(&self) -> [FileVersion; 2] {
        [&self.certificate, &self.key].map(|path| {
            let found = fs::metadata(path).ok()?;
            Some((found.ino(), found.ctime(), found.ctime_nsec()))
        })
    }

    fn read(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, ClientCertificateError> {
        let failed = |flag, path: &Path| {
            let path = path.to_owned();
            move |cause| ClientCertificateError::Read { flag, path, cause }
        };
        let wrong = |flag, path: &Path, expected| {
            let path = path.to_owned();
            move |cause| ClientCertificateError::Content { flag, path, expected, cause }
        };
        let (certificate, key) = (&self.certificate, &self.key);
        let chain = fs::read(certificate).map_err(failed(CERTIFICATE, certificate))?;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&chain)
            .collect::<Result<_, _>>()
            .map_err(wrong(CERTIFICATE, certificate, "certificate"))?;
        if chain.is_empty() {
            return Err(wrong(CERTIFICATE, certificate, "certificate")(pem::Error::NoItemsFound));
        }
        let text = fs::read(key).map_err(failed(KEY, key))?;
        let mode = fs::metadata(key).map_err(failed(KEY, key))?.mode() & 0o777;
        if mode & 0o007 != 0 {
            return Err(ClientCertificateError::PublicKey { path: key.clone(), mode });
        }
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(wrong(KEY, key, "private key"))?;
        CertifiedKey::from_der(chain, key, provider).map(Arc::new).map_err(ClientCertificateError::Pair)
    }
}

const CERTIFICATE: &str = "--tls-client-cert";
const KEY: &str = "--tls-client-key";
