//! Files of TLS, and the reasons why they cannot be used.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem;

/// Certificate or key are unusable.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
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
    /// A certificate in the file of authorities is not one of an authority.
    #[error("--tls-client-ca: {} has a certificate that cannot be used", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The error of the TLS library.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The TLS library refuses its own defaults.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

impl TlsError {
    /// The error for readers without a token, who learn no paths.
    pub(super) fn without_path(&self) -> String {
        match self {
            Self::Read { flag, .. } => format!("the file of {flag} cannot be read"),
            Self::Content { flag, expected, .. } => {
                format!("the file of {flag} contains no {expected} in PEM")
            }
            Self::PublicKey { .. } => format!("everyone can read the file of {KEY}"),
            Self::Pair(_) | Self::Setup(_) => self.to_string(),
            Self::Authority { .. } => {
                "the file of --tls-client-ca has a certificate that cannot be used".to_owned()
            }
        }
    }
}

pub(super) fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|cause| TlsError::Read { flag, path: path.to_owned(), cause })
}

pub(super) fn metadata(flag: &'static str, path: &Path) -> Result<Metadata, TlsError> {
    fs::metadata(path).map_err(|cause| TlsError::Read { flag, path: path.to_owned(), cause })
}

pub(super) const CERTIFICATE: &str = "--tls-cert";
pub(super) const KEY: &str = "--tls-key";
