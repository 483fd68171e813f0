//! Any message whose values are within their ranges.

mod definitions;
mod resources;
mod usage;

use std::time::Duration;

use longshore_protocol::container::{LOG_MASKS_MAX, MEMORY_BYTES_MAX, Overrides, PullPolicy, Volume};
use longshore_protocol::order::{
    Assignment, Cancel, Configure, GoAway, Intervals, OutputMark, ReconcileVerdict, Reconciled, Refused,
    StopCause, Welcome,
};
use longshore_protocol::registry::RegistryLogin;
use longshore_protocol::report::{
    Availability, Chunk, ChunkData, Condition, Failed, Foreign, Heartbeat, Hello, Inventory, Numbered,
    Outcome, OutputLengths, Phase, ReleaseCause, Released, Started, Stream, Succeeded, Timing,
};
use longshore_protocol::secret::{AttemptSecrets, SecretValue, SecretValues};
use longshore_protocol::version::VersionRange;
use longshore_protocol::{
    ClusterId, ContainerSpec, Epoch, Fence, Incarnation, JobId, Nonce, Order, Report, ReportNo, Revision,
    RuntimeKind, SessionId, Token, WorkerId, wire,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use definitions::{definition, extended_definition};
use resources::{offer, resources};
use usage::{sample, usage};

pub(crate) fn order() -> impl Strategy<Value = Order> {
    prop_oneof![
        welcome().prop_map(Order::Welcome),
        vec(definition(), 0..3).prop_map(Order::Definitions),
        vec(extended_definition(), 0..3).prop_map(Order::ExtendedDefinitions),
        vec(assignment(), 0..20).prop_map(Order::Enqueue),
        (vec((token(), verdict()), 0..20), any::<bool>())
            .prop_map(|(attempts, last)| Order::Reconciled(Reconciled { attempts, last })),
        (token(), of(duration()), stop_cause()).prop_map(|(token, grace, cause)| Order::Cancel(Cancel {
            token,
            grace,
            cause
        })),
        vec(token(), 0..20).prop_map(Order::Recall),
        any::<u64>().prop_map(|number| Order::Acknowledge(ReportNo(number))),
        any::<u64>().prop_map(Order::Pulse),
        (of(0..=wire::SLOTS_MAX), any::<bool>(), of(intervals()))
            .prop_map(|(slots, drain, intervals)| Order::Configure(Configure { slots, drain, intervals })),
        vec((token(), stream(), offset()), 0..20).prop_map(|list| {
            let mark = |(token, stream, offset)| OutputMark { token, stream, offset };
            Order::OutputAcknowledge(list.into_iter().map(mark).collect())
        }),
        (".{0,20}", ".{0,80}", duration()).prop_map(|(code, text, retry_after)| Order::Refused(Refused {
            code,
            text,
            retry_after
        })),
        (duration(), of("[a-z:/.0-9]{1,40}"))
            .prop_map(|(reconnect_after, elsewhere)| Order::GoAway(GoAway { reconnect_after, elsewhere })),
    ]
}

pub(crate) fn report() -> impl Strategy<Value = Report> {
    prop_oneof![
        hello().prop_map(Report::Hello),
        numbered(started()).prop_map(Report::Running),
        numbered(succeeded()).prop_map(Report::Success),
        numbered(failed()).prop_map(Report::Failure),
        inventory().prop_map(Report::Inventory),
        numbered(released()).prop_map(Report::Released),
        heartbeat().prop_map(Report::Heartbeat),
        vec(chunk(), 0..8).prop_map(Report::Output),
        vec((token(), phase()), 0..20).prop_map(Report::Progress),
        vec((token(), phase()), 0..20).prop_map(Report::Status),
        (runtimes(), 0..=wire::SLOTS_MAX, any::<bool>()).prop_map(|(runtimes, slots, draining)| {
            Report::Condition(Condition { runtimes, slots, draining })
        }),
        vec(any::<u128>().prop_map(Revision), 0..20).prop_map(Report::Wanted),
        numbered(token()).prop_map(Report::Starting),
        vec(foreign(), 0..20).prop_map(Report::Foreign),
        vec(sample(), 0..20).prop_map(Report::Usage),
    ]
}

fn welcome() -> impl Strategy<Value = Welcome> {
    let ids = (any::<u16>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>());
    (ids, intervals()).prop_map(|((version, session, epoch, cluster, worker, last_report), intervals)| {
        Welcome {
            version,
            session: SessionId(session),
            epoch: Epoch(epoch),
            cluster: ClusterId(cluster),
            worker: WorkerId(worker),
            intervals,
            last_report: ReportNo(last_report),
        }
    })
}

fn container() -> impl Strategy<Value = ContainerSpec> {
    let program =
        (runtime(), text(), of(vec(text(), 0..4)), vec(text(), 0..4), pairs(), of(text()), of(text()));
    let memory = (vec(text(), 0..3), of(1..=MEMORY_BYTES_MAX));
    let machine = (volumes(), of(text()), memory, any::<bool>(), vec(text(), 0..3), vec(text(), 0..3));
    let image = (any::<bool>(), of(text()), pairs(), pull_policy(), duration());
    let output_rules = (any::<u64>(), vec(text(), 0..=LOG_MASKS_MAX), of(text()));
    let ends = (resources(), of(text()), duration(), any::<bool>(), of(duration()), output_rules);
    (program, machine, image, ends).prop_map(|(program, machine, image, ends)| {
        let (runtime, reference, entrypoint, command, environment, working_dir, user) = program;
        let (volumes, network, (tmpfs, shm_bytes), read_only, cap_add, cap_drop) = machine;
        let (init, platform, labels, pull_policy, pull_timeout) = image;
        let (resources, stop_signal, stop_grace, ask_before_start, self_fence, rest) = ends;
        let (log_bytes_max, log_mask, input) = rest;
        ContainerSpec {
            runtime,
            image: reference,
            entrypoint,
            command,
            environment,
            working_dir,
            user,
            volumes,
            network,
            tmpfs,
            shm_bytes,
            read_only,
            cap_add,
            cap_drop,
            init,
            platform,
            labels,
            pull_policy,
            pull_timeout,
            resources,
            stop_signal,
            stop_grace,
            ask_before_start,
            self_fence,
            log_bytes_max,
            log_mask,
            input,
            options: Default::default(),
        }
    })
}

fn assignment() -> impl Strategy<Value = Assignment> {
    let overrides = (pairs(), vec(text(), 0..4), of(text()))
        .prop_map(|(environment, args, input)| Overrides { environment, args, input });
    let limits = (of(duration()), of(any::<u64>()), of(secrets()), vec(text(), 0..3));
    (token(), any::<i8>(), duration(), any::<u128>(), of(overrides), limits).prop_map(
        |(token, priority, waited, revision, overrides, (time_left, memory_bytes, secrets, gpus))| {
            Assignment {
                token,
                priority,
                waited,
                revision: Revision(revision),
                overrides,
                time_left,
                memory_bytes,
                secrets,
                gpus,
            }
        },
    )
}

fn secrets() -> impl Strategy<Value = AttemptSecrets> {
    let value = || vec(any::<u8>(), 0..20).prop_map(SecretValue);
    let files = vec(("[a-z_][a-z0-9_.-]{0,8}", value()), 0..3);
    let registry = ("[a-z0-9.-]{1,20}(:[0-9]{1,5})?", "[a-z$+]{1,9}", "[ -~]{1,20}").prop_map(
        |(host, username, password)| RegistryLogin {
            host,
            username,
            password: SecretValue(password.into_bytes()),
        },
    );
    let given = (vec((text(), value()), 0..3), files, vec(value(), 0..3), of(registry)).prop_map(
        |(variables, files, masked, registry)| {
            AttemptSecrets::Given(SecretValues { variables, files, masked, registry })
        },
    );
    prop_oneof![given, text().prop_map(AttemptSecrets::Withheld)]
}

fn hello() -> impl Strategy<Value = Hello> {
    let versions = (1..=u16::MAX).prop_flat_map(|lowest| (Just(lowest), lowest..=u16::MAX));
    let identity = ("[A-Za-z0-9][A-Za-z0-9._-]{0,62}", any::<[u8; 32]>(), of(any::<u32>()), any::<bool>());
    let labels = proptest::collection::btree_map("[a-z]{1,9}", "[^\\p{C}]{0,20}", 0..5);
    let room = (0..=wire::SLOTS_MAX, 0..=wire::SLOTS_MAX);
    let program = (any::<u64>(), any::<u64>(), of("[a-z0-9-]{1,30}"), "[0-9.]{1,9}");
    (versions, identity, program, room, labels, (runtimes(), offer())).prop_map(
        |(
            (lowest, highest),
            (name, secret, cluster, rejoin),
            program,
            (slots, backlog),
            labels,
            (runtimes, resources),
        )| {
            let (incarnation, process, engine, version) = program;
            Hello {
                versions: VersionRange { lowest, highest },
                name,
                secret,
                cluster: cluster.map(ClusterId),
                rejoin,
                incarnation: Incarnation(incarnation),
                process,
                engine,
                version,
                slots,
                backlog,
                labels: labels.into_iter().collect(),
                runtimes,
                resources,
            }
        },
    )
}

fn started() -> impl Strategy<Value = Started> {
    (token(), text(), duration()).prop_map(|(token, container, ago)| Started { token, container, ago })
}

fn succeeded() -> impl Strategy<Value = Succeeded> {
    (token(), timing(), lengths(), of(text()), of(text()), usage()).prop_map(
        |(token, timing, output, result, note, usage)| Succeeded {
            token,
            timing,
            output,
            result,
            note,
            usage,
        },
    )
}

fn failed() -> impl Strategy<Value = Failed> {
    let outcomes: Vec<_> =
        Outcome::ALL.into_iter().filter(|it| !matches!(it, Outcome::Succeeded | Outcome::Released)).collect();
    let outcome = proptest::sample::select(outcomes);
    (token(), outcome, of(wire::EXIT_CODES), text(), timing(), lengths(), usage()).prop_map(
        |(token, outcome, exit_code, message, timing, output, usage)| Failed {
            token,
            outcome,
            exit_code,
            message,
            timing,
            output,
            usage,
        },
    )
}

fn foreign() -> impl Strategy<Value = Foreign> {
    (any::<u64>(), token()).prop_map(|(worker, token)| Foreign { worker: WorkerId(worker), token })
}

fn inventory() -> impl Strategy<Value = Inventory> {
    (runtimes(), vec((token(), phase()), 0..20), vec(foreign(), 0..5), any::<bool>())
        .prop_map(|(runtimes, attempts, foreign, last)| Inventory { runtimes, attempts, foreign, last })
}

fn heartbeat() -> impl Strategy<Value = Heartbeat> {
    (any::<u64>(), any::<u32>(), any::<u32>(), of(any::<u32>()), of(any::<u64>())).prop_map(
        |(number, busy, queued, load_milli, disk_free_bytes)| Heartbeat {
            number,
            busy,
            queued,
            load_milli,
            disk_free_bytes,
        },
    )
}

fn chunk() -> impl Strategy<Value = Chunk> {
    let bytes = || vec(any::<u8>(), 0..2_000);
    let data = prop_oneof![
        bytes().prop_map(ChunkData::Bytes),
        bytes().prop_map(ChunkData::Replayed),
        (0..wire::OFFSET_MAX / 2).prop_map(ChunkData::Gap),
    ];
    (token(), stream(), 0..wire::OFFSET_MAX / 2 - 2_000, data)
        .prop_map(|(token, stream, offset, data)| Chunk { token, stream, offset, data })
}

fn numbered<T: std::fmt::Debug>(entry: impl Strategy<Value = T>) -> impl Strategy<Value = Numbered<T>> {
    let first = prop_oneof![1..300_u64, 1..=i64::MAX as u64];
    (first, vec(entry, 0..20)).prop_map(|(first, list)| Numbered { first: ReportNo(first), list })
}

fn token() -> impl Strategy<Value = Token> {
    let number = || prop_oneof![0..600_u64, 0..=i64::MAX as u64];
    (number(), number(), any::<u64>()).prop_map(|(job, fence, nonce)| Token {
        job: JobId(job),
        fence: Fence(fence),
        nonce: Nonce(nonce),
    })
}

fn intervals() -> impl Strategy<Value = Intervals> {
    (10..60_000_u64, 0..60_000_u64, 1..60_000_u64).prop_map(|(heartbeat, gate, more)| Intervals {
        heartbeat: Duration::from_millis(heartbeat),
        lease: Duration::from_millis(heartbeat.max(gate) + more),
        start_gate: Duration::from_millis(gate),
    })
}

fn runtimes() -> impl Strategy<Value = Vec<(RuntimeKind, Availability)>> {
    let availability =
        || prop_oneof![Just(Availability::Available), text().prop_map(Availability::Unavailable)];
    let all = (availability(), availability(), availability());
    (proptest::sample::subsequence(RuntimeKind::ALL.to_vec(), 0..=3), all)
        .prop_map(|(kinds, (a, b, c))| kinds.into_iter().zip([a, b, c]).collect())
}

fn phase() -> impl Strategy<Value = Phase> {
    prop_oneof![
        Just(Phase::Backlog),
        (of(0..=100_u8), any::<u32>()).prop_map(|(percent, failures)| Phase::Pulling { percent, failures }),
        Just(Phase::Starting),
        Just(Phase::Running),
        Just(Phase::Stopping),
        Just(Phase::Ended),
        Just(Phase::Unknown),
    ]
}

fn released() -> impl Strategy<Value = Released> {
    (token(), release_cause(), text()).prop_map(|(token, cause, why)| Released { token, cause, why })
}

fn release_cause() -> impl Strategy<Value = ReleaseCause> {
    use ReleaseCause::{Draining, Full, Policy, Recalled, RuntimeUnavailable, Secrets};
    proptest::sample::select(vec![Recalled, Full, Draining, RuntimeUnavailable, Policy, Secrets])
}

fn stop_cause() -> impl Strategy<Value = StopCause> {
    proptest::sample::select(StopCause::ALL.to_vec())
}

fn verdict() -> impl Strategy<Value = ReconcileVerdict> {
    proptest::sample::select(vec![ReconcileVerdict::Keep, ReconcileVerdict::Stop, ReconcileVerdict::Forget])
}

fn pull_policy() -> impl Strategy<Value = PullPolicy> {
    proptest::sample::select(vec![PullPolicy::Always, PullPolicy::Missing, PullPolicy::Never])
}

fn runtime() -> impl Strategy<Value = RuntimeKind> {
    proptest::sample::select(RuntimeKind::ALL.to_vec())
}

fn stream() -> impl Strategy<Value = Stream> {
    proptest::sample::select(Stream::ALL.to_vec())
}

fn volumes() -> impl Strategy<Value = Vec<Volume>> {
    let volume = (text(), text(), any::<bool>()).prop_map(|(source, target, read_only)| Volume {
        source,
        target,
        read_only,
    });
    vec(volume, 0..3)
}

fn timing() -> impl Strategy<Value = Timing> {
    (duration(), of(duration())).prop_map(|(ended_ago, ran)| Timing { ended_ago, ran })
}

fn lengths() -> impl Strategy<Value = OutputLengths> {
    (offset(), offset()).prop_map(|(stdout, stderr)| OutputLengths { stdout, stderr })
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![0..100_000_u64, 0..=wire::OFFSET_MAX]
}

fn duration() -> impl Strategy<Value = Duration> {
    (0..wire::DURATION_MAX.as_secs(), 0..1_000_000_000_u32)
        .prop_map(|(secs, nanos)| Duration::new(secs, nanos))
}

fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
    vec((text(), text()), 0..4)
}

fn text() -> impl Strategy<Value = String> {
    ".{0,24}"
}
