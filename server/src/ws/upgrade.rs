//! From a request to a socket: the server's side of RFC 6455, section 4.2.
//!
//! Not axum's: what comes from a worker has to pass [`Counted`] before the WebSocket library reads it, and axum's socket cannot be laid
//! upon a stream of ours.

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

use super::pieces::Counted;

/// A worker's connection.
pub(super) type Socket = WebSocketStream<Counted<TokioIo<Upgraded>>>;

/// A request that asks for a socket as it should.
pub(super) struct Upgrade {
    accept: String,
    /// Whether it named our subprotocol.
    speaks_ours: bool,
    upgraded: OnUpgrade,
}

impl<S: Sync> FromRequestParts<S> for Upgrade {
    /// `http::front` writes what to say.
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, StatusCode> {
        let headers = &parts.headers;
        let asks = parts.method == Method::GET
            && names(headers, header::CONNECTION, "upgrade")
            && names(headers, header::UPGRADE, "websocket")
            && names(headers, header::SEC_WEBSOCKET_VERSION, "13");
        let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|key| is_key(key));
        // There is none with HTTP/1.0.
        let upgraded = parts.extensions.get::<OnUpgrade>();
        let (true, Some(key), Some(upgraded)) = (asks, key, upgraded) else {
            return Err(StatusCode::UPGRADE_REQUIRED);
        };
        Ok(Self {
            accept: derive_accept_key(key.as_bytes()),
            speaks_ours: names(headers, header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL),
            upgraded: upgraded.clone(),
        })
    }
}

impl Upgrade {
    /// What makes a socket of the connection.
    pub(super) fn answer(&self) -> Response {
        let agreed = [
            (header::CONNECTION, "upgrade"),
            (header::UPGRADE, "websocket"),
            (header::SEC_WEBSOCKET_ACCEPT, self.accept.as_str()),
        ];
        let subprotocol = self.speaks_ours.then_some([(header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL)]);
        (StatusCode::SWITCHING_PROTOCOLS, agreed, subprotocol, ()).into_response()
    }

    /// The socket, once the answer is out; nothing if the connection breaks before.
    pub(super) async fn socket(self, limits: WebSocketConfig) -> Option<Socket> {
        let stream = Counted::new(TokioIo::new(self.upgraded.await.ok()?));
        Some(WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits)).await)
    }
}

/// Whether one of these headers names this among other things.
fn names(headers: &HeaderMap, name: HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|it| it.trim().eq_ignore_ascii_case(wanted))
}

/// Sixteen bytes, as RFC 6455 wants them.
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
    fn what_is_asked_for_may_stand_among_others() {
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
