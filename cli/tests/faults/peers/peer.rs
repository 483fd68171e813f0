//! A worker made by hand, so that it can be as bad as it has to be.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use protocol::report::{Availability, Hello, Inventory};
use protocol::wire::{decode_order, encode_report};
use protocol::{Incarnation, Order, Report, RuntimeKind, SUBPROTOCOL, Token, VERSIONS};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::{WebSocketStream, client_async};

pub(super) struct Peer {
    socket: WebSocketStream<TcpStream>,
}

impl Peer {
    /// Opens a socket, and says nothing.
    pub(super) async fn knock(port: u16) -> Self {
        let address = format!("ws://127.0.0.1:{port}/api/workers/connect");
        let request = ClientRequestBuilder::new(address.parse().unwrap()).with_sub_protocol(SUBPROTOCOL);
        let tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (socket, _) = client_async(request, tcp).await.unwrap();
        Self { socket }
    }

    /// Goes through the whole greeting: a worker with much room for fake jobs, and nothing running.
    pub(super) async fn join(port: u16, name: &str, secret: u8) -> Self {
        let mut peer = Self::knock(port).await;
        // A ping may come at any time, in front of Hello too.
        peer.send(Message::Ping(Vec::new().into())).await;
        peer.say(&Report::Hello(hello(name, secret))).await;
        peer.order(|order| matches!(order, Order::Welcome(_))).await;
        let runtimes = vec![(RuntimeKind::Fake, Availability::Available)];
        let nothing = Inventory { runtimes, attempts: Vec::new(), foreign: Vec::new(), last: true };
        peer.say(&Report::Inventory(nothing)).await;
        peer.order(|order| matches!(order, Order::Reconciled(_))).await;
        peer
    }

    pub(super) async fn say(&mut self, report: &Report) {
        self.send(Message::Binary(encode_report(report).unwrap().into())).await;
    }

    /// As [`Self::say`], where the socket may be gone already.
    pub(super) async fn try_say(&mut self, report: &Report) {
        let _ = self.socket.send(Message::Binary(encode_report(report).unwrap().into())).await;
    }

    pub(super) async fn send(&mut self, message: Message) {
        timeout(PATIENCE, self.socket.send(message)).await.unwrap().unwrap();
    }

    /// Waits for an order, passing over others.
    pub(super) async fn order(&mut self, fits: impl Fn(&Order) -> bool) -> Order {
        let search = async {
            loop {
                if let Message::Binary(frame) = self.socket.next().await.unwrap().unwrap()
                    && let Some(order) = decode_order(&frame).unwrap().filter(&fits)
                {
                    return order;
                }
            }
        };
        timeout(PATIENCE, search).await.unwrap()
    }

    /// Waits for an attempt.
    pub(super) async fn enqueued(&mut self) -> Token {
        let order = self.order(|order| matches!(order, Order::Enqueue(_))).await;
        let Order::Enqueue(assignments) = order else { unreachable!("it was just asked for") };
        assignments[0].token
    }

    /// Waits until the server closes; with which code.
    pub(super) async fn closed(&mut self) -> Option<u16> {
        let search = async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code.into()),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return None,
                }
            }
        };
        timeout(PATIENCE, search).await.unwrap()
    }
}

pub(super) fn hello(name: &str, secret: u8) -> Hello {
    Hello {
        versions: VERSIONS,
        name: name.to_owned(),
        secret: [secret; 32],
        cluster: None,
        rejoin: false,
        incarnation: Incarnation(1),
        engine: None,
        version: "0".to_owned(),
        slots: 1_000,
        backlog: 1_000,
        labels: Vec::new(),
        runtimes: vec![(RuntimeKind::Fake, Availability::Available)],
    }
}

/// Longer than anything that the server waits for.
const PATIENCE: Duration = Duration::from_secs(30);
