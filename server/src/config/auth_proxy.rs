//! The settings of a reverse proxy that signs users in.

use std::net::IpAddr;

use axum::http::HeaderName;
use ipnet::IpNet;

use super::SettingsError;
use crate::auth::proxy::ProxyLogin;
use crate::auth::role::Role;

/// The settings as given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthProxySettings {
    /// The header with the name of the user; without it nobody is signed in by a proxy.
    pub header: Option<String>,
    /// The networks and addresses of the proxy.
    pub from: Vec<String>,
    /// The role of users without a group that has one.
    pub role: Option<String>,
    /// The header with the groups of the user.
    pub groups_header: Option<String>,
    /// Roles of groups: `GROUP=ROLE`.
    pub groups: Vec<String>,
}

impl AuthProxySettings {
    /// Parses the settings; `None` if no user is signed in by a proxy.
    ///
    /// # Errors
    /// The first wrong setting.
    pub(super) fn check(self) -> Result<Option<ProxyLogin>, SettingsError> {
        let Some(header) = self.header else {
            let given = [
                (FROM, !self.from.is_empty()),
                (ROLE, self.role.is_some()),
                (GROUPS_HEADER, self.groups_header.is_some()),
                (GROUP, !self.groups.is_empty()),
            ];
            return match given.into_iter().find(|(_, is_given)| *is_given) {
                Some((flag, _)) => {
                    Err(wrong(flag, format!("it needs {}, the header with the user", HEADER.0)))
                }
                None => Ok(None),
            };
        };
        let header = header_name(HEADER, &header)?;
        if self.from.is_empty() {
            return Err(wrong(
                FROM,
                "it is missing: the header is believed from the proxy's addresses only".into(),
            ));
        }
        let groups_header = self.groups_header.map(|name| header_name(GROUPS_HEADER, &name)).transpose()?;
        let groups = match (groups_header, self.groups.is_empty()) {
            (Some(name), false) => Some((name, groups(&self.groups)?)),
            (None, true) => None,
            (Some(_), true) => {
                return Err(wrong(GROUPS_HEADER, format!("it needs roles of groups: {}", GROUP.0)));
            }
            (None, false) => return Err(wrong(GROUP, format!("it needs {}", GROUPS_HEADER.0))),
        };
        Ok(Some(ProxyLogin {
            header,
            networks: self.from.iter().map(|text| network(text)).collect::<Result<_, _>>()?,
            role: self.role.map_or(Ok(Role::Viewer), |name| role(ROLE, &name))?,
            groups,
        }))
    }
}

fn header_name(flag: Flag, text: &str) -> Result<HeaderName, SettingsError> {
    let name = text.trim().parse::<HeaderName>().ok();
    // Browsers and programs send these of their own.
    let name = name.filter(|name| !["authorization", "cookie", "host", "origin"].contains(&name.as_str()));
    name.ok_or_else(|| wrong(flag, format!("{text:?} is no header for users, such as X-Forwarded-User")))
}

fn network(text: &str) -> Result<IpNet, SettingsError> {
    let text = text.trim();
    let parsed: Option<IpNet> = text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    let network = parsed.ok_or_else(|| {
        wrong(FROM, format!("{text:?} is not an address, or a network such as 10.0.0.0/24"))
    })?;
    if network.prefix_len() == 0 {
        return Err(wrong(FROM, format!("{text} is every address: everybody could claim to be anybody")));
    }
    Ok(network)
}

fn groups(given: &[String]) -> Result<Vec<(String, Role)>, SettingsError> {
    let mut groups: Vec<(String, Role)> = Vec::new();
    for text in given {
        let (name, role) = group(text)?;
        if let Some((_, other)) = groups.iter().find(|(it, other)| *it == name && *other != role) {
            let reason = format!("the group {name:?} has two roles: {} and {}", other.name(), role.name());
            return Err(wrong(GROUP, reason));
        }
        groups.push((name, role));
    }
    Ok(groups)
}

fn group(text: &str) -> Result<(String, Role), SettingsError> {
    // A name may have an equals sign.
    let (name, role_name) = text.rsplit_once('=').unwrap_or((text, ""));
    if name.trim().is_empty() || name.contains(',') {
        return Err(wrong(GROUP, format!("{text:?} is not GROUP=ROLE, such as admins=admin")));
    }
    Ok((name.trim().to_owned(), role(GROUP, role_name)?))
}

fn role(flag: Flag, name: &str) -> Result<Role, SettingsError> {
    Role::find(name.trim())
        .filter(|role| *role != Role::Worker)
        .ok_or_else(|| wrong(flag, format!("{name:?} is not viewer, submitter, operator or admin")))
}

fn wrong((flag, variable): Flag, reason: String) -> SettingsError {
    SettingsError::Value { flag, variable, reason }
}

/// A flag and its variable.
type Flag = (&'static str, &'static str);

const HEADER: Flag = ("--auth-proxy-header", "LONGSHORE_AUTH_PROXY_HEADER");
const FROM: Flag = ("--auth-proxy-from", "LONGSHORE_AUTH_PROXY_FROM");
const ROLE: Flag = ("--auth-proxy-role", "LONGSHORE_AUTH_PROXY_ROLE");
const GROUPS_HEADER: Flag = ("--auth-proxy-groups-header", "LONGSHORE_AUTH_PROXY_GROUPS_HEADER");
const GROUP: Flag = ("--auth-proxy-group", "LONGSHORE_AUTH_PROXY_GROUP");

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> AuthProxySettings {
        AuthProxySettings {
            header: Some("X-Forwarded-User".into()),
            from: vec!["10.0.0.2".into(), "fd00::/8".into()],
            ..AuthProxySettings::default()
        }
    }

    #[test]
    fn a_user_is_a_viewer_unless_the_settings_say_otherwise() {
        let login = settings().check().unwrap().unwrap();
        assert_eq!(
            (login.header.as_str(), login.role, login.groups),
            ("x-forwarded-user", Role::Viewer, None)
        );
        let groups = vec!["cn=ops=operator".to_owned()];
        let with = AuthProxySettings { groups_header: Some("X-Groups".into()), groups, ..settings() };
        let roles = with.check().unwrap().unwrap().groups.unwrap().1;
        assert_eq!(roles, [("cn=ops".to_owned(), Role::Operator)]);
        assert_eq!(AuthProxySettings::default().check().unwrap(), None);
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let refused = |change: fn(&mut AuthProxySettings), expected: &str| {
            let mut settings = settings();
            change(&mut settings);
            let text = settings.check().unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        };
        refused(|it| it.from.clear(), "--auth-proxy-from (LONGSHORE_AUTH_PROXY_FROM): it is missing");
        refused(|it| it.from = vec!["0.0.0.0/0".into()], "is every address");
        refused(|it| it.from = vec!["proxy.example".into()], "is not an address");
        refused(
            |it| it.header = None,
            "--auth-proxy-from (LONGSHORE_AUTH_PROXY_FROM): it needs --auth-proxy-header",
        );
        refused(|it| it.header = Some("Authorization".into()), "no header for users");
        refused(|it| it.header = Some("a b".into()), "no header for users");
        refused(|it| it.role = Some("worker".into()), "is not viewer");
        refused(|it| it.groups = vec!["ops=operator".into()], "it needs --auth-proxy-groups-header");
        refused(|it| it.groups_header = Some("X-Groups".into()), "it needs roles of groups");
        refused(
            |it| {
                it.groups_header = Some("X-Groups".into());
                it.groups = vec!["ops=operator".into(), "dev=submitter".into(), "ops=admin".into()];
            },
            "the group \"ops\" has two roles: operator and admin",
        );
    }
}
