//! Opens a TCP connection to the first address of a host that answers.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// No address can be connected to.
#[derive(Debug)]
pub(super) enum TcpError {
    /// Nothing answered in time: the name server, or the host at all of its addresses.
    Silent,
    /// The errors of the addresses in one, or the error of the name server.
    Failed(io::Error),
}

/// Connects to this host. Each of its addresses has its own time limit, in sum `limit` or a bit more: packets to one address may vanish
/// without an answer, as those of a broken IPv6 do, and the next one is tried all the same.
pub(super) async fn connect(host: &str, port: u16, limit: Duration) -> Result<TcpStream, TcpError> {
    let found = timeout(limit, lookup_host((host, port))).await.map_err(|_| TcpError::Silent)?;
    let addresses: Vec<_> = found.map_err(TcpError::Failed)?.take(ADDRESSES_MAX).collect();
    first_reachable(&addresses, limit, TcpStream::connect).await
}

async fn first_reachable<T>(
    addresses: &[SocketAddr],
    limit: Duration,
    connect: impl AsyncFn(SocketAddr) -> io::Result<T>,
) -> Result<T, TcpError> {
    let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let each = (limit / count).max(ADDRESS_LIMIT_MIN);
    let mut errors = Vec::new();
    for address in addresses {
        match timeout(each, connect(*address)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => errors.push((*address, Some(error))),
            Err(_) => errors.push((*address, None)),
        }
    }
    Err(combined(errors))
}

/// One error for those of all addresses; `None` stands for an address that did not answer.
fn combined(mut errors: Vec<(SocketAddr, Option<io::Error>)>) -> TcpError {
    if errors.len() == 1
        && let Some((_, Some(only))) = errors.pop_if(|(_, error)| error.is_some())
    {
        return TcpError::Failed(only);
    }
    let Some(kind) = errors.iter().find_map(|(_, error)| error.as_ref().map(io::Error::kind)) else {
        return if errors.is_empty() { TcpError::Failed(no_address()) } else { TcpError::Silent };
    };
    let texts = errors.into_iter().map(|(address, error)| match error {
        Some(error) => format!("{address}: {error}"),
        None => format!("{address}: no answer in time"),
    });
    TcpError::Failed(io::Error::new(kind, texts.collect::<Vec<_>>().join("; ")))
}

fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the name has no address")
}

/// A connection over a satellite takes a second, and a lost packet is sent again after one and after three.
const ADDRESS_LIMIT_MIN: Duration = Duration::from_secs(3);

/// With more addresses a single try to connect would outlast a lease.
const ADDRESSES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn addresses() -> [SocketAddr; 2] {
        ["[2001:db8::1]:7700", "192.0.2.1:7700"].map(|it| it.parse().expect("an address"))
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_swallows_packets_does_not_hide_the_next_one() {
        let connect = async |address: SocketAddr| match address {
            SocketAddr::V6(_) => pending().await,
            SocketAddr::V4(_) => Ok(address),
        };
        let reached = first_reachable(&addresses(), LIMIT, connect).await;
        assert_eq!(reached.expect("the second answers"), addresses()[1]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_names_all_addresses() {
        let refused = || Err::<(), _>(io::ErrorKind::ConnectionRefused.into());
        let half = async |address: SocketAddr| if address.is_ipv6() { pending().await } else { refused() };
        let error = first_reachable(&addresses(), LIMIT, half).await;
        let Err(TcpError::Failed(error)) = error else { panic!("{error:?}") };
        assert_eq!(
            error.to_string(),
            "[2001:db8::1]:7700: no answer in time; 192.0.2.1:7700: connection refused"
        );
        let only = first_reachable(&addresses()[1..], LIMIT, half).await;
        assert!(matches!(only, Err(TcpError::Failed(it)) if it.to_string() == "connection refused"));
        let silent = first_reachable(&addresses(), LIMIT, async |_| pending::<io::Result<()>>().await).await;
        assert!(matches!(silent, Err(TcpError::Silent)));
        assert!(matches!(first_reachable(&[], LIMIT, half).await, Err(TcpError::Failed(_))));
    }
}
