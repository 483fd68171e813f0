//! TLS of the listener: certificate and key from files, and the authorities of clients, which are read again when they change.
//!
//! Connections that exist stay as they are; the next handshake uses the new files. Files that cannot be used change nothing.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use protocol::Timestamp;

use crate::clock;

use super::client_certificates::ClientCertificates;
use super::expiry::{self, CertificateExpiry, REMIND_EVERY};
use super::lingering::{LingeringCloses, LingeringStream};
use super::tls_files::{CERTIFICATE, KEY, TlsError, metadata, read};
use super::tls_status::TlsStatus;

/// The files of certificate and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, then those of the authorities in between, in PEM.
    pub certificate: PathBuf,
    /// The key of the server's certificate, in PEM.
    pub key: PathBuf,
    /// Certificates of clients; without it nobody is asked for one.
    pub clients: Option<ClientCertificates>,
}

/// TLS with a certificate from files.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    current: CurrentConfig,
    versions: [Option<FileVersion>; 3],
    /// The files of the last warning that they cannot be used.
    refused: Option<[Option<FileVersion>; 3]>,
    status: TlsStatus,
    /// Time of the next warning about the end of the certificate.
    remind_at: Instant,
}

impl Tls {
    /// Reads certificate and key.
    ///
    /// # Errors
    /// One of them cannot be read, or they do not belong together.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // Taken before the files are read: a change in between is noticed.
        let versions = files.versions();
        let (config, ends) = files.config(&provider)?;
        let status = TlsStatus::new(ends.map(CertificateExpiry::at));
        let current = CurrentConfig(Arc::new(RwLock::new(config)));
        Ok(Self { files, provider, current, versions, refused: None, status, remind_at: Instant::now() })
    }

    /// The end of the certificate in use, and files that were refused.
    #[must_use]
    pub fn status(&self) -> TlsStatus {
        self.status.clone()
    }

    /// The settings for handshakes.
    pub(super) fn config(&self) -> CurrentConfig {
        self.current.clone()
    }

    /// Reads the files again whenever they have changed, for ever. Warns at the start, after each change and once a day if the certificate
    /// expires soon.
    pub(super) async fn renew(mut self) {
        loop {
            self.remind();
            tokio::time::sleep(LOOK_INTERVAL).await;
            let renewed = tokio::task::spawn_blocking(move || {
                self.renew_if_changed();
                self
            });
            match renewed.await {
                Ok(tls) => self = tls,
                // The runtime is shutting down.
                Err(_) => return,
            }
        }
    }

    fn remind(&mut self) {
        let now = Instant::now();
        if now >= self.remind_at {
            self.remind_at = now + REMIND_EVERY;
            if let Some(expiry) = self.status.expiry() {
                expiry.log(clock::now().utc, &self.files.certificate);
            }
        }
    }

    fn renew_if_changed(&mut self) {
        let versions = self.files.versions();
        if versions == self.versions {
            self.status.accept();
            return;
        }
        let certificate = self.files.certificate.display();
        match self.files.config(&self.provider) {
            Ok((config, ends)) => {
                if let (Some(expiry), Some(at)) = (self.status.expiry(), ends) {
                    expiry.set(at);
                }
                self.status.accept();
                self.versions = versions;
                self.refused = None;
                self.remind_at = Instant::now();
                // Sessions of the old settings cannot be resumed, so that clients of a removed authority are asked again.
                *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = config;
                tracing::info!(%certificate, "new TLS certificate in use");
            }
            // They are tried again, since a disk that failed may work again; once is enough to tell.
            Err(_) if self.refused == Some(versions) => {}
            Err(error) => {
                tracing::warn!(
                    %certificate,
                    error = &error as &dyn std::error::Error,
                    "TLS certificate, key or authorities of clients changed but cannot be used; the old ones stay in use"
                );
                self.status.refuse(clock::now().utc, &error);
                self.refused = Some(versions);
            }
        }
    }
}

impl TlsFiles {
    /// The settings for handshakes with the files as they are now, and the end of the certificate.
    fn config(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<(Arc<ServerConfig>, Option<Timestamp>), TlsError> {
        let key = self.read(provider)?;
        let ends = expiry::not_after(&key.cert);
        let config = ServerConfig::builder_with_provider(provider.clone());
        let config = config.with_safe_default_protocol_versions().map_err(TlsError::Setup)?;
        let config = match &self.clients {
            Some(clients) => config.with_client_cert_verifier(clients.verifier(provider)?),
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok((Arc::new(config), ends))
    }

    fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let certificate = read(CERTIFICATE, &self.certificate)?;
        let key = read(KEY, &self.key)?;
        let mode = metadata(KEY, &self.key)?.permissions().mode() & 0o777;
        if mode & 0o007 != 0 {
            return Err(TlsError::PublicKey { path: self.key.clone(), mode });
        }
        let wrong = |flag, path: &Path, expected| {
            let path = path.to_owned();
            move |cause| TlsError::Content { flag, path, expected, cause }
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&certificate)
            .collect::<Result<_, _>>()
            .map_err(wrong(CERTIFICATE, &self.certificate, "certificate"))?;
        if chain.is_empty() {
            return Err(wrong(CERTIFICATE, &self.certificate, "certificate")(pem::Error::NoItemsFound));
        }
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(wrong(KEY, &self.key, "private key"))?;
        CertifiedKey::from_der(chain, key, provider).map_err(TlsError::Pair)
    }

    fn versions(&self) -> [Option<FileVersion>; 3] {
        let authorities = self.clients.as_ref().map(|clients| &clients.authorities);
        [Some(&self.certificate), Some(&self.key), authorities]
            .map(|path| fs::metadata(path?).ok().map(|it| FileVersion::of(&it)))
    }
}

/// The content of a file, as its metadata tells it apart from later ones. A replaced file or link leads to another inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    changed: (i64, i64),
}

impl FileVersion {
    fn of(metadata: &Metadata) -> Self {
        Self { inode: metadata.ino(), changed: (metadata.ctime(), metadata.ctime_nsec()) }
    }
}

/// The settings that handshakes use now.
#[derive(Clone, Debug)]
pub(super) struct CurrentConfig(Arc<RwLock<Arc<ServerConfig>>>);

impl CurrentConfig {
    fn get(&self) -> Arc<ServerConfig> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Does the handshake of a connection within the time limit. A client that speaks plain HTTP is told so.
pub(super) async fn accept(
    config: &CurrentConfig,
    mut stream: TcpStream,
    time_limit: Duration,
    lingering_closes: &LingeringCloses,
) -> io::Result<TlsStream<LingeringStream>> {
    let handshake = async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
            stream.write_all(PLAIN_HTTP_ANSWER).await?;
            drop(LingeringStream::new(stream, lingering_closes.clone()));
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client speaks plain HTTP"));
        }
        TlsAcceptor::from(config.get()).accept(LingeringStream::new(stream, lingering_closes.clone())).await
    };
    timeout(time_limit, handshake).await?
}

/// Certificates are renewed days before they expire; some seconds more do not matter.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// A TLS record begins with 0x16, a request of plain HTTP with a letter.
const PLAIN_HTTP_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    content-type: text/plain\r\n\
    content-length: 41\r\n\
    connection: close\r\n\r\n\
    this port speaks TLS: use https or wss://";
