//! The header `Authorization`: a token, or for a worker that has joined its own secret and the token with which it could join anew.

use data_encoding::BASE64URL_NOPAD;
use protocol::{WORKER_SCHEME, WorkerId};

/// The header of a worker that has joined: `Longshore-Worker id="7", secret="…", token="…"`. Secret and token are in base64url, so that neither
/// needs quoting.
pub(super) struct WorkerProof {
    /// Its number.
    pub(super) worker: WorkerId,
    /// The secret of its state directory.
    pub(super) secret: Vec<u8>,
    /// The text of its token, for a server that does not know it.
    pub(super) token: Option<Vec<u8>>,
}

impl WorkerProof {
    /// `None` if the value has another scheme or form.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let (scheme, params) = value.split_at_checked(WORKER_SCHEME.len() + 1)?;
        if !scheme[..WORKER_SCHEME.len()].eq_ignore_ascii_case(WORKER_SCHEME.as_bytes()) {
            return None;
        }
        let (mut worker, mut secret, mut token) = (None, None, None);
        for param in std::str::from_utf8(params).ok()?.split(',') {
            let (name, value) = param.trim().split_once('=')?;
            let value = value.strip_prefix('"')?.strip_suffix('"')?;
            let decoded = || BASE64URL_NOPAD.decode(value.as_bytes()).ok();
            match name {
                "id" => worker = Some(WorkerId(value.parse().ok()?)),
                "secret" => secret = Some(decoded()?),
                "token" => token = Some(decoded()?),
                _ => {}
            }
        }
        Some(Self { worker: worker?, secret: secret?, token })
    }
}

/// The value is meant for this server. A proxy passes on what a browser has sent to it, such as `Basic`.
pub(super) fn is_ours(value: &[u8]) -> bool {
    let scheme = value.split(|byte| *byte == b' ').next().unwrap_or_default();
    [b"Bearer", WORKER_SCHEME.as_bytes()].iter().any(|ours| scheme.eq_ignore_ascii_case(ours))
}

/// The token of a header with the scheme `Bearer`.
pub(super) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
