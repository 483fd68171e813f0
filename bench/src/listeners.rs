//! Clients that only listen: followers of events and of output, and an open dashboard.

use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::load::{Connection, Endpoint, JSON};

/// Connections that only read. They are closed when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Listeners(JoinSet<()>);

impl Listeners {
    /// An open dashboard: it follows a summary of the events, and comes back if the stream ends. Metrics are scraped, and the overview is
    /// loaded, each second.
    pub(crate) async fn dashboard(endpoint: &Endpoint) -> anyhow::Result<Self> {
        let mut listeners = Self::default();
        let follower = endpoint.clone();
        listeners.0.spawn(async move {
            while let Ok(connection) = Connection::open(follower.clone()).await {
                if let Ok(stream) = connection.follow("/api/events?summary=1").await {
                    stream.await;
                }
                tokio::time::sleep(RECONNECT_DELAY).await;
            }
        });
        let mut connection = Connection::open(endpoint.clone()).await?;
        listeners.0.spawn(async move {
            let mut seconds = tokio::time::interval(Duration::from_secs(1));
            loop {
                seconds.tick().await;
                for path in ["/metrics", "/"] {
                    if connection.ask(hyper::Method::GET, path, JSON, Bytes::new()).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(listeners)
    }

    /// Opens a stream and reads it until it ends.
    pub(crate) async fn follow(&mut self, endpoint: Endpoint, path: &str) -> anyhow::Result<()> {
        let stream = Connection::open(endpoint).await?.follow(path).await?;
        self.0.spawn(stream);
        Ok(())
    }

    /// Forgets one stream that has ended. Returns whether there was one.
    pub(crate) fn take_ended(&mut self) -> bool {
        self.0.try_join_next().is_some()
    }
}

/// The server asks browsers to wait this long (`retry`).
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
