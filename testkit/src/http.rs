//! HTTP clients for plain connections on this machine.

use std::sync::Arc;

use reqwest::{Client, ClientBuilder};
use rustls::{ClientConfig, RootCertStore};

/// A client that uses no proxy. The library wants settings for TLS although no connection uses it.
///
/// # Panics
/// The TLS library knows none of its own protocol versions.
pub fn client() -> ClientBuilder {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    Client::builder().no_proxy().tls_backend_preconfigured(tls)
}
