//! The settings of TLS: certificate and key, and the certificates of clients.

use std::path::PathBuf;

use super::SettingsError;
use crate::listener::client_certificates::{ClientAuth, ClientCertificates};
use crate::listener::tls::TlsFiles;

/// The files of TLS; `None` without a certificate.
pub(super) fn files(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    client_auth: Option<&str>,
) -> Result<Option<TlsFiles>, SettingsError> {
    let clients = client_certificates(client_ca, client_auth)?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key, clients })),
        (None, None) if clients.is_some() => {
            Err(SettingsError::HalfOfTls { given: TLS_CLIENT_CA, missing: TLS_CERT })
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err(SettingsError::HalfOfTls { given: TLS_CERT, missing: TLS_KEY }),
        (None, Some(_)) => Err(SettingsError::HalfOfTls { given: TLS_KEY, missing: TLS_CERT }),
    }
}

fn client_certificates(
    authorities: Option<PathBuf>,
    auth: Option<&str>,
) -> Result<Option<ClientCertificates>, SettingsError> {
    let wrong = |reason| SettingsError::Value {
        flag: "--tls-client-auth",
        variable: "LONGSHORE_TLS_CLIENT_AUTH",
        reason,
    };
    let auth = auth.map(|name| {
        ClientAuth::find(name).ok_or_else(|| wrong(format!("{name:?} is neither required nor optional")))
    });
    match (authorities, auth.transpose()?) {
        (Some(authorities), auth) => {
            Ok(Some(ClientCertificates { authorities, auth: auth.unwrap_or_default() }))
        }
        (None, Some(_)) => {
            Err(wrong("it needs --tls-client-ca, the authorities that sign certificates".into()))
        }
        (None, None) => Ok(None),
    }
}

const TLS_CERT: &str = "--tls-cert (LONGSHORE_TLS_CERT)";
const TLS_CLIENT_CA: &str = "--tls-client-ca (LONGSHORE_TLS_CLIENT_CA)";
const TLS_KEY: &str = "--tls-key (LONGSHORE_TLS_KEY)";
