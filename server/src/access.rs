//! The access control of a server, from its settings and the tokens of its store.

use std::net::SocketAddr;
use std::sync::Arc;

use protocol::ClusterId;

use crate::auth::Access;
use crate::auth::records::AccessRecords;
use crate::config::Config;
use crate::metrics::Metrics;

impl Config {
    /// The access control of a server that listens on this address.
    pub(crate) fn access(
        &self,
        listen: SocketAddr,
        cluster: ClusterId,
        records: &AccessRecords,
        metrics: Arc<Metrics>,
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
        if let Some(token) = &self.api_token {
            access = access.api_token(token.reveal());
        }
        if let Some(token) = &self.worker_token {
            access = access.worker_token(token.reveal());
        }
        access
    }
}
