//! Rules against definitions, and policy files that are refused.

use scheduler::definition::Definition;

use super::read::parse;
use super::*;
use crate::config::jobs_file::{self, Environment};

fn definition(keys: &str) -> Definition {
    let text = format!("- {{name: nightly, {keys}}}\n");
    let file = jobs_file::parse(&text, Path::new("jobs.yaml"), &Environment::default());
    file.expect(keys).definitions[0].definition.as_ref().clone()
}

fn policy(rule: &str) -> Policy {
    parse(&format!("version: 1\nrules:\n  - {{{rule}}}\n")).unwrap_or_else(|error| panic!("{rule}: {error}"))
}

/// The texts of what a definition breaks.
fn broken(rule: &str, keys: &str) -> Vec<String> {
    let violations = policy(rule).check_definition(&definition(keys));
    violations.into_iter().map(|it| format!("{}: {}", it.key, it.reason)).collect()
}

const BUSYBOX: &str = "image: busybox:1";

#[test]
fn a_rule_allows_only_what_it_lists() {
    for (rule, keys, text) in [
        ("images: [registry.example/*]", BUSYBOX, "image: busybox:1 is not allowed"),
        ("volumes: []", "image: b, volumes: ['cache:/cache']", "volumes: cache is not allowed for writing"),
        (
            "volumes: [/srv/data]",
            "image: b, volumes: ['/srv/data2:/d:ro']",
            "volumes: /srv/data2 is not allowed",
        ),
        (
            "volumes: ['/srv/data:ro']",
            "image: b, volumes: ['/srv/data/a:/d']",
            "volumes: /srv/data/a is not allowed for writing",
        ),
        ("networks: [backend]", BUSYBOX, "network: bridge is not allowed"),
        ("networks: [bridge]", "image: b, network: db", "network: db is not allowed"),
        ("users: ['1000:*']", BUSYBOX, "user: the image's own is not allowed; set one"),
        ("users: ['1000:*']", "image: b, user: '0:0'", "user: 0:0 is not allowed"),
        ("cap_add: [CHOWN]", "image: b, cap_add: [SYS_PTRACE]", "cap_add: SYS_PTRACE is not allowed"),
        ("secrets: [web_*]", "image: b, secrets: [db]", "secrets: db is not allowed"),
        ("secrets: []", "image: b, environment: {P: {secret: db}}", "secrets: db is not allowed"),
        ("max_cpus: 1.5", BUSYBOX, "resources.cpus: it must be set, to at most 1.5"),
        ("max_cpus: 1.5", "image: b, resources: {cpus: 2}", "resources.cpus: 2 is above 1.5"),
        ("max_memory: 1g", "image: b, resources: {memory: 2g}", "resources.memory: 2g is above 1g"),
        (
            "max_memory: 1g",
            "image: b, resources: {memory: 512m}, retry: {max: 2, memory_factor: 2}",
            "resources.memory: 2g is above 1g",
        ),
        ("max_pids: 10", "image: b, resources: {pids: 11}", "resources.pids: 11 is above 10"),
        ("max_timeout: 1h", "image: b, timeout: 2h", "timeout: 2h is above 1h"),
        ("max_timeout: 1h", "image: b, timeout: none", "timeout: it must be set, to at most 1h"),
        ("max_pids: 10", "runtime: process, command: [date]", "runtime: process is not allowed"),
        ("max_gpus: 1", "image: b, resources: {gpus: 2}", "resources.gpus: 2 is above 1"),
        (
            "max_custom: {license: 2}",
            "image: b, resources: {custom: {license: 3}}",
            "resources.custom: 3 of license is above 2",
        ),
        (
            "max_custom: {license: 2}",
            "image: b, resources: {custom: {scratch: 1}}",
            "resources.custom: scratch is not allowed",
        ),
        (
            "runtimes: [process], max_gpus: 0",
            "runtime: process, command: [date], resources: {gpus: 1}",
            "resources.gpus: 1 is above 0",
        ),
        ("max_shm_size: 1g", "image: b, shm_size: 2g", "shm_size: 2g is above 1g"),
        ("groups: ['1*']", "image: b, group_add: [10, 0]", "group_add: 0 is not allowed"),
        ("users: ['1:1']", "image: b, user: '1:1', group_add: [10]", "group_add: 10 is not allowed"),
        (
            "max_tmpfs: 64m",
            "image: b, tmpfs: ['/a:size=64m', '/b:mode=1777,size=1m']",
            "tmpfs: 65m together is above 64m",
        ),
        ("max_tmpfs: 64m", "image: b, tmpfs: [/a]", "tmpfs: /a needs the option size, as in /a:size=64m"),
        (
            "max_tmpfs: 64m",
            "image: b, tmpfs: ['/a:size=50%']",
            "tmpfs: /a needs the option size, as in /a:size=64m",
        ),
    ] {
        assert_eq!(broken(rule, keys), [text], "{rule} / {keys}");
    }
}

#[test]
fn a_rule_says_nothing_about_what_it_does_not_name_and_allows_what_it_lists() {
    for (rule, keys) in [
        ("images: ['busybox:*']", BUSYBOX),
        ("volumes: [/srv/data, cache-*]", "image: b, volumes: ['/srv/data/in:/in', 'cache-1:/c']"),
        ("volumes: ['/srv/data:ro']", "image: b, volumes: ['/srv/data:/in:ro']"),
        ("volumes: [/srv/v1..v2, 'a..b*']", "image: b, volumes: ['/srv/v1..v2:/in', 'a..bc:/c']"),
        ("networks: [bridge, none]", BUSYBOX),
        ("users: ['1000:*']", "image: b, user: '1000:1000'"),
        ("max_cpus: 2, max_memory: 1g", "image: b, resources: {cpus: 2, memory: 1g}"),
        ("max_timeout: 1h", "image: b, timeout: 1h"),
        ("runtimes: [docker, process], images: []", "runtime: process, command: [date]"),
        ("definitions: [daily-*], images: []", BUSYBOX),
        ("max_gpus: 0, max_custom: {}, max_shm_size: 1m, max_tmpfs: 1m", BUSYBOX),
        ("max_gpus: 2, max_custom: {license: 2}", "image: b, resources: {gpus: 2, custom: {license: 1}}"),
        ("users: ['1:1'], groups: [audio]", "image: b, user: '1:1', group_add: audio"),
        ("max_shm_size: 1g, max_tmpfs: 1g", "image: b, shm_size: 1g, tmpfs: ['/tmp:size=1g']"),
    ] {
        assert_eq!(broken(rule, keys), [""; 0], "{rule} / {keys}");
    }
}

#[test]
fn all_rules_that_name_a_definition_hold_together() {
    let policy = parse("rules:\n- {images: ['busybox:*']}\n- {definitions: [night*], networks: [none]}\n")
        .expect("a policy");
    let violations = policy.check_definition(&definition("image: alpine:3"));
    let shown: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "image: alpine:3 is not allowed (rule 1 of the server's policy)",
            "network: bridge is not allowed (rule 2 of the server's policy)"
        ]
    );
}

#[test]
fn a_rule_with_roles_holds_for_the_jobs_that_these_roles_make() {
    let policy = policy("roles: [submitter], networks: [none], max_timeout: 1h");
    let definition = definition("image: b, timeout: 30m, network: none");
    let own = AttemptTimeout::After(Duration::from_secs(7_200));
    let count = |own, role| policy.check_submission(&definition, own, role).len();
    assert_eq!(policy.check_definition(&definition), []);
    assert_eq!(count(None, Role::Submitter), 0);
    assert_eq!(count(Some(own), Role::Submitter), 1, "its own timeout counts");
    assert_eq!(count(Some(AttemptTimeout::Unlimited), Role::Submitter), 1);
    assert_eq!(count(Some(own), Role::Operator), 0);
}

#[test]
fn a_wrong_policy_is_refused_with_its_fault() {
    for (text, fault) in [
        ("rules: [{imagess: []}]", "imagess"),
        ("rules: [{images: busybox}]", "line 1"),
        ("rules: [{roles: [viewer]}]", "line 1 column 18: \"viewer\" is not submitter, operator or admin"),
        ("rules: [{}, {runtimes: [podman]}]", "line 1 column 25: \"podman\""),
        ("rules: [{volumes: ['/a:/b']}]", "\"/a:/b\" is neither"),
        ("rules: [{volumes: ['/a/../b']}]", "is neither"),
        ("rules: [{volumes: ['/a/*']}]", "is neither"),
        ("rules: [{volumes: [srv/data]}]", "\"srv/data\" is neither"),
        ("rules: [{volumes: ['']}]", "is neither"),
        ("rules: [{max_cpus: lots}]", "line 1 column 20: \"lots\""),
        ("rules: [{max_memory: 1x}]", "\"1x\""),
        ("version: 2\nrules: []", "this Longshore reads version 1"),
        ("{}", "rules"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.contains(fault), "{text}: {error}");
    }
}
