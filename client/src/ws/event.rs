//! Events of a connection.

use protocol::Order;

/// Events of a connection: Connected at most once, then Orders, then Lost.
pub(crate) enum ConnectionEvent {
    /// The socket is open.
    Connected,
    /// The server sent an order.
    Ordered(Order),
    /// The socket is gone, or could not be opened.
    Lost {
        /// Why, for the log.
        why: String,
        /// The server closed it because it cannot take a message of ours.
        message_refused: bool,
    },
}
