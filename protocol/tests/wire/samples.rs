//! One example of every message, with the meaning of each of its bytes. They tell one story: worker `dock-3` joins and runs job 12.

use std::fmt::{Debug, Display};
use std::time::Duration;

use bincode::Encode;
use longshore_protocol::container::{Body, PullPolicy, Resources, Volume};
use longshore_protocol::order::{
    Assignment, Cancel, Configure, Definition, GoAway, Intervals, OutputMark, Reconciled, Refused, StopCause,
    Verdict, Welcome,
};
use longshore_protocol::report::{
    Availability, Chunk, ChunkData, Condition, Failed, Foreign, Heartbeat, Hello, Inventory, Numbered,
    Outcome, OutputLengths, Phase, ReleaseCause, Started, Stream, Succeeded, Timing,
};
use longshore_protocol::{
    ClusterId, ContainerSpec, Epoch, Fence, Incarnation, JobId, Nonce, Order, Report, ReportNo, Revision,
    RuntimeKind, SessionId, Token, VERSIONS, WorkerId,
};

/// A message and what its bytes mean.
#[derive(Clone, Debug)]
pub(crate) struct Sample<M> {
    pub(crate) message: M,
    pub(crate) notes: Notes,
}

/// Bytes with their meaning, in the order in which they are sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(pub(crate) Vec<(Vec<u8>, String)>);

impl Notes {
    fn of(tag: u8, name: &str) -> Self {
        Self(vec![(vec![tag], format!("tag: {name}"))])
    }

    /// One field: its bytes, its name, its value.
    fn field<T: Encode + Debug>(mut self, name: &str, value: &T) -> Self {
        let bytes = bincode::encode_to_vec(value, bincode::config::standard()).unwrap();
        self.0.push((bytes, format!("{name} = {value:?}")));
        self
    }

    /// One field whose value is shown as people are shown it.
    fn id<T: Encode + Display>(mut self, name: &str, value: &T) -> Self {
        let bytes = bincode::encode_to_vec(value, bincode::config::standard()).unwrap();
        self.0.push((bytes, format!("{name} = {value}")));
        self
    }

    /// How many entries follow.
    fn count<T>(mut self, name: &str, list: &[T]) -> Self {
        let bytes = bincode::encode_to_vec(list.len() as u64, bincode::config::standard()).unwrap();
        self.0.push((bytes, format!("{name}: {} follow", list.len())));
        self
    }

    /// The presence byte of an optional group of fields.
    fn present(mut self, name: &str) -> Self {
        self.0.push((vec![1], format!("{name} is present")));
        self
    }

    fn token(self, token: &Token) -> Self {
        self.id("token.job", &token.job).id("token.fence", &token.fence).id("token.nonce", &token.nonce)
    }
}

/// Appends a line per field.
macro_rules! fields {
    ($notes:expr, $of:expr, $($field:ident),+) => {
        $notes$(.field(stringify!($field), &$of.$field))+
    };
}

const TOKEN: Token = Token { job: JobId(12), fence: Fence(300), nonce: Nonce(0x0123_4567_89ab_cdef) };
const OTHER: Token = Token { job: JobId(13), fence: Fence(301), nonce: Nonce(0xfedc_ba98_7654_3210) };
const REVISION: Revision = Revision(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
const CLUSTER: ClusterId = ClusterId(0x00c0_ffee);

/// Every order, by tag.
pub(crate) fn orders() -> Vec<Sample<Order>> {
    vec![
        welcome(),
        definitions(),
        enqueue(),
        reconciled(),
        cancel(),
        list(Order::Recall, vec![TOKEN], |notes, it| notes.token(it)),
        single(Order::Acknowledge(ReportNo(3)), |notes| notes.id("report", &ReportNo(3))),
        single(Order::Pulse(1_000), |notes| notes.field("number", &1_000_u64)),
        configure(),
        output_acknowledge(),
        refused(),
        go_away(),
    ]
}

/// Every report, by tag.
pub(crate) fn reports() -> Vec<Sample<Report>> {
    vec![
        hello(),
        running(),
        success(),
        failure(),
        inventory(),
        numbered(Report::Released, 5, (TOKEN, ReleaseCause::RuntimeUnavailable), |notes, it| {
            notes.token(&it.0).field("cause", &it.1)
        }),
        heartbeat(),
        output(),
        list(Report::Progress, vec![(TOKEN, Phase::Pulling { percent: Some(42) })], |notes, it| {
            notes.token(&it.0).field("phase", &it.1)
        }),
        list(Report::Status, vec![(TOKEN, Phase::Running)], |notes, it| {
            notes.token(&it.0).field("phase", &it.1)
        }),
        condition(),
        list(Report::Wanted, vec![REVISION], |notes, it| notes.id("revision", it)),
        numbered(Report::Starting, 6, TOKEN, |notes, it| notes.token(it)),
    ]
}

fn welcome() -> Sample<Order> {
    let it = Welcome {
        version: 1,
        session: SessionId(41),
        epoch: Epoch(7),
        cluster: CLUSTER,
        worker: WorkerId(3),
        intervals: Intervals::default(),
        last_report: ReportNo(0),
    };
    let Intervals { heartbeat, lease, start_gate } = it.intervals;
    single(Order::Welcome(it.clone()), |notes| {
        notes
            .field("version", &it.version)
            .id("session", &it.session)
            .id("epoch", &it.epoch)
            .id("cluster", &it.cluster)
            .id("worker", &it.worker)
            .field("intervals.heartbeat", &heartbeat)
            .field("intervals.lease", &lease)
            .field("intervals.start_gate", &start_gate)
            .id("last_report", &it.last_report)
    })
}

fn definitions() -> Sample<Order> {
    let container = ContainerSpec {
        runtime: RuntimeKind::Docker,
        image: "alpine:3.20".to_owned(),
        entrypoint: Some(vec!["/bin/sh".to_owned(), "-c".to_owned()]),
        command: vec!["echo hello".to_owned()],
        environment: vec![pair("GREETING", "hello")],
        working_dir: Some("/srv".to_owned()),
        user: Some("1000:1000".to_owned()),
        volumes: vec![Volume { source: "cache".to_owned(), target: "/cache".to_owned(), read_only: true }],
        network: Some("none".to_owned()),
        tmpfs: vec!["/tmp:size=64m".to_owned()],
        read_only: true,
        cap_add: vec!["NET_BIND_SERVICE".to_owned()],
        cap_drop: vec!["ALL".to_owned()],
        init: true,
        platform: Some("linux/amd64".to_owned()),
        labels: vec![pair("team", "press")],
        pull_policy: PullPolicy::Missing,
        pull_timeout: Duration::from_secs(600),
        resources: Resources { cpus_milli: Some(1_500), memory_bytes: Some(256 << 20), pids: Some(4_096) },
        stop_signal: Some("SIGINT".to_owned()),
        stop_grace: Duration::from_secs(10),
        ask_before_start: false,
        self_fence: Some(Duration::from_secs(55)),
        log_bytes_max: 64 << 20,
    };
    let it = Definition { revision: REVISION, name: "hello-world".to_owned(), container };
    list(Order::Definitions, vec![it], |notes, it| {
        let spec = &it.container;
        let notes = notes.id("revision", &it.revision).field("name", &it.name);
        let notes = fields!(
            notes,
            spec,
            runtime,
            image,
            entrypoint,
            command,
            environment,
            working_dir,
            user,
            volumes
        );
        let notes =
            fields!(notes, spec, network, tmpfs, read_only, cap_add, cap_drop, init, platform, labels);
        let notes = fields!(notes, spec, pull_policy, pull_timeout);
        let notes = fields!(notes, spec.resources, cpus_milli, memory_bytes, pids);
        fields!(notes, spec, stop_signal, stop_grace, ask_before_start, self_fence, log_bytes_max)
    })
}

fn enqueue() -> Sample<Order> {
    let body = Body {
        environment: vec![pair("GREETING", "hi")],
        args: vec!["--loud".to_owned()],
        input: Some("{\"n\":1}".to_owned()),
    };
    let it = Assignment {
        token: TOKEN,
        priority: -5,
        waited: Duration::from_millis(1_500),
        revision: REVISION,
        body: Some(body.clone()),
        time_left: Some(Duration::from_secs(3_600)),
    };
    let bare = Assignment {
        token: OTHER,
        priority: 0,
        waited: Duration::ZERO,
        body: None,
        time_left: None,
        ..it.clone()
    };
    list(Order::Enqueue, vec![it, bare], |notes, it| {
        let notes = fields!(notes.token(&it.token), it, priority, waited).id("revision", &it.revision);
        let notes = match &it.body {
            Some(body) => fields!(notes.present("body"), body, environment, args, input),
            None => notes.field("body", &it.body),
        };
        fields!(notes, it, time_left)
    })
}

fn reconciled() -> Sample<Order> {
    let it = Reconciled { attempts: vec![(TOKEN, Verdict::Keep), (OTHER, Verdict::Stop)], last: true };
    single(Order::Reconciled(it.clone()), |notes| {
        it.attempts
            .iter()
            .fold(notes.count("attempts", &it.attempts), |notes, (token, verdict)| {
                notes.token(token).field("verdict", verdict)
            })
            .field("last", &it.last)
    })
}

fn cancel() -> Sample<Order> {
    let it = Cancel { token: TOKEN, grace: Some(Duration::from_secs(3)), cause: StopCause::Timeout };
    single(Order::Cancel(it), |notes| fields!(notes.token(&it.token), it, grace, cause))
}

fn configure() -> Sample<Order> {
    let it = Configure { slots: Some(8), drain: true, intervals: Some(Intervals::default()) };
    let intervals = Intervals::default();
    single(Order::Configure(it.clone()), |notes| {
        fields!(notes, it, slots, drain)
            .present("intervals")
            .field("intervals.heartbeat", &intervals.heartbeat)
            .field("intervals.lease", &intervals.lease)
            .field("intervals.start_gate", &intervals.start_gate)
    })
}

fn output_acknowledge() -> Sample<Order> {
    let it = OutputMark { token: TOKEN, stream: Stream::Stdout, offset: 6 };
    list(Order::OutputAcknowledge, vec![it], |notes, it| fields!(notes.token(&it.token), it, stream, offset))
}

fn refused() -> Sample<Order> {
    let it = Refused {
        code: "name_taken".to_owned(),
        text: "another live worker is called dock-3".to_owned(),
        retry_after: Duration::from_secs(30),
    };
    single(Order::Refused(it.clone()), |notes| fields!(notes, it, code, text, retry_after))
}

fn go_away() -> Sample<Order> {
    let it = GoAway {
        reconnect_after: Duration::from_millis(200),
        elsewhere: Some("ws://dock.example:8080".to_owned()),
    };
    single(Order::GoAway(it.clone()), |notes| fields!(notes, it, reconnect_after, elsewhere))
}

fn hello() -> Sample<Report> {
    let it = Hello {
        versions: VERSIONS,
        name: "dock-3".to_owned(),
        secret: std::array::from_fn(|index| index as u8),
        cluster: Some(CLUSTER),
        rejoin: false,
        incarnation: Incarnation(9),
        engine: Some("engine-1".to_owned()),
        version: "0.1.0".to_owned(),
        slots: 4,
        backlog: 4,
        labels: vec![pair("zone", "north")],
        runtimes: vec![
            (RuntimeKind::Docker, Availability::Available),
            (RuntimeKind::Process, Availability::Unavailable("not allowed".to_owned())),
        ],
    };
    single(Report::Hello(it.clone()), |notes| {
        let notes = notes
            .field("versions.lowest", &it.versions.lowest)
            .field("versions.highest", &it.versions.highest)
            .field("name", &it.name)
            .field("secret", &it.secret);
        fields!(notes, it, cluster, rejoin, incarnation, engine, version, slots, backlog, labels, runtimes)
    })
}

fn running() -> Sample<Report> {
    let it = Started { token: TOKEN, container: "4f5c9e".to_owned(), ago: Duration::from_millis(80) };
    numbered(Report::Running, 1, it, |notes, it| fields!(notes.token(&it.token), it, container, ago))
}

fn success() -> Sample<Report> {
    let it = Succeeded {
        token: TOKEN,
        timing: Timing { ended_ago: Duration::from_micros(250), ran: Some(Duration::from_secs(2)) },
        output: OutputLengths { stdout: 6, stderr: 0 },
        result: Some("{\"ok\":true}".to_owned()),
        note: None,
    };
    numbered(Report::Success, 2, it, |notes, it| {
        let notes = fields!(notes.token(&it.token), it.timing, ended_ago, ran);
        let notes = fields!(notes, it.output, stdout, stderr);
        fields!(notes, it, result, note)
    })
}

fn failure() -> Sample<Report> {
    let it = Failed {
        token: OTHER,
        outcome: Outcome::OomKilled,
        exit_code: Some(137),
        message: "killed for its memory limit of 256 MiB".to_owned(),
        timing: Timing { ended_ago: Duration::ZERO, ran: Some(Duration::from_millis(61_500)) },
        output: OutputLengths { stdout: 70_000, stderr: 251 },
    };
    numbered(Report::Failure, 3, it, |notes, it| {
        let notes = fields!(notes.token(&it.token), it, outcome, exit_code, message);
        let notes = fields!(notes, it.timing, ended_ago, ran);
        fields!(notes, it.output, stdout, stderr)
    })
}

fn inventory() -> Sample<Report> {
    let it = Inventory {
        runtimes: vec![
            (RuntimeKind::Docker, Availability::Available),
            (RuntimeKind::Process, Availability::Unavailable("not allowed".to_owned())),
        ],
        attempts: vec![(TOKEN, Phase::Running), (OTHER, Phase::Pulling { percent: None })],
        foreign: vec![Foreign { worker: WorkerId(2), token: OTHER }],
        last: true,
    };
    single(Report::Inventory(it.clone()), |notes| {
        let notes = notes.field("runtimes", &it.runtimes).count("attempts", &it.attempts);
        let notes =
            it.attempts.iter().fold(notes, |notes, (token, phase)| notes.token(token).field("phase", phase));
        let notes = it.foreign.iter().fold(notes.count("foreign", &it.foreign), |notes, it| {
            notes.id("worker", &it.worker).token(&it.token)
        });
        notes.field("last", &it.last)
    })
}

fn heartbeat() -> Sample<Report> {
    let it = Heartbeat { number: 1_000, busy: 1, queued: 0, load_milli: 730, disk_free_bytes: 10 << 30 };
    single(Report::Heartbeat(it), |notes| {
        fields!(notes, it, number, busy, queued, load_milli, disk_free_bytes)
    })
}

fn output() -> Sample<Report> {
    let chunks = vec![
        Chunk {
            token: TOKEN,
            stream: Stream::Stdout,
            offset: 0,
            data: ChunkData::Bytes(b"hello\n".to_vec()),
        },
        Chunk { token: TOKEN, stream: Stream::Stderr, offset: 4_096, data: ChunkData::Gap(100_000) },
        Chunk { token: TOKEN, stream: Stream::Stdout, offset: 6, data: ChunkData::Replayed(vec![0, 255]) },
    ];
    list(Report::Output, chunks, |notes, it| fields!(notes.token(&it.token), it, stream, offset, data))
}

fn condition() -> Sample<Report> {
    let it = Condition {
        runtimes: vec![(
            RuntimeKind::Docker,
            Availability::Unavailable("the daemon does not answer".to_owned()),
        )],
        slots: 4,
        draining: false,
    };
    single(Report::Condition(it.clone()), |notes| fields!(notes, it, runtimes, slots, draining))
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// A message whose notes are told by `tell`.
fn single<M: Tagged>(message: M, tell: impl FnOnce(Notes) -> Notes) -> Sample<M> {
    let notes = tell(Notes::of(message.tag(), message.name()));
    Sample { message, notes }
}

/// A message that is a list.
fn list<M: Tagged, T: Clone>(
    make: impl FnOnce(Vec<T>) -> M,
    entries: Vec<T>,
    tell: impl Fn(Notes, &T) -> Notes,
) -> Sample<M> {
    single(make(entries.clone()), |notes| entries.iter().fold(notes.count("entries", &entries), tell))
}

/// A message that is a numbered list with one entry.
fn numbered<T: Clone>(
    make: impl FnOnce(Numbered<T>) -> Report,
    first: u64,
    entry: T,
    tell: impl Fn(Notes, &T) -> Notes,
) -> Sample<Report> {
    let first = ReportNo(first);
    let list = vec![entry.clone()];
    single(make(Numbered { first, list: list.clone() }), |notes| {
        tell(notes.id("first", &first).count("entries", &list), &entry)
    })
}

/// What orders and reports have in common.
pub(crate) trait Tagged {
    fn tag(&self) -> u8;
    fn name(&self) -> &'static str;
}

impl Tagged for Order {
    fn tag(&self) -> u8 {
        self.tag()
    }
    fn name(&self) -> &'static str {
        self.name()
    }
}

impl Tagged for Report {
    fn tag(&self) -> u8 {
        self.tag()
    }
    fn name(&self) -> &'static str {
        self.name()
    }
}
