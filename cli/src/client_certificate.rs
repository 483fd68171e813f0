//! The flags of the certificate that a worker or a command shows to a server that asks for one.

use std::path::PathBuf;

use client::client_certificate::ClientCertificateFiles;

use crate::failure::{Exit, Failure};

/// Certificate and key. [`ServerArgs`](crate::args::ServerArgs) has the same flags under a heading of its own.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ClientCertificateArgs {
    /// Certificate for a server that asks for one: a PEM file, read again when it changes.
    #[arg(long, env = "LONGSHORE_TLS_CLIENT_CERT", value_name = "FILE")]
    pub(crate) tls_client_cert: Option<PathBuf>,
    /// Private key of that certificate: a PEM file, not readable by everyone.
    #[arg(long, env = "LONGSHORE_TLS_CLIENT_KEY", value_name = "FILE")]
    pub(crate) tls_client_key: Option<PathBuf>,
}

impl ClientCertificateArgs {
    /// Both files, or none.
    pub(crate) fn files(&self) -> Result<Option<ClientCertificateFiles>, Failure> {
        let half = |given, missing| {
            let text = format!("{given} is given and {missing} is not: a certificate is shown with its key");
            Failure::new(Exit::Usage, text)
        };
        match (self.tls_client_cert.clone(), self.tls_client_key.clone()) {
            (Some(certificate), Some(key)) => Ok(Some(ClientCertificateFiles { certificate, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(half("--tls-client-cert", "--tls-client-key")),
            (None, Some(_)) => Err(half("--tls-client-key", "--tls-client-cert")),
        }
    }
}
