//! An example of every report.

use std::time::Duration;

use longshore_protocol::report::{
    Availability, Chunk, ChunkData, Condition, Failed, Foreign, Heartbeat, Hello, Inventory, Outcome,
    OutputLengths, Phase, ReleaseCause, Released, Started, Stream, Succeeded, Timing, Usage, UsageSample,
};
use longshore_protocol::resources::OfferedResources;
use longshore_protocol::{Incarnation, Report, RuntimeKind, VERSIONS, WIRE_FORMAT, WorkerId};

use super::{
    CLUSTER, FOREIGN, OTHER, QUEUED, REVISION, RUNNING, Sample, TOKEN, list, numbered, pair, single,
};

/// Every report, by tag.
pub(crate) fn reports() -> Vec<Sample<Report>> {
    vec![
        hello(),
        running(),
        success(),
        failure(),
        inventory(),
        released(),
        heartbeat(),
        output(),
        list(
            Report::Progress,
            vec![(TOKEN, Phase::Pulling { percent: Some(42), failures: 1 })],
            |notes, it| notes.token(&it.0).field("phase", &it.1),
        ),
        list(Report::Status, vec![(OTHER, Phase::Starting)], |notes, it| {
            notes.token(&it.0).field("phase", &it.1)
        }),
        condition(),
        list(Report::Wanted, vec![REVISION], |notes, it| notes.id("revision", it)),
        numbered(Report::Starting, 4, vec![TOKEN, OTHER], |notes, it| notes.token(it)),
        list(Report::Foreign, vec![Foreign { worker: WorkerId(2), token: FOREIGN }], |notes, it| {
            notes.id("worker", &it.worker).token(&it.token)
        }),
        usage(),
    ]
}

fn released() -> Sample<Report> {
    let why = "not started, and not wanted any more".to_owned();
    let it = Released { token: QUEUED, cause: ReleaseCause::Recalled, why };
    numbered(Report::Released, 3, vec![it], |notes, it| {
        notes.token(&it.token).field("cause", &it.cause).field("why", &it.why)
    })
}

fn hello() -> Sample<Report> {
    let it = Hello {
        versions: VERSIONS,
        name: "dock-3".to_owned(),
        secret: std::array::from_fn(|index| index as u8),
        cluster: Some(CLUSTER),
        rejoin: false,
        incarnation: Incarnation(9),
        process: 0x5eed_0000_0000_0001,
        engine: Some("engine-1".to_owned()),
        version: "0.1.0".to_owned(),
        slots: 4,
        backlog: 4,
        labels: vec![pair("zone", "north")],
        runtimes: vec![
            (RuntimeKind::Docker, Availability::Available),
            (RuntimeKind::Process, Availability::Unavailable("not allowed".to_owned())),
        ],
        resources: OfferedResources {
            cpus_milli: Some(4_000),
            memory_bytes: Some(8 << 30),
            gpus: vec!["0".to_owned()],
            custom: vec![("license".to_owned(), 2)],
        },
    };
    single(Report::Hello(it.clone()), |notes| {
        let notes = notes
            .field("format", &WIRE_FORMAT)
            .field("versions.lowest", &it.versions.lowest)
            .field("versions.highest", &it.versions.highest)
            .field("name", &it.name)
            .field("secret", &it.secret);
        let notes = fields!(
            notes,
            it,
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
        fields!(notes, it.resources, cpus_milli, memory_bytes, gpus, custom)
    })
}

fn running() -> Sample<Report> {
    let it = Started { token: TOKEN, container: "4f5c9e".to_owned(), ago: Duration::from_millis(80) };
    let other = Started { token: OTHER, container: "07d1aa".to_owned(), ago: Duration::from_millis(20) };
    numbered(Report::Running, 6, vec![it, other], |notes, it| {
        fields!(notes.token(&it.token), it, container, ago)
    })
}

fn success() -> Sample<Report> {
    let it = Succeeded {
        token: TOKEN,
        timing: Timing { ended_ago: Duration::from_micros(250), ran: Some(Duration::from_secs(2)) },
        output: OutputLengths { stdout: 6, stderr: 0 },
        result: Some("{\"ok\":true}".to_owned()),
        note: None,
        usage: USAGE,
    };
    numbered(Report::Success, 10, vec![it], |notes, it| {
        let notes = fields!(notes.token(&it.token), it.timing, ended_ago, ran);
        let notes = fields!(notes, it.output, stdout, stderr);
        figures(fields!(notes, it, result, note), &it.usage)
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
        usage: Usage { memory_peak_bytes: Some(256 << 20), ..Usage::default() },
    };
    let cancelled = Failed {
        token: RUNNING,
        outcome: Outcome::Cancelled,
        exit_code: Some(143),
        message: "stopped: cancel".to_owned(),
        timing: Timing { ended_ago: Duration::from_millis(5), ran: Some(Duration::from_secs(600)) },
        output: OutputLengths { stdout: 4_098, stderr: 0 },
        usage: Usage::default(),
    };
    numbered(Report::Failure, 8, vec![it, cancelled], |notes, it| {
        let notes = fields!(notes.token(&it.token), it, outcome, exit_code, message);
        let notes = fields!(notes, it.timing, ended_ago, ran);
        figures(fields!(notes, it.output, stdout, stderr), &it.usage)
    })
}

fn inventory() -> Sample<Report> {
    let it = Inventory {
        runtimes: vec![
            (RuntimeKind::Docker, Availability::Available),
            (RuntimeKind::Process, Availability::Unavailable("not allowed".to_owned())),
        ],
        attempts: vec![(RUNNING, Phase::Running), (QUEUED, Phase::Backlog)],
        foreign: vec![Foreign { worker: WorkerId(2), token: FOREIGN }],
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
    let (load_milli, disk_free_bytes) = (Some(730), Some(10 << 30));
    let it = Heartbeat { number: 1_000, busy: 3, queued: 0, load_milli, disk_free_bytes };
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
        Chunk { token: OTHER, stream: Stream::Stdout, offset: 0, data: ChunkData::Gap(70_000) },
        Chunk {
            token: RUNNING,
            stream: Stream::Stdout,
            offset: 4_096,
            data: ChunkData::Replayed(vec![0, 255]),
        },
    ];
    list(Report::Output, chunks, |notes, it| fields!(notes.token(&it.token), it, stream, offset, data))
}

fn condition() -> Sample<Report> {
    let it = Condition {
        runtimes: vec![
            (RuntimeKind::Docker, Availability::Available),
            (RuntimeKind::Process, Availability::Unavailable("not allowed".to_owned())),
        ],
        slots: 3,
        draining: false,
    };
    single(Report::Condition(it.clone()), |notes| fields!(notes, it, runtimes, slots, draining))
}

const USAGE: Usage = Usage {
    cpu_ms: Some(1_730),
    memory_peak_bytes: Some(48 << 20),
    network_received_bytes: Some(5_200),
    network_sent_bytes: Some(0),
    disk_read_bytes: None,
    disk_written_bytes: Some(4_096),
};

fn figures(notes: super::Notes, usage: &Usage) -> super::Notes {
    usage.figures().iter().fold(notes, |notes, (name, figure)| notes.field(&format!("usage.{name}"), figure))
}

fn usage() -> Sample<Report> {
    let it = UsageSample { token: RUNNING, usage: USAGE, memory_bytes: Some(32 << 20) };
    list(Report::Usage, vec![it], |notes, it| {
        figures(notes.token(&it.token), &it.usage).field("memory_bytes", &it.memory_bytes)
    })
}
