//! Clients that only listen: followers of events and of output, and an open dashboard.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::load::{Connection, Endpoint};

/// Connections that only read. They are closed when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct StreamReaders(JoinSet<()>);

impl StreamReaders {
    /// An open dashboard: it follows a summary of the events, and opens the stream again when it ends. Metrics are scraped, and the overview is
    /// loaded, each second. An error answer ends the connection, which [`Self::take_ended`] then finds.
    pub(crate) async fn dashboard(endpoint: &Endpoint) -> anyhow::Result<Self> {
        let mut readers = Self::default();
        let follower = endpoint.clone();
        readers.0.spawn(async move {
            while let Ok(connection) = Connection::open(follower.clone()).await {
                let Ok(stream) = connection.follow("/api/events?summary=1").await else { return };
                stream.await;
                tokio::time::sleep(RECONNECT_DELAY).await;
            }
        });
        let mut connection = Connection::open(endpoint.clone()).await?;
        readers.0.spawn(async move {
            let mut seconds = tokio::time::interval(Duration::from_secs(1));
            loop {
                seconds.tick().await;
                for path in ["/metrics", "/"] {
                    if connection.get(path).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(readers)
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_error_answer_ends_the_connections_of_a_dashboard() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut request = [0; 4_096];
                    while stream.read(&mut request).await.is_ok_and(|bytes| bytes > 0) {
                        let answer = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
                        stream.write_all(answer).await.expect("written");
                    }
                });
            }
        });
        let mut readers = StreamReaders::dashboard(&address.into()).await.expect("connected");
        for connection in ["events", "pages"] {
            let ended = tokio::time::timeout(Duration::from_secs(10), readers.0.join_next()).await;
            assert!(matches!(ended, Ok(Some(Ok(())))), "{connection}: {ended:?}");
        }
    }
}
