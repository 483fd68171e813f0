//! The flags of a server behind a reverse proxy that signs users in.

use server::config::AuthProxySettings;

/// Users of a reverse proxy.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Login by a reverse proxy")]
pub(crate) struct AuthProxyArgs {
    /// Header in which the proxy names the user that it has signed in, such as X-Forwarded-User. Everybody else needs a token.
    #[arg(long, env = "LONGSHORE_AUTH_PROXY_HEADER", value_name = "NAME")]
    auth_proxy_header: Option<String>,
    /// Address or network of the proxy, such as 10.0.0.2; the header is ignored from all others. May be repeated.
    #[arg(long, env = "LONGSHORE_AUTH_PROXY_FROM", value_name = "CIDR", value_delimiter = ',')]
    auth_proxy_from: Vec<String>,
    /// Role of these users [default: viewer].
    #[arg(long, env = "LONGSHORE_AUTH_PROXY_ROLE", value_name = "ROLE")]
    auth_proxy_role: Option<String>,
    /// Header in which the proxy lists the groups of the user, separated by commas.
    #[arg(long, env = "LONGSHORE_AUTH_PROXY_GROUPS_HEADER", value_name = "NAME")]
    auth_proxy_groups_header: Option<String>,
    /// Role of a group; the strongest counts. May be repeated.
    #[arg(long, env = "LONGSHORE_AUTH_PROXY_GROUP", value_name = "GROUP=ROLE", value_delimiter = ',')]
    auth_proxy_group: Vec<String>,
}

impl From<AuthProxyArgs> for AuthProxySettings {
    fn from(flags: AuthProxyArgs) -> Self {
        Self {
            header: flags.auth_proxy_header,
            from: flags.auth_proxy_from,
            role: flags.auth_proxy_role,
            groups_header: flags.auth_proxy_groups_header,
            groups: flags.auth_proxy_group,
        }
    }
}
