//! An example of every order.

use std::time::Duration;

use longshore_protocol::container::{ContainerOptions, Overrides, PullPolicy, Resources, Ulimit, Volume};
use longshore_protocol::order::{
    Assignment, Cancel, Configure, Definition, GoAway, Intervals, OutputMark, ReconcileVerdict, Reconciled,
    Refused, StopCause, Welcome,
};
use longshore_protocol::registry::RegistryLogin;
use longshore_protocol::report::Stream;
use longshore_protocol::secret::{AttemptSecrets, SecretValue, SecretValues};
use longshore_protocol::wire::Unsent;
use longshore_protocol::{ContainerSpec, Epoch, Order, ReportNo, RuntimeKind, SessionId, WorkerId};

use super::{CLUSTER, Notes, OTHER, QUEUED, REVISION, RUNNING, Sample, TOKEN, list, pair, single};

/// Every order, by tag.
pub(crate) fn orders() -> Vec<Sample<Order>> {
    vec![
        welcome(),
        definitions(),
        enqueue(),
        reconciled(),
        cancel(),
        list(Order::Recall, vec![OTHER], |notes, it| notes.token(it)),
        single(Order::Acknowledge(ReportNo(5)), |notes| notes.id("report", &ReportNo(5))),
        single(Order::Pulse(1_000), |notes| notes.field("number", &1_000_u64)),
        configure(),
        output_acknowledge(),
        refused(),
        go_away(),
        extended_definitions(),
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
        last_report: ReportNo(2),
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

fn definition() -> Definition {
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
        shm_bytes: Some(128 << 20),
        read_only: true,
        cap_add: vec!["NET_BIND_SERVICE".to_owned()],
        cap_drop: vec!["ALL".to_owned()],
        init: true,
        platform: Some("linux/amd64".to_owned()),
        labels: vec![pair("team", "press")],
        pull_policy: PullPolicy::Missing,
        pull_timeout: Duration::from_secs(600),
        resources: Resources {
            cpus_milli: Some(1_500),
            memory_bytes: Some(256 << 20),
            pids: Some(4_096),
            gpus: 1,
            custom: vec![("license".to_owned(), 1)],
        },
        stop_signal: Some("SIGINT".to_owned()),
        stop_grace: Duration::from_secs(10),
        ask_before_start: true,
        self_fence: Some(Duration::from_secs(55)),
        log_bytes_max: 64 << 20,
        log_mask: vec!["key=[0-9a-f]+".to_owned()],
        input: Some("{}".to_owned()),
        options: Default::default(),
    };
    Definition { revision: REVISION, name: "hello-world".to_owned(), container }
}

fn definitions() -> Sample<Order> {
    list(Order::Definitions, vec![definition()], definition_fields)
}

fn extended_definitions() -> Sample<Order> {
    let mut it = definition();
    it.container.options = Unsent(ContainerOptions {
        hostname: Some("press".to_owned()),
        extra_hosts: vec![pair("db", "host-gateway")],
        dns: vec!["10.0.0.2".to_owned()],
        dns_search: vec!["example.org".to_owned()],
        ulimits: vec![Ulimit { name: "nofile".to_owned(), soft: 1_024, hard: -1 }],
        group_add: vec!["44".to_owned()],
    });
    list(Order::ExtendedDefinitions, vec![it], |notes, it| {
        let notes = definition_fields(notes, it);
        let options = &it.container.options;
        let notes = fields!(notes, options, hostname, extra_hosts, dns, dns_search)
            .count("ulimits", &options.ulimits);
        let ulimit = |notes: Notes, it: &Ulimit| fields!(notes, it, name, soft, hard);
        fields!(options.ulimits.iter().fold(notes, ulimit), options, group_add)
    })
}

fn definition_fields(notes: Notes, it: &Definition) -> Notes {
    let spec = &it.container;
    let notes = notes.id("revision", &it.revision).field("name", &it.name);
    let notes =
        fields!(notes, spec, runtime, image, entrypoint, command, environment, working_dir, user, volumes);
    let notes =
        fields!(notes, spec, network, tmpfs, shm_bytes, read_only, cap_add, cap_drop, init, platform, labels);
    let notes = fields!(notes, spec, pull_policy, pull_timeout);
    let notes = fields!(notes, spec.resources, cpus_milli, memory_bytes, pids, gpus, custom);
    let notes = fields!(notes, spec, stop_signal, stop_grace, ask_before_start, self_fence);
    fields!(notes, spec, log_bytes_max, log_mask, input)
}

fn enqueue() -> Sample<Order> {
    let overrides = Overrides {
        environment: vec![pair("GREETING", "hi")],
        args: vec!["--loud".to_owned()],
        input: Some("{\"n\":1}".to_owned()),
    };
    let it = Assignment {
        token: TOKEN,
        priority: -5,
        waited: Duration::from_millis(1_500),
        revision: REVISION,
        overrides: Some(overrides.clone()),
        time_left: Some(Duration::from_secs(3_600)),
        memory_bytes: Some(128 << 20),
        secrets: Some(AttemptSecrets::Given(SecretValues {
            variables: vec![("PGPASSWORD".to_owned(), SecretValue(b"abcd".to_vec()))],
            files: vec![("db_password".to_owned(), SecretValue(b"abcd".to_vec()))],
            masked: vec![SecretValue(b"efgh".to_vec())],
            registry: Some(RegistryLogin {
                host: "registry.example:5000".to_owned(),
                username: "robot".to_owned(),
                password: SecretValue(b"abcd".to_vec()),
            }),
        })),
        gpus: vec!["0".to_owned()],
    };
    let bare = Assignment {
        token: OTHER,
        priority: 0,
        waited: Duration::ZERO,
        overrides: None,
        time_left: None,
        memory_bytes: None,
        secrets: None,
        gpus: Vec::new(),
        ..it.clone()
    };
    let withheld = AttemptSecrets::Withheld("the secret db_password does not exist".to_owned());
    let withheld = Assignment { token: RUNNING, secrets: Some(withheld), ..bare.clone() };
    list(Order::Enqueue, vec![it, bare, withheld], |notes, it| {
        let notes = fields!(notes.token(&it.token), it, priority, waited).id("revision", &it.revision);
        let notes = match &it.overrides {
            Some(overrides) => fields!(notes.present("overrides"), overrides, environment, args, input),
            None => notes.field("overrides", &it.overrides),
        };
        let notes = fields!(notes, it, time_left, memory_bytes);
        let notes = match &it.secrets {
            Some(AttemptSecrets::Given(values)) => {
                let notes =
                    fields!(notes.present("secrets").field("kind", &0_u8), values, variables, files, masked);
                match &values.registry {
                    Some(login) => fields!(notes.present("registry"), login, host, username, password),
                    None => notes.field("registry", &values.registry),
                }
            }
            Some(AttemptSecrets::Withheld(why)) => {
                notes.present("secrets").field("kind", &1_u8).field("withheld", why)
            }
            None => notes.field("secrets", &it.secrets),
        };
        notes.field("gpus", &it.gpus)
    })
}

fn reconciled() -> Sample<Order> {
    let it = Reconciled {
        attempts: vec![(RUNNING, ReconcileVerdict::Keep), (QUEUED, ReconcileVerdict::Stop)],
        last: true,
    };
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
    let it = Cancel { token: RUNNING, grace: Some(Duration::from_secs(3)), cause: StopCause::Cancel };
    single(Order::Cancel(it), |notes| fields!(notes.token(&it.token), it, grace, cause))
}

fn configure() -> Sample<Order> {
    let it = Configure { slots: Some(3), drain: false, intervals: Some(Intervals::default()) };
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
        reconnect_after: Duration::from_millis(1_700),
        elsewhere: Some("ws://dock.example:8080".to_owned()),
    };
    single(Order::GoAway(it.clone()), |notes| fields!(notes, it, reconnect_after, elsewhere))
}
