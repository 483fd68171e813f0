//! The wire as a second codec sees it: the bodies written down once more, for wincode. If this stops to agree with the golden
//! frames, either a body has changed or one of the two codecs has; both break workers that are already out there.

use std::fmt::Debug;
use std::time::Duration;

use longshore_protocol::wire::Unsent;
use longshore_protocol::{Order, Report, container, order};
use serde::{Serialize, Serializer};
use serde_json::Value;
use wincode::config::{Configuration, DEFAULT_PREALLOCATION_SIZE_LIMIT};
use wincode::int_encoding::{LittleEndian, VarInt};
use wincode::len::BincodeLen;
use wincode::{SchemaRead, SchemaWrite};

use crate::samples;

macro_rules! mirrors {
    ($($kind:ident $name:ident $body:tt)*) => {$(
        #[derive(Debug, SchemaRead, SchemaWrite, Serialize)]
        $kind $name $body
    )*};
}

macro_rules! numbers {
    ($($name:ident($inner:ty);)*) => {$(
        #[derive(Debug, SchemaRead, SchemaWrite, Serialize)]
        struct $name($inner);
    )*};
}

numbers! {
    JobId(u64);
    Fence(u64);
    Nonce(u64);
    WorkerId(u64);
    SessionId(u64);
    Epoch(u64);
    Incarnation(u64);
    ReportNo(u64);
    ClusterId(u32);
}

#[derive(Debug, SchemaRead, SchemaWrite)]
struct Revision(u128);

impl Serialize for Revision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", self.0))
    }
}

#[derive(SchemaRead, SchemaWrite, Serialize)]
struct SecretValue(Vec<u8>);

/// As the protocol prints it.
impl Debug for SecretValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

mirrors! {
    struct Token { job: JobId, fence: Fence, nonce: Nonce }

    enum RuntimeKind { Docker, Process, Fake }
    enum PullPolicy { Always, Missing, Never }
    enum ReconcileVerdict { Keep, Stop, Forget }
    enum StopCause { Cancel, Timeout, Superseded, Pinning, Drain, SelfFence }
    enum Stream { Stdout, Stderr }
    enum ReleaseCause { Recalled, Full, Draining, RuntimeUnavailable, Policy, Secrets }
    enum Availability { Available, Unavailable(String) }
    enum ChunkData { Bytes(Vec<u8>), Replayed(Vec<u8>), Gap(u64) }
    enum Phase { Backlog, Pulling { percent: Option<u8>, failures: u32 }, Starting, Running, Stopping, Ended, Unknown }
    enum Outcome {
        Succeeded, Failed, OomKilled, TimedOut, Cancelled, PullFailed, StartFailed, HostFailed, DaemonLost, Lost,
        Interrupted, Released,
    }

    struct VersionRange { lowest: u16, highest: u16 }
    struct Intervals { heartbeat: Duration, lease: Duration, start_gate: Duration }
    struct Volume { source: String, target: String, read_only: bool }
    struct Resources { cpus_milli: Option<u32>, memory_bytes: Option<u64>, pids: Option<u32>, gpus: u32, custom: Vec<(String, u32)> }
    struct OfferedResources { cpus_milli: Option<u32>, memory_bytes: Option<u64>, gpus: Vec<String>, custom: Vec<(String, u32)> }
    struct Overrides { environment: Vec<(String, String)>, args: Vec<String>, input: Option<String> }
    struct ContainerSpec {
        runtime: RuntimeKind, image: String, entrypoint: Option<Vec<String>>, command: Vec<String>,
        environment: Vec<(String, String)>, working_dir: Option<String>, user: Option<String>, volumes: Vec<Volume>,
        network: Option<String>, tmpfs: Vec<String>, shm_bytes: Option<u64>, read_only: bool, cap_add: Vec<String>,
        cap_drop: Vec<String>,
        init: bool, platform: Option<String>, labels: Vec<(String, String)>, pull_policy: PullPolicy,
        pull_timeout: Duration, resources: Resources, stop_signal: Option<String>, stop_grace: Duration,
        ask_before_start: bool, self_fence: Option<Duration>, log_bytes_max: u64, log_mask: Vec<String>,
        input: Option<String>,
    }

    struct Welcome {
        version: u16, session: SessionId, epoch: Epoch, cluster: ClusterId, worker: WorkerId, intervals: Intervals,
        last_report: ReportNo,
    }
    struct Definition { revision: Revision, name: String, container: ContainerSpec }
    struct Ulimit { name: String, soft: i64, hard: i64 }
    struct ContainerOptions {
        hostname: Option<String>, extra_hosts: Vec<(String, String)>, dns: Vec<String>, dns_search: Vec<String>,
        ulimits: Vec<Ulimit>, group_add: Vec<String>,
    }
    struct ExtendedDefinition { definition: Definition, options: ContainerOptions }
    struct SecretValues {
        variables: Vec<(String, SecretValue)>, files: Vec<(String, SecretValue)>, masked: Vec<SecretValue>,
        registry: Option<RegistryLogin>,
    }
    struct RegistryLogin { host: String, username: String, password: SecretValue }
    enum AttemptSecrets { Given(SecretValues), Withheld(String) }
    struct Assignment {
        token: Token, priority: i8, waited: Duration, revision: Revision, overrides: Option<Overrides>,
        time_left: Option<Duration>, memory_bytes: Option<u64>, secrets: Option<AttemptSecrets>,
        gpus: Vec<String>,
    }
    struct Reconciled { attempts: Vec<(Token, ReconcileVerdict)>, last: bool }
    struct Cancel { token: Token, grace: Option<Duration>, cause: StopCause }
    struct Configure { slots: Option<u32>, drain: bool, intervals: Option<Intervals> }
    struct OutputMark { token: Token, stream: Stream, offset: u64 }
    struct Refused { code: String, text: String, retry_after: Duration }
    struct GoAway { reconnect_after: Duration, elsewhere: Option<String> }

    struct Hello {
        format: u16, versions: VersionRange, name: String, secret: [u8; 32], cluster: Option<ClusterId>, rejoin: bool,
        incarnation: Incarnation, process: u64, engine: Option<String>, version: String, slots: u32, backlog: u32,
        labels: Vec<(String, String)>, runtimes: Vec<(RuntimeKind, Availability)>, resources: OfferedResources,
    }
    struct Timing { ended_ago: Duration, ran: Option<Duration> }
    struct OutputLengths { stdout: u64, stderr: u64 }
    struct Started { token: Token, container: String, ago: Duration }
    struct Usage {
        cpu_ms: Option<u64>, memory_peak_bytes: Option<u64>, network_received_bytes: Option<u64>,
        network_sent_bytes: Option<u64>, disk_read_bytes: Option<u64>, disk_written_bytes: Option<u64>,
    }
    struct UsageSample { token: Token, usage: Usage, memory_bytes: Option<u64> }
    struct Succeeded {
        token: Token, timing: Timing, output: OutputLengths, result: Option<String>, note: Option<String>, usage: Usage,
    }
    struct Failed {
        token: Token, outcome: Outcome, exit_code: Option<i32>, message: String, timing: Timing,
        output: OutputLengths, usage: Usage,
    }
    struct Released { token: Token, cause: ReleaseCause, why: String }
    struct Foreign { worker: WorkerId, token: Token }
    struct Inventory {
        runtimes: Vec<(RuntimeKind, Availability)>, attempts: Vec<(Token, Phase)>, foreign: Vec<Foreign>, last: bool,
    }
    struct Heartbeat { number: u64, busy: u32, queued: u32, load_milli: Option<u32>, disk_free_bytes: Option<u64> }
    struct Chunk { token: Token, stream: Stream, offset: u64, data: ChunkData }
    struct Condition { runtimes: Vec<(RuntimeKind, Availability)>, slots: u32, draining: bool }
}

/// A list of reports with consecutive numbers, for an entry type at a time: the codec's derive is not generic.
macro_rules! numbered {
    ($($name:ident: $entry:ty;)*) => {$(
        #[derive(SchemaRead, SchemaWrite, Serialize)]
        struct $name { first: ReportNo, list: Vec<$entry> }

        impl Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct("Numbered").field("first", &self.first).field("list", &self.list).finish()
            }
        }
    )*};
}

numbered! {
    NumberedStarted: Started;
    NumberedSucceeded: Succeeded;
    NumberedFailed: Failed;
    NumberedReleased: Released;
    NumberedStarting: Token;
}

#[test]
fn a_second_codec_reads_every_order_alike() {
    for sample in samples::orders() {
        order_fields(&sample.message);
    }
}

#[test]
fn a_second_codec_reads_every_report_alike() {
    for sample in samples::reports() {
        report_fields(&sample.message);
    }
}

/// The fields of an order, as the second codec reads them from its frame.
pub(crate) fn order_fields(order: &Order) -> Value {
    let frame = longshore_protocol::wire::encode_order(order).unwrap();
    let body = &frame[1..];
    match order {
        Order::Welcome(it) => same::<Welcome>(body, it),
        Order::Definitions(it) => same_text::<Vec<Definition>>(body, &without_options(it)),
        Order::Enqueue(it) => same::<Vec<Assignment>>(body, it),
        Order::Reconciled(it) => same::<Reconciled>(body, it),
        Order::Cancel(it) => same::<Cancel>(body, it),
        Order::Recall(it) => same::<Vec<Token>>(body, it),
        Order::Acknowledge(it) => same::<ReportNo>(body, it),
        Order::Pulse(it) => same::<u64>(body, it),
        Order::Configure(it) => same::<Configure>(body, it),
        Order::OutputAcknowledge(it) => same::<Vec<OutputMark>>(body, it),
        Order::Refused(it) => same::<Refused>(body, it),
        Order::GoAway(it) => same::<GoAway>(body, it),
        Order::ExtendedDefinitions(it) => same_extended(body, it),
    }
}

/// The fields of a report, as the second codec reads them from its frame.
pub(crate) fn report_fields(report: &Report) -> Value {
    let frame = longshore_protocol::wire::encode_report(report).unwrap();
    let body = &frame[1..];
    match report {
        Report::Hello(it) => same_hello(body, it),
        Report::Running(it) => same::<NumberedStarted>(body, it),
        Report::Success(it) => same::<NumberedSucceeded>(body, it),
        Report::Failure(it) => same::<NumberedFailed>(body, it),
        Report::Inventory(it) => same::<Inventory>(body, it),
        Report::Released(it) => same::<NumberedReleased>(body, it),
        Report::Heartbeat(it) => same::<Heartbeat>(body, it),
        Report::Output(it) => same::<Vec<Chunk>>(body, it),
        Report::Progress(it) | Report::Status(it) => same::<Vec<(Token, Phase)>>(body, it),
        Report::Condition(it) => same::<Condition>(body, it),
        Report::Wanted(it) => same::<Vec<Revision>>(body, it),
        Report::Starting(it) => same::<NumberedStarting>(body, it),
        Report::Foreign(it) => same::<Vec<Foreign>>(body, it),
        Report::Usage(it) => same::<Vec<UsageSample>>(body, it),
    }
}

/// Reads `body` as `M`, whose names are those of `ours`, and writes it again.
fn same<M>(body: &[u8], ours: &impl Debug) -> Value
where
    M: Debug + Serialize + for<'de> SchemaRead<'de, Wincode, Dst = M> + SchemaWrite<Wincode, Src = M>,
{
    same_text::<M>(body, &format!("{ours:?}"))
}

/// As [`same`], if `ours` is shown like this.
fn same_text<M>(body: &[u8], ours: &str) -> Value
where
    M: Debug + Serialize + for<'de> SchemaRead<'de, Wincode, Dst = M> + SchemaWrite<Wincode, Src = M>,
{
    let theirs: M = wincode::config::deserialize_exact(body, WINCODE).unwrap();
    assert_eq!(format!("{theirs:?}"), ours);
    assert_eq!(wincode::config::serialize(&theirs, WINCODE).unwrap(), body);
    serde_json::to_value(&theirs).unwrap()
}

/// Definitions as their own body has them: without the options of their containers.
fn without_options(ours: &[order::Definition]) -> String {
    let none = format!(", options: {:?}", Unsent::<container::ContainerOptions>::default());
    let mut bare = ours.to_vec();
    bare.iter_mut().for_each(|it| it.container.options = Unsent::default());
    format!("{bare:?}").replace(&none, "")
}

/// Each definition is followed by its options.
fn same_extended(body: &[u8], ours: &[order::Definition]) -> Value {
    let theirs: Vec<ExtendedDefinition> = wincode::config::deserialize_exact(body, WINCODE).unwrap();
    let definitions: Vec<&Definition> = theirs.iter().map(|it| &it.definition).collect();
    assert_eq!(format!("{definitions:?}"), without_options(ours));
    for (theirs, ours) in theirs.iter().zip(ours) {
        assert_eq!(format!("{:?}", theirs.options), format!("{:?}", *ours.container.options));
    }
    assert_eq!(wincode::config::serialize(&theirs, WINCODE).unwrap(), body);
    serde_json::to_value(&theirs).unwrap()
}

/// A Hello does not show its secret, so its fields are compared.
fn same_hello(body: &[u8], ours: &longshore_protocol::report::Hello) -> Value {
    let theirs: Hello = wincode::config::deserialize_exact(body, WINCODE).unwrap();
    macro_rules! compare {
        ($($field:ident),*) => {$(
            assert_eq!(format!("{:?}", theirs.$field), format!("{:?}", ours.$field));
        )*};
    }
    compare!(
        versions,
        name,
        secret,
        cluster,
        rejoin,
        incarnation,
        process,
        engine,
        version,
        slots,
        backlog,
        labels,
        runtimes
    );
    assert_eq!(wincode::config::serialize(&theirs, WINCODE).unwrap(), body);
    serde_json::to_value(&theirs).unwrap()
}

type Wincode = Configuration<true, DEFAULT_PREALLOCATION_SIZE_LIMIT, BincodeLen, LittleEndian, VarInt>;

const WINCODE: Wincode = Configuration::default().with_varint_encoding();
