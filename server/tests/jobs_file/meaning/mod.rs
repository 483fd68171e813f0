//! The meaning of each key, and the merge of defaults, variables and files.

mod policies;

use std::fs;
use std::path::Path;
use std::time::Duration;

use longshore_server::config::jobs_file::{Environment, load, parse};
use longshore_server::retention_rule::RetentionRule;
use protocol::container::{ContainerOptions, PullPolicy, Resources, Ulimit, Volume};
use protocol::wire::Unsent;
use protocol::{ContainerSpec, RuntimeKind};
use scheduler::definition::{Definition, Expect, LossPolicy, RetryPolicy, WaitLimits};
use scheduler::limits::rules::LimitRules;

#[test]
fn a_job_with_an_image_has_every_default() {
    let definition = only("- {name: a, image: busybox}");
    let expected = Definition {
        name: "a".to_owned(),
        revision: definition.revision,
        enabled: true,
        priority: 0,
        timeout: Some(Duration::from_secs(3600)),
        retry: RetryPolicy::default(),
        success_exit_codes: Vec::new(),
        loss: LossPolicy::default(),
        waits: WaitLimits::default(),
        expect: Expect::default(),
        placement: Default::default(),
        timetable: Default::default(),
        hooks: Default::default(),
        secrets: Default::default(),
        submission: Default::default(),
        limits: LimitRules::default(),
        container: ContainerSpec {
            image: "busybox".to_owned(),
            init: true,
            pull_timeout: Duration::from_secs(900),
            stop_grace: Duration::from_secs(10),
            log_bytes_max: 64 << 20,
            ..ContainerSpec::default()
        },
    };
    assert_eq!(definition, expected);
}

/// The rule for ended jobs is no part of the revision.
#[test]
fn retention_is_merged_with_the_defaults_and_makes_no_revision() {
    let read = |text: &str| {
        let file = parse(text, Path::new("jobs.yaml"), &Environment::default()).expect("a good file");
        let entry = file.definitions.into_iter().next().expect("it has a job");
        (entry.retention, entry.definition.revision)
    };
    let (absent, revision) = read("jobs: {a: {image: busybox}}");
    assert!(absent.is_empty());
    let day = Duration::from_secs(86_400);
    let (rule, same) = read(
        "defaults: {retention: {keep: 5, max_age: 2d, output_max_age: 12h}}
jobs: {a: {image: busybox, retention: {keep: 100, failed_max_age: 3650d, max_age: 1m}}}",
    );
    let expected = RetentionRule {
        keep: Some(100),
        max_age: Some(Duration::from_secs(60)),
        failed_max_age: Some(3_650 * day),
        output_max_age: Some(day / 2),
    };
    assert_eq!((rule, same), (expected, revision));
}

#[test]
fn every_key_of_the_container_arrives() {
    let definition = only(
        "jobs:
  a:
    image: registry.example.org:5000/team/tool:1.0
    command: run --level '2 3'
    entrypoint: [/bin/tool, -v]
    environment: {B: 2, A: 1.50}
    working_dir: /work
    user: 1000
    volumes: [/srv/in:/in:ro, 'data:/data', {type: volume, source: v, target: /v, read_only: true}]
    network: none
    tmpfs: /tmp:size=1m
    shm_size: 256m
    read_only: true
    cap_add: [SYS_PTRACE, CAP_NET_ADMIN, SYS_PTRACE]
    cap_drop: ALL
    init: false
    platform: linux/arm64
    labels: [team=a, cost=]
    pull_policy: always
    pull_timeout: 1m
    resources: {cpus: 1.25, memory: 1g, pids: 10}
    stop_signal: 2
    stop_grace_period: 20s
    runtime: docker
    log: {max_bytes: 1m, mask: [b+, '$(key|token)=\\S+', b+]}
    input: {z: [1, 2.50, -3e2, true, ~, '7'], a: {deep: '$${NAME}'}, '1': ''}
    hostname: report
    extra_hosts: ['db:10.0.0.5', 'six=[::1]', 'gate:host-gateway']
    dns: 10.0.0.2
    dns_search: [example.org, lan]
    ulimits: {nofile: {soft: 1024, hard: 65536}, memlock: -1}
    group_add: [44, audio]
",
    );
    let text = |text: &str| Some(text.to_owned());
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let volume = |source: &str, target: &str, read_only| Volume {
        source: source.to_owned(),
        target: target.to_owned(),
        read_only,
    };
    let expected = ContainerSpec {
        runtime: RuntimeKind::Docker,
        image: "registry.example.org:5000/team/tool:1.0".to_owned(),
        entrypoint: Some(texts(&["/bin/tool", "-v"])),
        command: texts(&["run", "--level", "2 3"]),
        environment: vec![pair("A", "1.50"), pair("B", "2")],
        working_dir: text("/work"),
        user: text("1000"),
        volumes: vec![
            volume("/srv/in", "/in", true),
            volume("data", "/data", false),
            volume("v", "/v", true),
        ],
        network: text("none"),
        tmpfs: texts(&["/tmp:size=1m"]),
        shm_bytes: Some(256 << 20),
        read_only: true,
        cap_add: texts(&["NET_ADMIN", "SYS_PTRACE"]),
        cap_drop: texts(&["ALL"]),
        init: false,
        platform: text("linux/arm64"),
        labels: vec![pair("cost", ""), pair("team", "a")],
        pull_policy: PullPolicy::Always,
        pull_timeout: Duration::from_secs(60),
        resources: Resources {
            custom: Default::default(),
            gpus: Default::default(),
            cpus_milli: Some(1250),
            memory_bytes: Some(1 << 30),
            pids: Some(10),
        },
        stop_signal: text("2"),
        stop_grace: Duration::from_secs(20),
        ask_before_start: false,
        self_fence: None,
        log_bytes_max: 1 << 20,
        log_mask: texts(&["$(key|token)=\\S+", "b+"]),
        input: text(r#"{"1":"","a":{"deep":"${NAME}"},"z":[1,2.5,-300.0,true,null,"7"]}"#),
        options: Unsent(ContainerOptions {
            hostname: text("report"),
            extra_hosts: vec![pair("db", "10.0.0.5"), pair("six", "::1"), pair("gate", "host-gateway")],
            dns: texts(&["10.0.0.2"]),
            dns_search: texts(&["example.org", "lan"]),
            ulimits: vec![
                Ulimit { name: "memlock".to_owned(), soft: -1, hard: -1 },
                Ulimit { name: "nofile".to_owned(), soft: 1_024, hard: 65_536 },
            ],
            group_add: texts(&["44", "audio"]),
        }),
    };
    assert_eq!(definition.container, expected);
}

#[test]
fn the_restricted_profile_stands_for_every_value_that_is_not_written() {
    let restricted = only("jobs:\n  a: {image: app, profile: restricted}\n").container;
    let expected = ContainerSpec {
        network: Some("none".to_owned()),
        cap_drop: vec!["ALL".to_owned()],
        read_only: true,
        tmpfs: vec!["/tmp:rw,exec,nosuid,nodev,size=64m,mode=1777".to_owned()],
        resources: Resources {
            custom: Default::default(),
            gpus: Default::default(),
            cpus_milli: Some(1000),
            memory_bytes: Some(256 << 20),
            pids: Some(256),
        },
        ..only("jobs:\n  a: {image: app, profile: default}\n").container
    };
    assert_eq!(restricted, expected);
    let own = only(
        "jobs:\n  a: {image: app, profile: restricted, network: bridge, cap_drop: [], read_only: false, tmpfs: [], resources: {memory: 1g}}\n",
    )
    .container;
    assert_eq!(
        (own.network.as_deref(), own.cap_drop.len(), own.read_only, own.tmpfs.len()),
        (Some("bridge"), 0, false, 0)
    );
    assert_eq!(
        own.resources,
        Resources {
            custom: Default::default(),
            gpus: Default::default(),
            cpus_milli: Some(1000),
            memory_bytes: Some(1 << 30),
            pids: Some(256)
        }
    );
}

#[test]
fn a_job_that_must_not_run_twice_asks_before_it_starts() {
    for (keys, asks, fence) in [
        ("", false, None),
        (", on_lost: fail", false, None),
        (", on_lost: wait", true, None),
        (", self_fence: true", true, Some(55)),
        (", self_fence: true, lost_after: 5m", true, Some(295)),
    ] {
        let container = only(&format!("- {{name: a, image: busybox{keys}}}")).container;
        assert_eq!(container.ask_before_start, asks, "{keys}");
        assert_eq!(container.self_fence, fence.map(Duration::from_secs), "{keys}");
    }
}

#[test]
fn defaults_are_laid_under_every_job() {
    let text = "defaults:
  image: busybox
  timeout: 5m
  volumes: [data:/data]
  environment: {A: default, B: default}
  resources: {cpus: 1, memory: 8m}
  retry: {max: 1, backoff: {initial: 3s, factor: 3}}
jobs:
  a:
    environment: [A=own]
    volumes: [own:/own]
    resources: {memory: 16m}
    retry: {backoff: {initial: 4s}}
";
    let definition = only(text);
    let container = &definition.container;
    assert_eq!(definition.timeout, Some(Duration::from_secs(300)));
    let environment: Vec<_> =
        container.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(environment, ["A=own", "B=default"]);
    assert_eq!(container.volumes.len(), 1);
    assert_eq!(container.resources.cpus_milli, Some(1000));
    assert_eq!(container.resources.memory_bytes, Some(16 << 20));
    let backoff = definition.retry.backoff;
    assert_eq!(
        (definition.retry.max, backoff.delays.first().as_secs(), backoff.delays.factor_milli()),
        (1, 4, 3000)
    );
}

#[test]
fn environment_files_are_read_beside_the_jobs_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("written");
    write("one.env", "# comment\n\nA=1\nB='two words' \nC=a=b\nD=${KEPT}\n");
    write("two.env", "A=2\r\nE=\n");
    write("jobs.yaml", "- {name: a, image: busybox, env_file: [one.env, ./two.env], environment: {C: own}}");
    let loaded =
        load(&directory.path().join("jobs.yaml"), &environment()).unwrap_or_else(|faults| panic!("{faults}"));
    let variables = &loaded.definitions[0].definition.container.environment;
    let shown: Vec<_> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(shown, ["A=2", "B=two words", "C=own", "D=${KEPT}", "E="]);

    let before = loaded.definitions[0].definition.revision;
    write("two.env", "A=3\n");
    let after = load(&directory.path().join("jobs.yaml"), &environment()).expect("a good file");
    assert_ne!(after.definitions[0].definition.revision, before, "what a file holds is part of the revision");
}

#[test]
fn a_fault_in_an_environment_file_shows_none_of_its_text() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("written");
    write("own.env", "A=1\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC+s3cret==\nLONGSHORE_S3CRET=1\n");
    write("jobs.yaml", "- {name: a, image: busybox, env_file: own.env}");
    let faults = load(&directory.path().join("jobs.yaml"), &environment()).expect_err("two bad lines");
    let text = faults.to_string();
    assert!(text.contains("own.env:2:1: invalid_env_name: "), "{text}");
    assert!(text.contains("own.env:3:1: reserved_name: "), "{text}");
    assert!(!text.to_lowercase().contains("s3cret"), "{text}");
}

#[test]
fn the_environment_of_a_job_overrides_that_of_the_defaults() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("written");
    write("default.env", "A=default file\nB=default file\nC=default file\nD=default file\n");
    write("own.env", "B=own file\nC=own file\nE=own file\n");
    write(
        "jobs.yaml",
        "defaults: {image: busybox, env_file: default.env, environment: {A: default, B: default, E: default}}
jobs:
  inherits: {}
  adds: {environment: {A: own}}
  replaces: {env_file: own.env, environment: {C: own}}
",
    );
    let loaded =
        load(&directory.path().join("jobs.yaml"), &environment()).unwrap_or_else(|faults| panic!("{faults}"));
    let environments = loaded.definitions.iter().map(|entry| {
        let variables = &entry.definition.container.environment;
        variables.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    });
    let expected = [
        ["A=default", "B=default", "C=default file", "D=default file", "E=default"].to_vec(),
        ["A=own", "B=default", "C=default file", "D=default file", "E=default"].to_vec(),
        ["A=default", "B=own file", "C=own", "E=own file"].to_vec(),
    ];
    assert_eq!(environments.collect::<Vec<_>>(), expected);
}

#[test]
fn the_value_of_a_variable_never_becomes_two_words() {
    let container =
        only("- {name: a, image: busybox, command: 'echo ${PHRASE} \"x ${PHRASE}\" $$HOME'}").container;
    assert_eq!(container.command, ["echo", "two 'words", "x two 'words", "$HOME"]);
}

#[test]
fn variables_stand_for_numbers_and_booleans_too() {
    let text = "- {name: a, image: busybox, priority: '${FIVE}', read_only: \"${YES}\", timeout: '${TIME}', retry: '${FIVE}'}";
    let definition = only(text);
    assert_eq!((definition.priority, definition.retry.max, definition.container.read_only), (5, 5, true));
    assert_eq!(definition.timeout, Some(Duration::from_secs(90)));
}

#[test]
fn descriptive_keys_are_kept_beside_the_definition() {
    let text = "- {name: a, image: busybox, description: d, owner: o, tags: [x, y]}";
    let loaded = parse(text, Path::new("jobs.yaml"), &environment()).expect("a good file");
    let entry = &loaded.definitions[0];
    assert_eq!((entry.description.as_deref(), entry.owner.as_deref()), (Some("d"), Some("o")));
    assert_eq!(entry.tags, ["x", "y"]);
}

#[test]
fn a_process_needs_a_command_but_no_image() {
    assert_eq!(
        only("- {name: a, runtime: process, command: [date]}").container.runtime,
        RuntimeKind::Process
    );
    assert_eq!(only("- {name: a, runtime: fake}").container.image, "");
}

#[test]
fn container_keys_of_the_defaults_do_not_reach_a_process() {
    let own = "runtime: process, command: [date], working_dir: /srv, stop_signal: INT, log: {max_bytes: 1m}";
    let defaults = "defaults:
  image: busybox
  user: 1000:1000
  volumes: [/srv:/srv]
  network: none
  tmpfs: /tmp
  read_only: true
  cap_add: NET_ADMIN
  cap_drop: ALL
  init: false
  platform: linux/arm64
  labels: {team: a}
  pull_policy: never
  pull_timeout: 1m
  resources: {memory: 64m}
";
    let text = format!("{defaults}  stop_grace_period: 3s\njobs: {{a: {{{own}}}}}");
    assert_eq!(only(&text), only(&format!("- {{name: a, {own}, stop_grace_period: 3s}}")));
    let by_default = format!("{defaults}  runtime: process\njobs: {{a: {{command: [date]}}}}");
    assert_eq!(only(&by_default), only("- {name: a, runtime: process, command: [date]}"));
}

fn only(text: &str) -> Definition {
    let loaded = parse(text, Path::new("jobs.yaml"), &environment())
        .unwrap_or_else(|faults| panic!("{text}\n{faults}"));
    assert_eq!(loaded.definitions.len(), 1);
    (*loaded.definitions[0].definition).clone()
}

fn environment() -> Environment {
    [("PHRASE", "two 'words"), ("FIVE", "5"), ("YES", "true"), ("TIME", "90s"), ("KEPT", "never used")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into_iter()
        .collect()
}
