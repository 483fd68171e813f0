//! Properties of command lines, and Docker's reading of them.

mod reading;

use std::collections::BTreeMap;

use proptest::prelude::*;
use protocol::container::{ContainerOptions, Resources};
use protocol::secret::SecretValues;
use protocol::wire::Unsent;
use protocol::{ClusterId, Fence, JobId, Nonce, Revision, WorkerId};

use super::*;
use reading::Read;

const MEMBERSHIP: Membership = Membership { cluster: ClusterId(0xc0ffee), worker: WorkerId(4) };

fn launch(spec: ContainerSpec, overrides: Option<Overrides>) -> Launch {
    Launch {
        token: Token { job: JobId(12), fence: Fence(34), nonce: Nonce(0xab) },
        revision: Revision(1),
        name: "resize".into(),
        spec: spec.into(),
        overrides,
        time_left: None,
        secrets: Default::default(),
    }
}

fn spec() -> ContainerSpec {
    ContainerSpec {
        image: "app:1".into(),
        init: true,
        stop_grace: Duration::from_millis(1_500),
        ..ContainerSpec::default()
    }
}

fn ulimit(name: &str, soft: i64, hard: i64) -> Ulimit {
    Ulimit { name: name.into(), soft, hard }
}

#[test]
fn limits_that_a_definition_cannot_have_are_refused() {
    for name in ["core", "rtprio", "nofile=1 --privileged", ""] {
        let options = ContainerOptions { ulimits: vec![ulimit(name, -1, -1)], ..ContainerOptions::default() };
        let line =
            docker_run(&launch(ContainerSpec { options: Unsent(options), ..spec() }, None), MEMBERSHIP, None);
        assert_eq!(line.unwrap_err().field, "ulimits", "{name}");
    }
    let groups = ContainerOptions { group_add: vec!["keep-groups".into()], ..ContainerOptions::default() };
    let spec = ContainerSpec { options: Unsent(groups), ..spec() };
    assert_eq!(docker_run(&launch(spec, None), MEMBERSHIP, None).unwrap_err().field, "group_add");
}

#[test]
fn the_whole_line_is_as_documented() {
    let all = ContainerSpec {
        entrypoint: Some(vec!["/app".into(), "-v".into()]),
        command: vec!["--privileged".into(), "a b".into()],
        working_dir: Some("/srv".into()),
        user: Some("7:8".into()),
        volumes: vec![
            Volume { source: "/a,b".into(), target: "/c".into(), read_only: true },
            Volume { source: "cache".into(), target: "/d".into(), read_only: false },
        ],
        network: Some("none".into()),
        tmpfs: vec!["/tmp:rw,exec".into()],
        shm_bytes: Some(1 << 27),
        read_only: true,
        cap_drop: vec!["ALL".into()],
        labels: vec![("team".into(), "a=b".into())],
        resources: Resources {
            custom: Default::default(),
            gpus: Default::default(),
            cpus_milli: Some(1_050),
            memory_bytes: Some(1 << 26),
            pids: Some(99),
        },
        stop_signal: Some("SIGINT".into()),
        options: Unsent(ContainerOptions {
            hostname: Some("report".into()),
            extra_hosts: vec![("db".into(), "host-gateway".into()), ("six".into(), "::1".into())],
            dns: vec!["10.0.0.2".into()],
            dns_search: vec!["example.org".into()],
            ulimits: vec![ulimit("memlock", -1, -1), ulimit("nofile", 1_024, 65_536)],
            group_add: vec!["44".into()],
        }),
        ..spec()
    };
    let overrides = Overrides { args: vec!["--".into()], ..Overrides::default() };
    let line = docker_run(&launch(all, Some(overrides)), MEMBERSHIP, Some(1_700_000_000)).expect("valid");
    let expected = "run --pull never --sig-proxy=false --init --name longshore-00c0ffee-12-34 --label=team=a=b --label=longshore.managed=true \
        --label=longshore.cluster=00c0ffee --label=longshore.worker=4 --label=longshore.job=12 --label=longshore.fence=34 \
        --label=longshore.nonce=00000000000000ab --label=longshore.definition=resize --label=longshore.deadline=1700000000 \
        --stop-timeout 2 --log-driver json-file --log-opt max-size=67108864 --log-opt max-file=2 --security-opt no-new-privileges \
        --pids-limit=99 --ulimit core=0 --env-file /dev/stdin --network=none --workdir=/srv --user=7:8 --stop-signal=SIGINT --hostname=report \
        --tmpfs=/tmp:rw,exec --cap-drop=ALL --dns=10.0.0.2 --dns-search=example.org --group-add=44 \
        --add-host=db:host-gateway --add-host=six:::1 --ulimit=memlock=-1:-1 --ulimit=nofile=1024:65536 --mount=type=bind,\"source=/a,b\",target=/c,readonly \
        --mount=type=volume,source=cache,target=/d --memory=67108864 --memory-swap=67108864 --cpus=1.050 --shm-size=134217728 --read-only \
        --entrypoint=/app -- app:1 -v --privileged a b --";
    assert_eq!(line.args.join(" "), expected);
    assert_eq!(line.environment, b"LONGSHORE_JOB=12\nLONGSHORE_ATTEMPT=34\n");
}

#[test]
fn the_patterns_to_mask_stay_with_the_container() {
    let spec = ContainerSpec { log_mask: vec!["a=\\w+".into(), "\"b,".into()], ..spec() };
    let line = docker_run(&launch(spec, None), MEMBERSHIP, None).expect("valid").args;
    let label = r#"--label=longshore.log_mask=["a=\\w+","\"b,"]"#;
    assert!(line.iter().any(|arg| arg == label), "{line:?}");
}

#[test]
fn an_attempt_whose_directory_is_lost_is_known_to_have_secrets_and_a_self_fence() {
    let spec = ContainerSpec { self_fence: Some(Duration::from_secs(7)), ..spec() };
    let plain = docker_run(&launch(spec.clone(), None), MEMBERSHIP, None).expect("valid").args;
    assert!(plain.contains(&"--label=longshore.self_fence_ms=7000".to_owned()), "{plain:?}");
    assert!(!plain.iter().any(|arg| arg.contains("secrets")), "{plain:?}");
    let values = SecretValues {
        variables: vec![("KEY".into(), SecretValue(b"hunter22".to_vec()))],
        ..SecretValues::default()
    };
    let secret = Launch { secrets: values.into(), ..launch(spec, None) };
    let line = docker_run(&secret, MEMBERSHIP, None).expect("valid").args;
    assert!(line.contains(&"--label=longshore.secrets=true".to_owned()), "{line:?}");
}

#[test]
fn the_engines_own_log_holds_what_is_kept_of_the_output() {
    for (kept, file) in
        [(0, 64 << 20), (64 << 10, 64 << 20), (200 << 20, 200 << 20), (1_u64 << 40, 512 << 20)]
    {
        let spec = ContainerSpec { log_bytes_max: kept, ..spec() };
        let line = docker_run(&launch(spec, None), MEMBERSHIP, None).expect("valid").args.join(" ");
        assert!(line.contains(&format!("--log-opt max-size={file} --log-opt max-file=2")), "{line}");
    }
}

#[test]
fn a_job_overrides_the_definitions_environment_but_not_the_workers() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let spec = ContainerSpec {
        environment: vec![pair("A", "1"), pair("B", "2"), pair("LONGSHORE_JOB", "9")],
        ..spec()
    };
    let overrides = Overrides { environment: vec![pair("B", "x=y "), pair("C", "")], ..Overrides::default() };
    let line = docker_run(&launch(spec, Some(overrides)), MEMBERSHIP, None).expect("valid");
    assert_eq!(
        String::from_utf8(line.environment).expect("text"),
        "A=1\nB=x=y \nLONGSHORE_JOB=12\nC=\nLONGSHORE_ATTEMPT=34\n"
    );
}

#[test]
fn values_that_docker_would_misread_are_refused_and_never_shown() {
    for (name, value) in [
        ("A B", "secret"),
        ("", "secret"),
        ("1A", "secret"),
        ("A", "secret\nB=1"),
        ("A", "secret\r"),
        ("A", "secret\0"),
    ] {
        let spec = ContainerSpec { environment: vec![(name.into(), value.into())], ..spec() };
        let error = docker_run(&launch(spec, None), MEMBERSHIP, None).expect_err("refused");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    for image in ["", "--privileged", "a b", "a\n"] {
        let spec = ContainerSpec { image: image.into(), ..spec() };
        assert_eq!(docker_run(&launch(spec, None), MEMBERSHIP, None).expect_err("refused").field, "image");
    }
    let labels = ContainerSpec { labels: vec![("longshore.worker".into(), "5".into())], ..spec() };
    assert_eq!(docker_run(&launch(labels, None), MEMBERSHIP, None).expect_err("refused").field, "labels");
    for source in ["", "../x", "-v", "a/b"] {
        let volumes = vec![Volume { source: source.into(), target: "/x".into(), read_only: false }];
        let spec = ContainerSpec { volumes, ..spec() };
        assert_eq!(docker_run(&launch(spec, None), MEMBERSHIP, None).expect_err("refused").field, "volumes");
    }
    for (source, target) in [("/srv", "/x\n"), ("/srv\n", "/x"), ("/srv", "/x\r")] {
        let volumes = vec![Volume { source: source.into(), target: target.into(), read_only: true }];
        let spec = ContainerSpec { volumes, ..spec() };
        assert_eq!(docker_run(&launch(spec, None), MEMBERSHIP, None).expect_err("refused").field, "volumes");
    }
}

/// Words that might inject or remove an option.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(CANARIES).prop_map(str::to_owned),
        "[-=,\"' a-z\\\\\n\r\tü]{0,12}",
        any::<String>(),
    ]
}

fn words(most: usize) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(word(), 0..=most)
}

fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec(("[A-Za-z_.]{1,3}", word()), 0..4)
}

/// Like a word, but seldom one that is refused in an environment or a path.
fn line() -> impl Strategy<Value = String> {
    let tame = |word: String| word.chars().filter(|it| !it.is_control()).collect();
    prop_oneof![20 => word().prop_map(tame), 1 => word()]
}

/// Values that can be found again in any text.
fn variables() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = prop_oneof![20 => "[A-Z]{1,2}", 2 => Just("LONGSHORE_JOB".to_owned()), 1 => word()];
    prop::collection::vec((name, line().prop_map(|line| format!("{SECRET}{line}"))), 0..4)
}

fn volume() -> impl Strategy<Value = Volume> {
    let path = || line().prop_map(|line| format!("/{line}"));
    let source = prop_oneof![10 => path(), 5 => "[a-z][a-z.-]{0,4}", 1 => word()];
    let target = prop_oneof![10 => path(), 1 => word()];
    (source, target, any::<bool>()).prop_map(|(source, target, read_only)| Volume {
        source,
        target,
        read_only,
    })
}

fn any_spec() -> impl Strategy<Value = ContainerSpec> {
    let program = (prop::option::of(words(3)), words(4), variables(), any::<bool>());
    let single = prop::collection::vec(prop::option::of(word()), 5);
    let machine =
        (words(2), words(2), words(2), prop::collection::vec(volume(), 0..2), pairs(), any::<bool>());
    let limits =
        (prop::option::of(any::<u32>()), prop::option::of(any::<u64>()), prop::option::of(any::<u32>()));
    let limits = (limits, prop::option::of(any::<u64>()));
    (program, single, machine, limits).prop_map(|(program, single, machine, limits)| ContainerSpec {
        entrypoint: program.0,
        command: program.1,
        environment: program.2,
        init: program.3,
        network: single[0].clone(),
        working_dir: single[1].clone(),
        user: single[2].clone(),
        platform: single[3].clone(),
        stop_signal: single[4].clone(),
        tmpfs: machine.0,
        cap_add: machine.1,
        cap_drop: machine.2,
        volumes: machine.3,
        labels: machine.4,
        read_only: machine.5,
        resources: Resources {
            cpus_milli: limits.0.0,
            memory_bytes: limits.0.1,
            pids: limits.0.2,
            gpus: 0,
            custom: Vec::new(),
        },
        shm_bytes: limits.1,
        ..spec()
    })
}

/// The options that a definition means, as Docker would list them, without the worker's own.
fn meant(spec: &ContainerSpec) -> Vec<(String, String)> {
    let resources = &spec.resources;
    let memory = resources.memory_bytes.map(|it| it.to_string());
    let cpus = resources.cpus_milli.map(|it| format!("{}.{:03}", it / 1_000, it % 1_000));
    let shm = spec.shm_bytes.map(|it| it.to_string());
    let entrypoint = spec.entrypoint.as_ref().map(|it| it.first().cloned().unwrap_or_default());
    let single = [
        ("network", &spec.network),
        ("workdir", &spec.working_dir),
        ("user", &spec.user),
        ("platform", &spec.platform),
        ("stop-signal", &spec.stop_signal),
        ("memory", &memory),
        ("memory-swap", &memory),
        ("cpus", &cpus),
        ("shm-size", &shm),
        ("entrypoint", &entrypoint),
    ];
    let single = single.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
    let many = [("tmpfs", &spec.tmpfs), ("cap-add", &spec.cap_add), ("cap-drop", &spec.cap_drop)];
    let many = many.into_iter().flat_map(|(name, values)| values.iter().map(move |it| (name, it.clone())));
    let labels = spec.labels.iter().map(|(key, value)| ("label", format!("{key}={value}")));
    let switches = [("init", spec.init), ("read-only", spec.read_only)];
    let switches = switches.into_iter().filter(|(_, on)| *on).map(|(name, _)| (name, "true".into()));
    let all = single.chain(many).chain(labels).chain(switches);
    let mut all: Vec<_> = all.map(|(name, value)| (name.to_owned(), value)).collect();
    all.sort();
    all
}

/// The number of cases; `PROPTEST_CASES` overrides it.
fn cases(usual: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(usual),
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn docker_reads_what_the_definition_says_and_no_option_more(
        spec in any_spec(),
        args in words(3),
        environment in variables(),
    ) {
        let overrides = Overrides { args: args.clone(), environment: environment.clone(), input: None };
        let Ok(line) = docker_run(&launch(spec.clone(), Some(overrides)), MEMBERSHIP, Some(5)) else { return Ok(()) };
        let ours = docker_run(&launch(bare(), None), MEMBERSHIP, Some(5)).expect("valid");
        let ours = Read::of(&ours.args).expect("understood").options;
        let read = Read::of(&line.args).map_err(TestCaseError::fail)?;

        let rest: Vec<String> = spec.entrypoint.iter().flatten().skip(1).chain(&spec.command).chain(&args).cloned().collect();
        prop_assert_eq!((&*read.image, read.words), (&*spec.image, rest));

        let (mounts, mut options): (Vec<_>, Vec<_>) = read.options.into_iter().partition(|(name, _)| name == "mount");
        for option in &ours {
            let at = options.iter().position(|it| it == option || (&*it.0, &*option.0) == ("pids-limit", "pids-limit"));
            prop_assert!(at.map(|at| options.remove(at)).is_some(), "{:?} is missing", option);
        }
        prop_assert_eq!(options, meant(&spec));
        for ((_, mount), volume) in mounts.iter().zip(&spec.volumes) {
            let mut fields = vec![
                ("type".to_owned(), if volume.is_bind() { "bind".to_owned() } else { "volume".into() }),
                ("source".into(), volume.source.clone()),
                ("target".into(), volume.target.clone()),
            ];
            fields.extend(volume.read_only.then(|| ("readonly".into(), String::new())));
            prop_assert_eq!(reading::mount(mount).map_err(TestCaseError::fail)?, fields);
        }
        prop_assert_eq!(mounts.len(), spec.volumes.len());

        // Values travel by the file alone, and the file holds the merged environment.
        let shown = line.args.iter().find(|it| it.contains(SECRET));
        prop_assert_eq!(shown, None);
        let mut merged = BTreeMap::new();
        merged.extend(spec.environment.iter().chain(&environment).cloned());
        merged.extend([("LONGSHORE_JOB".to_owned(), "12".to_owned()), ("LONGSHORE_ATTEMPT".to_owned(), "34".to_owned())]);
        let read = reading::environment(&line.environment).map_err(TestCaseError::fail)?;
        prop_assert_eq!(read, merged.into_iter().collect::<Vec<_>>());
    }
}

/// A definition with nothing but an image; only the worker's own options are left.
fn bare() -> ContainerSpec {
    ContainerSpec { init: false, ..spec() }
}

const SECRET: &str = "hunter2:";

const CANARIES: &[&str] = &[
    "--",
    "-",
    "--privileged",
    "--privileged=true",
    "-v=/:/host",
    "-v",
    "/:/host",
    "--mount=type=bind,source=/,target=/host",
    "--network=host",
    "--pid=host",
    "--device",
    "--env-file=/proc/self/environ",
    "--cap-add=ALL",
    "--security-opt=seccomp=unconfined",
    "--entrypoint=/bin/sh",
    "--rm",
    "-it",
    ",readonly=false",
    "\n--privileged",
    "/x,source=/",
    "\",source=/,target=\"/y",
];
