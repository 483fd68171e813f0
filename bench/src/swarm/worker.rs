//! One simulated worker: its connections, one after the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use protocol::order::{Intervals, ReconcileVerdict};
use protocol::report::{
    Availability, Heartbeat, Hello, Inventory, Numbered, OutputLengths, Phase, Started, Succeeded, Timing,
};
use protocol::wire::{decode_order, pack_report};
use protocol::{ClusterId, Incarnation, Order, Report, ReportNo, RuntimeKind, SUBPROTOCOL, Token, VERSIONS};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::swarm::shared::{AttemptHandling, Shared, lock};

type Socket = WebSocketStream<TcpStream>;

/// State that outlives a connection.
struct SimulatedWorker {
    number: u64,
    shared: Arc<Shared>,
    cluster: Option<ClusterId>,
    held: BTreeSet<Token>,
    reports: u64,
    intervals: Intervals,
    random: u64,
}

/// Connects again and again, for ever.
pub(super) async fn run_forever(number: u64, shared: Arc<Shared>) {
    let mut worker = SimulatedWorker::new(number, shared);
    let mut failures = 0_u32;
    loop {
        let mut was_ready = false;
        let end = worker.session(&mut was_ready).await;
        if was_ready {
            worker.shared.ready.fetch_sub(1, Ordering::Relaxed);
            failures = 0;
        }
        let delay = match end {
            Ok(reconnect_after) => reconnect_after,
            Err(error) => {
                worker.keep_error(format!("{error:#}"));
                let ceiling = BACKOFF_MIN.saturating_mul(1 << failures.min(16)).min(BACKOFF_MAX);
                failures += 1;
                worker.jittered(ceiling, 0)
            }
        };
        tokio::time::sleep(delay).await;
    }
}

impl SimulatedWorker {
    fn new(number: u64, shared: Arc<Shared>) -> Self {
        Self {
            number,
            shared,
            cluster: None,
            held: BTreeSet::new(),
            reports: 0,
            intervals: Intervals::default(),
            random: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// One connection; the delay that the server asks for before the next one.
    async fn session(&mut self, was_ready: &mut bool) -> anyhow::Result<Duration> {
        let mut socket = self.dial().await?;
        self.send(&mut socket, Report::Hello(self.hello())).await?;
        let mut heartbeat_at = Instant::now() + self.jittered(self.intervals.heartbeat, 0);
        let mut ping_at = Instant::now() + self.jittered(self.intervals.ping(), 0);
        let mut beats = 0;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(heartbeat_at) => {
                    beats += 1;
                    let busy = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
                    let beat = Heartbeat { number: beats, busy, ..Heartbeat::default() };
                    if *was_ready {
                        self.send(&mut socket, Report::Heartbeat(beat)).await?;
                    }
                    // Between 80 and 120 % of it, as a real worker does.
                    heartbeat_at += self.jittered(self.intervals.heartbeat * 6 / 5, 66);
                }
                () = tokio::time::sleep_until(ping_at) => {
                    socket.send(Message::Ping(Default::default())).await?;
                    ping_at += self.intervals.ping();
                }
                message = socket.next() => {
                    let frame = match message.context("the connection was closed")?? {
                        Message::Binary(frame) => frame,
                        Message::Close(frame) => bail!("the server closed the connection: {frame:?}"),
                        _ => continue,
                    };
                    let Some(order) = decode_order(&frame)? else { continue };
                    match &order {
                        Order::GoAway(away) => return Ok(self.lengthened(away.reconnect_after, 1)),
                        Order::Refused(refused) => {
                            self.keep_error(format!("refused ({}): {}", refused.code, refused.text));
                            return Ok(self.lengthened(refused.retry_after.max(BACKOFF_MIN), 5));
                        }
                        _ => {}
                    }
                    self.handle_order(&mut socket, order, was_ready).await?;
                }
            }
        }
    }

    async fn handle_order(
        &mut self,
        socket: &mut Socket,
        order: Order,
        was_ready: &mut bool,
    ) -> anyhow::Result<()> {
        match order {
            Order::Welcome(welcome) => {
                (self.cluster, self.intervals) = (Some(welcome.cluster), welcome.intervals);
                let attempts = self.held.iter().map(|token| (*token, Phase::Running)).collect();
                let inventory = Inventory { runtimes: runtimes(), attempts, foreign: Vec::new(), last: true };
                self.send(socket, Report::Inventory(inventory)).await?;
            }
            Order::Reconciled(part) => {
                for (token, verdict) in part.attempts {
                    if verdict != ReconcileVerdict::Keep {
                        self.held.remove(&token);
                    }
                }
                if part.last && !std::mem::replace(was_ready, true) {
                    self.shared.ready.fetch_add(1, Ordering::Relaxed);
                }
            }
            Order::Enqueue(attempts) => {
                self.shared.arrived(attempts.iter().map(|attempt| attempt.token.job.0));
                let tokens: Vec<Token> = attempts.into_iter().map(|attempt| attempt.token).collect();
                let first = ReportNo(self.reports + 1);
                self.reports += tokens.len() as u64;
                let report = match self.shared.settings.attempts {
                    AttemptHandling::HoldForever => {
                        self.held.extend(&tokens);
                        let list = tokens.into_iter().map(started).collect();
                        Report::Running(Numbered { first, list })
                    }
                    AttemptHandling::Finish => {
                        Report::Success(Numbered { first, list: tokens.into_iter().map(succeeded).collect() })
                    }
                };
                self.send(socket, report).await?;
            }
            Order::Configure(settings) => {
                self.intervals = settings.intervals.unwrap_or(self.intervals);
            }
            // Nothing is recalled from a worker without a backlog, and nothing is cancelled here.
            _ => {}
        }
        Ok(())
    }

    async fn dial(&self) -> anyhow::Result<Socket> {
        let tcp = TcpStream::connect(self.shared.server).await.context("cannot connect")?;
        tcp.set_nodelay(true)?;
        let address = format!("ws://{}/api/workers/connect", self.shared.server).parse()?;
        let request = ClientRequestBuilder::new(address).with_sub_protocol(SUBPROTOCOL);
        let config =
            WebSocketConfig::default().read_buffer_size(BUFFER_BYTES).write_buffer_size(BUFFER_BYTES);
        Ok(client_async_with_config(request, tcp, Some(config)).await.context("no upgrade")?.0)
    }

    fn hello(&self) -> Hello {
        let mut secret = [7; 32];
        secret[..8].copy_from_slice(&self.number.to_le_bytes());
        Hello {
            versions: VERSIONS,
            name: format!("swarm-{}", self.number),
            secret,
            cluster: self.cluster,
            rejoin: false,
            incarnation: Incarnation(1),
            process: self.number,
            engine: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            slots: self.shared.settings.slots,
            backlog: 0,
            labels: Vec::new(),
            resources: Default::default(),
            runtimes: runtimes(),
        }
    }

    async fn send(&self, socket: &mut Socket, report: Report) -> anyhow::Result<()> {
        let mut frames = Vec::new();
        pack_report(&report, &mut frames)?;
        for frame in frames {
            socket.feed(Message::Binary(frame.into())).await?;
        }
        Ok(socket.flush().await?)
    }

    fn keep_error(&self, error: String) {
        *lock(&self.shared.last_error) = Some(error);
    }

    /// A delay that the server asks for, and up to one `part`th of it more.
    fn lengthened(&mut self, asked: Duration, part: u32) -> Duration {
        asked + self.jittered(asked / part, 0)
    }

    /// A random duration between `percent_min` percent of the longest one and the longest one.
    fn jittered(&mut self, longest: Duration, percent_min: u32) -> Duration {
        // xorshift64: good enough to spread workers.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let least = longest * percent_min / 100;
        let spread = (longest - least).as_micros().max(1) as u64;
        least + Duration::from_micros(self.random % spread)
    }
}

fn runtimes() -> Vec<(RuntimeKind, Availability)> {
    vec![(RuntimeKind::Fake, Availability::Available)]
}

fn started(token: Token) -> Started {
    Started { token, container: String::new(), ago: Duration::ZERO }
}

fn succeeded(token: Token) -> Succeeded {
    let (timing, output) = (Timing::default(), OutputLengths::default());
    Succeeded { token, timing, output, result: None, note: None, usage: Default::default() }
}

/// As in the worker program.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(15);
/// Small: there are ten thousand of them.
const BUFFER_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::swarm::shared::SwarmSettings;

    #[test]
    fn a_delay_that_the_server_asks_for_is_kept_to() {
        let settings = SwarmSettings { workers: 1, slots: 1, attempts: AttemptHandling::Finish };
        let shared = Shared {
            server: ([127, 0, 0, 1], 1).into(),
            settings,
            ready: AtomicU64::new(0),
            arrivals: Mutex::default(),
            last_error: Mutex::default(),
        };
        let mut worker = SimulatedWorker::new(1, Arc::new(shared));
        let asked = Duration::from_secs(10);
        for _ in 0..1_000 {
            assert!((asked..=asked * 2).contains(&worker.lengthened(asked, 1)));
            assert!((asked..=asked * 6 / 5).contains(&worker.lengthened(asked, 5)));
        }
        assert_eq!(worker.lengthened(Duration::ZERO, 1), Duration::ZERO);
    }
}
