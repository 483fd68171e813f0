//! Turns a request into a WebSocket: the server's side of RFC 6455, section 4.2.
//!
//! axum's own upgrade is not used: the bytes of a worker must pass [`FragmentLimit`] before the WebSocket library reads them, and axum's
//! socket cannot be put on top of another stream.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use protocol::SUBPROTOCOL;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::fragments::FragmentLimit;

/// A worker's connection.
pub(super) type Socket = WebSocketStream<FragmentLimit<TokioIo<Upgraded>>>;

/// A valid upgrade request.
pub(super) struct Upgrade {
    accept: String,
    upgraded: OnUpgrade,
}

impl<S: Sync> FromRequestParts<S> for Upgrade {
    /// `http::middleware::front` writes the problem document.
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, StatusCode> {
        let headers = &parts.headers;
        let asks = parts.method == Method::GET
            && names(headers, header::CONNECTION, "upgrade")
            && names(headers, header::UPGRADE, "websocket")
            && names(headers, header::SEC_WEBSOCKET_VERSION, "13");
        let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|key| is_key(key));
        // HTTP/1.0 has none.
        let upgraded = parts.extensions.get::<OnUpgrade>();
        let (true, Some(key), Some(upgraded)) = (asks, key, upgraded) else {
            return Err(StatusCode::UPGRADE_REQUIRED);
        };
        // Without it nobody knows what the peer would send.
        if !names(headers, header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL) {
            return Err(StatusCode::BAD_REQUEST);
        }
        Ok(Self { accept: derive_accept_key(key.as_bytes()), upgraded: upgraded.clone() })
    }
}

impl Upgrade {
    /// The response that switches protocols.
    pub(super) fn answer(&self) -> Response {
        let agreed = [
            (header::CONNECTION, "upgrade"),
            (header::UPGRADE, "websocket"),
            (header::SEC_WEBSOCKET_ACCEPT, self.accept.as_str()),
            (header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL),
        ];
        (StatusCode::SWITCHING_PROTOCOLS, agreed, ()).into_response()
    }

    /// The socket after the response was sent; `None` if the connection breaks before.
    pub(super) async fn socket(self, limits: WebSocketConfig) -> Option<Socket> {
        let stream = FragmentLimit::new(TokioIo::new(self.upgraded.await.ok()?));
        Some(WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits)).await)
    }
}

/// True if one of these headers contains this element.
fn names(headers: &HeaderMap, name: HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|it| it.trim().eq_ignore_ascii_case(wanted))
}

/// Sixteen bytes, as RFC 6455 requires.
fn is_key(value: &HeaderValue) -> bool {
    BASE64.decode(value.as_bytes()).is_ok_and(|key| key.len() == 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[(HeaderName, &'static str)]) -> HeaderMap {
        values.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_header_element_is_found_in_a_list() {
        let asked = headers(&[(header::CONNECTION, "keep-alive, Upgrade")]);
        assert!(names(&asked, header::CONNECTION, "upgrade"));
        assert!(!names(&headers(&[(header::CONNECTION, "upgrades")]), header::CONNECTION, "upgrade"));
        assert!(!names(&asked, header::UPGRADE, "websocket"));
    }

    #[test]
    fn a_key_has_sixteen_bytes() {
        assert!(is_key(&HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==")));
        for other in ["", "dGhl", "dGhlIHNhbXBsZSBub25jZQ", "not a key at all........"] {
            assert!(!is_key(&HeaderValue::from_static(other)), "{other}");
        }
    }
}
