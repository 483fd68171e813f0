//! Users whom a reverse proxy has signed in: it names them in a header of each request.
//!
//! The header counts only on connections from the proxy's own addresses; from any other address it is ignored, and the request is one
//! without a token. A program on a trusted address can claim to be anybody, so the check of `Host` holds for these requests: a web page
//! that reaches the server by DNS rebinding could set the header, but not choose the host.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use super::Denial;
use super::actor::{Actor, PROXY_PREFIX};
use super::role::Role;

/// The proxy that signs users in, and the roles of its users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyLogin {
    /// The header with the name of the user.
    pub header: HeaderName,
    /// The addresses of the proxy.
    pub networks: Vec<IpNet>,
    /// The role of users without a group that has one.
    pub role: Role,
    /// The header with the groups of the user, separated by commas, and the roles of groups.
    pub groups: Option<(HeaderName, Vec<(String, Role)>)>,
}

impl ProxyLogin {
    /// The user of a request; `None` if it does not come from the proxy, or the proxy names no user.
    ///
    /// # Errors
    /// [`Denial::ProxyHeader`]: a header comes twice, or has no plain name.
    pub(super) fn user(
        &self,
        headers: &HeaderMap,
        peer: Option<IpAddr>,
    ) -> Result<Option<Arc<Actor>>, Denial> {
        if !peer.is_some_and(|peer| self.trusts(peer)) {
            return Ok(None);
        }
        let Some(name) = only(headers, &self.header)?.filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        // Two headers that something on the way has joined have a comma.
        let is_forbidden = |letter: char| letter.is_control() || letter.is_whitespace() || letter == ',';
        if name.len() > NAME_BYTES_MAX || name.contains(is_forbidden) {
            return Err(Denial::ProxyHeader {
                field: self.header.to_string(),
                fault: "is not the name of one user",
            });
        }
        let role = match &self.groups {
            Some((header, roles)) => strongest(roles, only(headers, header)?).unwrap_or(self.role),
            None => self.role,
        };
        Ok(Some(Arc::new(Actor::with_token(format!("{PROXY_PREFIX}{name}"), role))))
    }

    fn trusts(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.networks.iter().any(|network| network.contains(&peer))
    }
}

/// The strongest role of these groups.
fn strongest(roles: &[(String, Role)], groups: Option<&str>) -> Option<Role> {
    let groups = groups.unwrap_or_default().split(',').map(str::trim);
    let found =
        groups.filter_map(|group| roles.iter().find(|(name, _)| name == group).map(|(_, role)| *role));
    found.max_by_key(|role| Role::ALL.iter().position(|other| other == role))
}

/// The only value of a header, as text; `None` if it is absent.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Denial> {
    let refused = |fault| Denial::ProxyHeader { field: name.to_string(), fault };
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(refused("comes twice: let the proxy remove what clients send"));
    }
    std::str::from_utf8(value.as_bytes())
        .map(|text| Some(text.trim()))
        .map_err(|_| refused("is no text in UTF-8"))
}

/// Longer than names and addresses of mail in directories.
const NAME_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn login() -> ProxyLogin {
        ProxyLogin {
            header: HeaderName::from_static("x-user"),
            networks: vec!["10.0.0.2/32".parse().unwrap(), "fd00::/8".parse().unwrap()],
            role: Role::Viewer,
            groups: Some((
                HeaderName::from_static("x-groups"),
                vec![
                    ("ops".into(), Role::Operator),
                    ("dev".into(), Role::Submitter),
                    ("root".into(), Role::Admin),
                ],
            )),
        }
    }

    /// The name and the role of the sender.
    fn user(peer: &str, headers: &[(&'static str, &[u8])]) -> Result<Option<(String, Role)>, Denial> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        let actor = login().user(&map, Some(peer.parse().unwrap()))?;
        Ok(actor.map(|actor| (actor.token.as_deref().unwrap().to_owned(), actor.role)))
    }

    #[test]
    fn only_the_proxy_can_name_a_user() {
        for peer in ["10.0.0.2", "::ffff:10.0.0.2", "fd12::1"] {
            let anna = ("proxy:anna@example.org".to_owned(), Role::Viewer);
            assert_eq!(user(peer, &[("x-user", b"anna@example.org")]), Ok(Some(anna)), "{peer}");
        }
        for peer in ["10.0.0.3", "127.0.0.1", "::1", "::ffff:10.0.0.3"] {
            assert_eq!(user(peer, &[("x-user", b"anna"), ("x-groups", b"root")]), Ok(None), "{peer}");
        }
        assert_eq!(login().user(&HeaderMap::new(), None).map(|user| user.is_some()), Ok(false));
    }

    #[test]
    fn the_strongest_group_decides_the_role() {
        for (groups, role) in [
            ("dev, ops", Role::Operator),
            ("ops,dev", Role::Operator),
            ("other", Role::Viewer),
            ("", Role::Viewer),
            ("rooted, OPS", Role::Viewer),
            ("root", Role::Admin),
        ] {
            let found = user("10.0.0.2", &[("x-user", b"anna"), ("x-groups", groups.as_bytes())]);
            assert_eq!(found.unwrap().unwrap().1, role, "{groups}");
        }
    }

    #[test]
    fn an_ambiguous_name_is_refused_and_an_empty_one_is_no_user() {
        let ambiguous: [&[(&'static str, &[u8])]; 6] = [
            &[("x-user", b"anna"), ("x-user", b"mallory")],
            &[("x-user", b"anna"), ("x-user", b"anna")],
            &[("x-user", b"anna, mallory")],
            &[("x-user", b"anna mallory")],
            &[("x-user", b"\xff")],
            &[("x-user", b"anna"), ("x-groups", b"dev"), ("x-groups", b"root")],
        ];
        for headers in ambiguous {
            let refused = user("10.0.0.2", headers);
            assert!(matches!(refused, Err(Denial::ProxyHeader { .. })), "{headers:?}: {refused:?}");
        }
        assert_eq!(user("10.0.0.2", &[("x-user", b"")]), Ok(None));
        assert_eq!(user("10.0.0.2", &[("x-groups", b"root")]), Ok(None));
    }
}
