//! The keys about retries, losses, waits, limits and hooks.

use std::path::Path;
use std::time::Duration;

use longshore_server::config::jobs_file::{Environment, parse, parse_stored};
use protocol::order::Intervals;
use protocol::report::Outcome;
use scheduler::definition::{Backoff, Delays, LossPolicy, OnLost, RetryOn, RetryPolicy, WaitLimits};
use scheduler::hooks::HookEvent;
use scheduler::limits::rules::{
    Clear, Concurrency, KeySource, LimitRules, OnDuplicate, OnFull, RateLimit, UniqueRule,
};
use scheduler::placement::rules::RunOn;

use super::only;

#[test]
fn every_key_of_the_policies_arrives() {
    let definition = only(
        "jobs:
  a:
    image: busybox
    timeout: none
    priority: -100
    enabled: false
    resources: {memory: 64m}
    retry: {max: 7, when: [timed_out, oom_killed, failed], exit_codes: [3, 1, 3], on: other, memory_factor: 2.5,
      backoff: {initial: 2s, max: 9s, factor: 1.5}}
    success_exit_codes: [24, 0, 2, 24]
    max_unexpected_retries: 5
    worker_timeout: 90s
    on_lost: wait
    unexpected_retry_delay: 2m
    ping_interval: 500ms
    on_lost_timeout: 2h
    queue_timeout: 10m
    quarantine_timeout: 7 days
",
    );
    assert_eq!((definition.timeout, definition.priority, definition.enabled), (None, -100, false));
    let backoff = Backoff::exponential(Duration::from_secs(2), Duration::from_secs(9), 1500);
    let retry = RetryPolicy {
        max: 7,
        when: vec![Outcome::Failed, Outcome::OomKilled, Outcome::TimedOut],
        exit_codes: vec![1, 3],
        on: RetryOn::Other,
        backoff,
        memory_factor_milli: Some(2_500),
    };
    assert_eq!(definition.retry, retry);
    assert_eq!(definition.success_exit_codes, [2, 24]);
    let delay = Some(Duration::from_secs(120));
    let (after, heartbeat) = (Duration::from_secs(90), Some(Duration::from_millis(500)));
    let loss = LossPolicy { limit: 5, after, on_lost: OnLost::Wait, delay, heartbeat };
    assert_eq!(definition.loss, loss);
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let waits =
        WaitLimits { queue: seconds(600), quarantine: seconds(604_800), silent_worker: seconds(7_200) };
    assert_eq!(definition.waits, waits);
}

#[test]
fn a_wait_without_limit_is_said_by_none_and_needs_a_wait() {
    let waits = |keys: &str| only(&format!("- {{name: a, image: busybox{keys}}}")).waits;
    assert_eq!(waits(", queue_timeout: none, quarantine_timeout: none"), WaitLimits::default());
    assert_eq!(waits(", on_lost: fail, on_lost_timeout: 5m"), WaitLimits::default());
    let plain = only("- {name: a, image: busybox}").revision;
    assert_eq!(only("- {name: a, image: busybox, queue_timeout: none}").revision, plain);
    assert_ne!(only("- {name: a, image: busybox, queue_timeout: 5m}").revision, plain);
}

#[test]
fn a_long_stop_grace_raises_the_time_until_a_worker_is_given_up() {
    let after = |keys: &str| only(&format!("- {{name: a, image: busybox, {keys}}}")).loss.after.as_secs();
    assert_eq!(after("stop_grace_period: 45s"), 60);
    assert_eq!(after("stop_grace_period: 5m"), 315);
    assert_eq!(after("lost_after: 30s"), 30);
}

#[test]
fn a_shorter_lease_shortens_the_limits_that_depend_on_it() {
    let intervals = |heartbeat, lease| Intervals {
        heartbeat: Duration::from_millis(heartbeat),
        lease: Duration::from_millis(lease),
        ..Intervals::default()
    };
    let environment = Environment::default().with_intervals(intervals(500, 3_000));
    let read = |keys: &str| {
        let text = format!("- {{name: a, image: busybox, self_fence: true, {keys}}}");
        parse(&text, Path::new("jobs.yaml"), &environment)
    };
    let loaded = read("stop_grace_period: 4s, lost_after: 6s").expect("long enough");
    let definition = &loaded.definitions[0].definition;
    assert_eq!(definition.loss.after, Duration::from_secs(6));
    assert_eq!(definition.container.self_fence, Some(Duration::from_millis(5_500)));
    for (keys, wrong) in [
        ("stop_grace_period: 1s, lost_after: 2s", "2s is too short: at least 3s"),
        ("stop_grace_period: 5s, lost_after: 6s", "the stop grace period plus 1500ms"),
    ] {
        let faults = read(keys).expect_err(keys).to_string();
        assert!(faults.contains(wrong), "{faults}");
    }
    let rare_heartbeats = Environment::default().with_intervals(intervals(10_000, 30_000));
    let read = |keys: &str| {
        let text = format!("- {{name: a, image: busybox, stop_grace_period: 30s, lost_after: 45s{keys}}}");
        parse(&text, Path::new("jobs.yaml"), &rare_heartbeats)
    };
    assert!(read("").is_ok(), "who does not stop it himself need not wait for heartbeats");
    let faults = read(", self_fence: true").expect_err("too short").to_string();
    assert!(faults.contains("the stop grace period plus 20s, here 50s"), "{faults}");
}

#[test]
fn a_number_of_retries_stands_for_a_policy() {
    assert_eq!(
        only("- {name: a, image: busybox, retry: 3}").retry,
        RetryPolicy { max: 3, ..RetryPolicy::default() }
    );
    let raised = only("- {name: a, image: busybox, retry: {backoff: {initial: 1h}}}").retry.backoff;
    assert_eq!(
        (raised.delays.first(), raised.delays.highest()),
        (Duration::from_secs(3600), Duration::from_secs(3600))
    );
}

#[test]
fn exit_codes_alone_exclude_other_outcomes() {
    let retry = |retry: &str| only(&format!("jobs: {{a: {{image: busybox, retry: {retry}}}}}")).retry;
    assert_eq!(retry("{max: 1, exit_codes: 75}").when, [Outcome::Failed]);
    assert_eq!(retry("{max: 1, exit_codes: 75, when: [timed_out]}").when, [Outcome::TimedOut]);
    assert_eq!(retry("{max: 1}").when, RetryPolicy::JOB_BUDGET);
}

#[test]
fn retry_is_merged_key_by_key_and_a_number_is_its_max() {
    let retry = |defaults: &str, own: &str| {
        only(&format!("defaults: {{image: busybox, retry: {defaults}}}\njobs: {{a: {{{own}}}}}")).retry
    };
    let first = |policy: &RetryPolicy| policy.backoff.delays.first().as_secs();

    let merged = retry("2", "retry: {backoff: {initial: 5s}}");
    assert_eq!((merged.max, first(&merged)), (2, 5));

    let whole = "{max: 2, when: [failed], exit_codes: 3, on: other, backoff: {initial: 5s, factor: 3}}";
    let merged = retry(whole, "retry: 5");
    assert_eq!(merged, RetryPolicy { max: 5, ..retry(whole, "") });
    assert_eq!((merged.when, merged.exit_codes, merged.on), (vec![Outcome::Failed], vec![3], RetryOn::Other));

    assert_eq!(retry("2", "retry: {max: 7}").max, 7);
    assert_eq!(retry("2", "retry: 0").max, 0);
    assert_eq!(retry("2", "").max, 2);
}

#[test]
fn backoff_has_four_kinds_and_a_jitter() {
    let backoff = |text: &str| {
        only(&format!("- {{name: a, image: busybox, retry: {{max: 3, backoff: {text}}}}}")).retry.backoff
    };
    let ten = Duration::from_millis(10);
    assert_eq!(backoff("{}"), Backoff::default());
    assert_eq!(backoff("{kind: exponential, initial: 10ms}").delays.first(), ten);
    let linear = Delays::Linear { initial: ten, max: Duration::from_secs(600) };
    assert_eq!(
        backoff("{kind: linear, initial: 10ms, jitter: none}"),
        Backoff { delays: linear, jitter_milli: 0 }
    );
    assert_eq!(backoff("{kind: fixed, initial: 10ms, jitter: full}").delays, Delays::Fixed(ten));
    let listed = backoff("{kind: list, delays: [10ms, 5s], jitter: 0.2}");
    assert_eq!(
        listed,
        Backoff { delays: Delays::List(vec![ten, Duration::from_secs(5)]), jitter_milli: 200 }
    );
    assert_eq!(backoff("{kind: list, delays: 5s}").delays, Delays::List(vec![Duration::from_secs(5)]));
}

#[test]
fn keys_of_another_kind_of_backoff_may_stand_among_the_defaults() {
    let file = "defaults: {image: busybox, retry: {backoff: {initial: 3s, max: 9s, factor: 3}}}\n\
                jobs: {a: {retry: {backoff: {kind: list, delays: [1s]}}}}";
    assert_eq!(only(file).retry.backoff.delays, Delays::List(vec![Duration::from_secs(1)]));
}

#[test]
fn every_key_of_limits_arrives_and_a_number_is_a_limit() {
    let limits = only(
        "
defaults: {concurrency: {group: db}}
jobs:
  a:
    image: busybox
    concurrency: {limit: 3, key: labels.tenant, on_full: cancel_running}
    rate_limit: {limit: 10, per: 1m, burst: 4, key: all}
    max_queued: 50
",
    )
    .limits;
    let expected = LimitRules {
        concurrency: Some(Concurrency {
            limit: 3,
            key: Some(KeySource::Label("tenant".to_owned())),
            group: Some("db".to_owned()),
            on_full: OnFull::CancelRunning,
        }),
        rate: Some(RateLimit {
            limit: 10,
            per: Duration::from_secs(60),
            burst: 4,
            key: Some(KeySource::Constant("all".into())),
        }),
        queued_max: Some(50),
        unique: None,
    };
    assert_eq!(limits, expected);
    let limits = only("- {name: a, image: busybox, concurrency: 2, rate_limit: {limit: 5}}").limits;
    let concurrency = Concurrency { limit: 2, key: None, group: None, on_full: OnFull::Queue };
    let rate = RateLimit { limit: 5, per: Duration::from_secs(1), burst: 1, key: None };
    let expected = LimitRules { concurrency: Some(concurrency), rate: Some(rate), ..LimitRules::default() };
    assert_eq!(limits, expected);
}

#[test]
fn keys_of_limits_can_be_parameters_also_among_the_defaults() {
    let file = "
defaults: {image: busybox, rate_limit: {limit: 5, key: params.size}}
jobs:
  a: {params: {size: {type: integer}}, concurrency: {limit: 1, key: params.size}}
";
    let limits = only(file).limits;
    let size = Some(KeySource::Param("size".to_owned()));
    assert_eq!(limits.concurrency.unwrap().key, size);
    assert_eq!(limits.rate.unwrap().key, size);
}

#[test]
fn unique_has_defaults_and_every_key_of_it_arrives() {
    let unique = |text: &str| only(&format!("- {{name: a, image: busybox, {text}}}")).limits.unique.unwrap();
    let plain = UniqueRule { key: None, on_duplicate: OnDuplicate::Return, clear: Clear::Always };
    assert_eq!(unique("unique: {}"), plain);
    let rule = unique("unique: {key: labels.tenant, on_duplicate: replace, clear: failed}");
    let key = Some(KeySource::Label("tenant".to_owned()));
    assert_eq!(rule, UniqueRule { key, on_duplicate: OnDuplicate::Replace, clear: Clear::Failed });
    let rule = unique(
        "params: {size: {type: integer}}, unique: {key: params.size, on_duplicate: reject, clear: [success]}",
    );
    let key = Some(KeySource::Param("size".to_owned()));
    assert_eq!(rule, UniqueRule { key, on_duplicate: OnDuplicate::Reject, clear: Clear::Success });
    let rule = unique("unique: {key: all, clear: [failed, success]}");
    assert_eq!(rule, UniqueRule { key: Some(KeySource::Constant("all".into())), ..plain });
}

#[test]
fn hooks_name_one_job_or_a_list_and_a_job_lifts_those_of_the_defaults() {
    let text = "defaults: {image: busybox, hooks: {on_failure: alert, on_end: [log, alert]}}
jobs:
  report: {hooks: {on_success: log, on_end: alert}}
  alert: {hooks: {on_failure: [], on_end: []}}
  log: {hooks: {on_failure: [], on_end: []}}";
    let loaded = parse(text, Path::new("jobs.yaml"), &Environment::default()).expect("no loop");
    let hooks = |index: usize| &loaded.definitions[index].definition.hooks;
    let names = |event| hooks(0).of(event).iter().map(|name| &**name).collect::<Vec<_>>();
    assert_eq!(HookEvent::ALL.map(names), [vec![], vec!["log"], vec!["alert"], vec!["alert"]]);
    assert!(hooks(1).is_empty() && hooks(2).is_empty());
    let stored = parse_stored(&loaded.definitions[0].stored).expect("stored");
    assert_eq!(stored.hooks, *hooks(0), "a job keeps its hooks in the store");
    assert_ne!(stored.revision, only("- {name: report, image: busybox}").revision);
}

#[test]
fn a_job_runs_on_one_worker_on_several_or_on_all() {
    let run_on = |keys: &str| only(&format!("- {{name: a, image: busybox{keys}}}")).placement.run_on;
    assert_eq!(run_on(""), RunOn::One);
    for key in ["run_on", "concurrent_worker_cnt"] {
        assert_eq!(run_on(&format!(", {key}: all")), RunOn::All);
        assert_eq!(run_on(&format!(", {key}: 3")), RunOn::Count(3));
        assert_eq!(run_on(&format!(", {key}: \"3\"")), RunOn::Count(3));
        assert_eq!(run_on(&format!(", {key}: 1000")), RunOn::Count(1_000));
        assert_eq!(run_on(&format!(", {key}: one")), RunOn::One);
        assert_eq!(run_on(&format!(", {key}: 1")), RunOn::One);
        assert_eq!(
            run_on(&format!(", {key}: 2, specific_worker_ids: [1, 2], requires: {{zone: a}}")),
            RunOn::Count(2)
        );
    }
    // A name may stand for several workers.
    assert_eq!(run_on(", run_on: 3, workers: [anna]"), RunOn::Count(3));
    let revision = |keys: &str| only(&format!("- {{name: a, image: busybox{keys}}}")).revision;
    assert_eq!(revision(", run_on: one"), revision(""));
    assert_ne!(revision(", run_on: all"), revision(""));
    assert_eq!(revision(", concurrent_worker_cnt: 2"), revision(", run_on: 2"));
}
