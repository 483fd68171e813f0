//! The access control of a server, from its settings and the tokens of its store.

use std::net::SocketAddr;
use std::sync::Arc;

use protocol::{ClusterId, Timestamp};

use crate::auth::Access;
use crate::auth::records::AccessRecords;
use crate::auth::role::Role;
use crate::config::{Config, Token};
use crate::metrics::Metrics;
use crate::store::TokenRow;

impl Config {
    /// The access control of a server that listens on this address.
    ///
    /// A token of a file that is one of the store gets no further rights by the file: the store decides about each of its requests.
    pub(crate) fn access(
        &self,
        listen: SocketAddr,
        cluster: ClusterId,
        records: &AccessRecords,
        metrics: Arc<Metrics>,
        now: Timestamp,
    ) -> Access {
        let mut access = Access::open(listen)
            .cluster(cluster)
            .hosts(self.allowed_hosts.iter().cloned())
            .tokens(Arc::clone(&records.tokens))
            .workers(Arc::clone(&records.workers))
            .report_lock_outs(Arc::clone(&records.audit), metrics);
        if self.requires_tokens {
            access = access.require_tokens();
        }
        if let Some(proxy) = &self.proxy {
            access = access.proxy(proxy.clone());
        }
        let files = [
            (&self.api_token, API_OPTION, Role::Admin, Access::api_token as fn(Access, &str) -> Access),
            (&self.worker_token, WORKER_OPTION, Role::Worker, Access::worker_token),
        ];
        for (token, option, role, add) in files {
            let Some(token) = token else { continue };
            access = match stored(token, records) {
                None => add(access, token.reveal()),
                Some(row) => {
                    log_stored(&row, option, role, now);
                    access.require_tokens()
                }
            };
        }
        access
    }
}

/// Says that the token of a file is one of the store. A server starts with it in any case: it may have become invalid since the last start.
fn log_stored(row: &TokenRow, option: &str, role: Role, now: Timestamp) {
    match obstacle(row, role, now) {
        None => {
            tracing::info!(token = %row.name, option, "the token of this file is one of the store, which decides what it may do");
        }
        Some(obstacle) => tracing::error!(
            token = %row.name, option, obstacle, wanted_role = %role,
            "the token of this file is one of the store: the file gives it no further rights. Unset the variable for the server if it was \
             set for commands"
        ),
    }
}

const API_OPTION: &str = "--api-token-file (LONGSHORE_API_TOKEN_FILE)";
const WORKER_OPTION: &str = "--worker-token-file (LONGSHORE_WORKER_TOKEN_FILE)";

/// The row of this token in the store.
fn stored(token: &Token, records: &AccessRecords) -> Option<TokenRow> {
    records.tokens.row_of(token.reveal().as_bytes())
}

/// The reason why a token of the store cannot stand for one of this role.
fn obstacle(row: &TokenRow, role: Role, now: Timestamp) -> Option<String> {
    if row.revoked_at.is_some() {
        Some("was revoked".to_owned())
    } else if row.expires_at.is_some_and(|end| end <= now) {
        Some("has expired".to_owned())
    } else if row.role != role {
        Some(format!("has the role {}", row.role))
    } else if !row.scope.patterns().is_empty() {
        Some("is for some definitions only".to_owned())
    } else {
        None
    }
}
