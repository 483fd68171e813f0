//! A worker written by hand, which can send anything.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use protocol::order::ReconcileVerdict;
use protocol::report::{Availability, Chunk, ChunkData, Hello, Inventory, Phase, Stream};
use protocol::wire::{decode_order, encode_report};
use protocol::{Incarnation, Order, Report, RuntimeKind, SUBPROTOCOL, Token, VERSIONS};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::{WebSocketStream, client_async};

pub(crate) struct Peer {
    socket: WebSocketStream<TcpStream>,
}

impl Peer {
    /// Opens a WebSocket and sends nothing.
    pub(crate) async fn knock(port: u16) -> Self {
        let address = format!("ws://127.0.0.1:{port}/api/workers/connect");
        let request = ClientRequestBuilder::new(address.parse().unwrap()).with_sub_protocol(SUBPROTOCOL);
        let tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (socket, _) = client_async(request, tcp).await.unwrap();
        Self { socket }
    }

    /// Joins as a worker with many slots for fake jobs and no running attempts.
    pub(crate) async fn join(port: u16, name: &str, secret: u8) -> Self {
        Self::join_with(port, name, secret, Vec::new()).await.0
    }

    /// As [`Self::join`], with these running attempts; returns the server's verdict about each.
    pub(crate) async fn join_with(
        port: u16,
        name: &str,
        secret: u8,
        running: Vec<Token>,
    ) -> (Self, Vec<(Token, ReconcileVerdict)>) {
        let mut peer = Self::knock(port).await;
        // A ping may arrive at any time, even before Hello.
        peer.send(Message::Ping(Vec::new().into())).await;
        peer.say(&Report::Hello(hello(name, secret))).await;
        peer.order(|order| matches!(order, Order::Welcome(_))).await;
        let runtimes = vec![(RuntimeKind::Fake, Availability::Available)];
        let attempts = running.into_iter().map(|token| (token, Phase::Running)).collect();
        peer.say(&Report::Inventory(Inventory { runtimes, attempts, foreign: Vec::new(), last: true })).await;
        let order = peer.order(|order| matches!(order, Order::Reconciled(_))).await;
        let Order::Reconciled(reconciled) = order else { unreachable!("it was just asked for") };
        (peer, reconciled.attempts)
    }

    pub(crate) async fn say(&mut self, report: &Report) {
        self.send(Message::Binary(encode_report(report).unwrap().into())).await;
    }

    /// Sends the first output of an attempt, and waits for its acknowledgement.
    pub(crate) async fn write(&mut self, token: Token, text: &str) {
        self.write_at(token, 0, ChunkData::Bytes(text.into())).await;
    }

    /// Sends standard output that begins at this offset, and waits for its acknowledgement.
    pub(crate) async fn write_at(&mut self, token: Token, offset: u64, data: ChunkData) {
        let chunk = Chunk { token, stream: Stream::Stdout, offset, data };
        let end = chunk.end();
        self.say(&Report::Output(vec![chunk])).await;
        let is_end = |offset| offset == end;
        self.order(|order| {
            matches!(order, Order::OutputAcknowledge(marks) if marks.iter().any(|it| it.token == token && is_end(it.offset)))
        })
        .await;
    }

    /// Sends a message in this many frames: one byte each, the last one with the rest.
    pub(crate) async fn say_in_pieces(&mut self, report: &Report, pieces: usize) {
        let said = encode_report(report).unwrap();
        let mut bytes = said.chunks(1);
        for piece in 1..=pieces {
            let kind = if piece == 1 { Data::Binary } else { Data::Continue };
            let bytes = bytes.next().unwrap_or_default().to_vec();
            let frame = Frame::message(bytes, OpCode::Data(kind), piece == pieces);
            self.send(Message::Frame(frame)).await;
        }
        assert!(bytes.next().is_none(), "{pieces} pieces are too few");
    }

    /// As [`Self::say`]; the socket may be closed.
    pub(crate) async fn try_say(&mut self, report: &Report) {
        let _ = self.socket.send(Message::Binary(encode_report(report).unwrap().into())).await;
    }

    pub(crate) async fn send(&mut self, message: Message) {
        timeout(WAIT_TIMEOUT, self.socket.send(message)).await.unwrap().unwrap();
    }

    /// Waits for a matching order and ignores others.
    pub(crate) async fn order(&mut self, fits: impl Fn(&Order) -> bool) -> Order {
        let search = async {
            loop {
                if let Message::Binary(frame) = self.socket.next().await.unwrap().unwrap()
                    && let Some(order) = decode_order(&frame).unwrap().filter(&fits)
                {
                    return order;
                }
            }
        };
        timeout(WAIT_TIMEOUT, search).await.unwrap()
    }

    /// Waits for an assignment.
    pub(crate) async fn enqueued(&mut self) -> Token {
        let order = self.order(|order| matches!(order, Order::Enqueue(_))).await;
        let Order::Enqueue(assignments) = order else { unreachable!("it was just asked for") };
        assignments[0].token
    }

    /// Sends the same message many times; the socket may close meanwhile.
    pub(crate) async fn flood(&mut self, message: &Message, times: usize) {
        let flood = async {
            for _ in 0..times {
                self.socket.feed(message.clone()).await?;
            }
            self.socket.flush().await
        };
        let _ = timeout(WAIT_TIMEOUT, flood).await.unwrap();
    }

    /// Waits until the server closes the socket; returns the close code.
    pub(crate) async fn closed(&mut self) -> Option<u16> {
        self.goodbye().await.map(|(code, _)| code)
    }

    /// Waits until the server closes the socket; returns code and reason.
    pub(crate) async fn goodbye(&mut self) -> Option<(u16, String)> {
        let search = async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Close(frame))) => {
                        return frame.map(|frame| (frame.code.into(), frame.reason.to_string()));
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return None,
                }
            }
        };
        timeout(WAIT_TIMEOUT, search).await.unwrap()
    }
}

/// Sends a WebSocket request with additional headers; returns the response head in lower case.
pub(crate) async fn ask_for_socket(port: u16, headers: &[(&str, &str)]) -> String {
    ask_by("GET", port, headers).await
}

/// The same with another method.
pub(crate) async fn ask_by(method: &str, port: u16, headers: &[(&str, &str)]) -> String {
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!(
        "{method} /api/workers/connect HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n{more}\r\n"
    );
    tcp.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    let whole = async {
        while !head.ends_with(b"\r\n\r\n") {
            head.push(tcp.read_u8().await.unwrap());
        }
    };
    timeout(WAIT_TIMEOUT, whole).await.unwrap();
    String::from_utf8(head).unwrap().to_lowercase()
}

/// Asks for a socket with another subprotocol, or none: the head of the answer in lower case, and its body.
pub(crate) async fn ask_without_subprotocol(port: u16, offer: Option<&str>) -> (String, String) {
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let offer = offer.map(|offer| format!("Sec-WebSocket-Protocol: {offer}\r\n")).unwrap_or_default();
    let request = format!(
        "GET /api/workers/connect HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade, close\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{offer}\r\n"
    );
    tcp.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(WAIT_TIMEOUT, tcp.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

pub(crate) fn hello(name: &str, secret: u8) -> Hello {
    Hello {
        resources: Default::default(),
        versions: VERSIONS,
        name: name.to_owned(),
        secret: [secret; 32],
        cluster: None,
        rejoin: false,
        incarnation: Incarnation(1),
        process: 1,
        engine: None,
        version: "0".to_owned(),
        slots: 1_000,
        backlog: 1_000,
        labels: Vec::new(),
        runtimes: vec![(RuntimeKind::Fake, Availability::Available)],
    }
}

/// Longer than any timeout of the server.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
