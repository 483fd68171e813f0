//! Images: their platforms, the answers of registries, and the consequences for the job.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use longshore_client::runtime::docker::Config;
use protocol::ContainerSpec;
use protocol::container::PullPolicy;
use protocol::report::{Phase, ReleaseCause};
use worker::input::{Exit, RuntimeEvent, StartFailure};

use crate::support::{DockerFixture, Outcome, shell, spec, stand_in};

/// Short delays and at most three tries. Each attempt asks the registry itself.
fn quick() -> Config {
    let pull_retries = vec![Duration::from_millis(10); 3];
    Config { pull_retries, outage_shared_for: Duration::ZERO, ..Config::default() }
}

fn wanted(policy: PullPolicy) -> ContainerSpec {
    ContainerSpec { pull_policy: policy, ..spec(&["true"]) }
}

fn not_started(outcome: &Outcome) -> (StartFailure, &str) {
    match outcome {
        Outcome::Ended(Exit::NotStarted { fault, message, .. }, _) => (*fault, message),
        other => panic!("it started: {other:?}"),
    }
}

fn calls(dir: &Path, what: &str) -> usize {
    let calls = std::fs::read_to_string(dir.join("calls")).unwrap_or_default();
    calls.lines().filter(|it| it.starts_with(what)).count()
}

/// A stand-in that records its arguments; it has no image and no container.
fn script(dir: &Path, cases: &str) -> Config {
    let script = format!(
        "cd {0}
        case $1 in
            image | pull | run) echo $* >> calls;;
            version) echo 1; exit;;
            events) exec sleep 600;;
        esac
        case $1 in
            inspect) echo \"Error: No such container: $7\" >&2; exit 1;;
            {cases}
        esac",
        dir.display()
    );
    Config { program: stand_in(dir, &script), ..quick() }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_for_another_platform_is_pulled_for_the_one_that_is_wanted() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = script(
        dir.path(),
        "image) [ -e pulled ] && echo id2 linux/arm64/v8 || echo id1 linux/amd64/;;
        pull) touch pulled;;",
    );
    let mut fixture = DockerFixture::without_image(config);
    let arm = |policy| ContainerSpec { platform: Some("linux/arm64".into()), ..wanted(policy) };
    let outcome = fixture.run(1, arm(PullPolicy::Never)).await;
    let (fault, message) = not_started(&outcome);
    assert!(fault == StartFailure::Pull && message.contains("for linux/arm64"), "{message}");
    assert_eq!((calls(dir.path(), "pull"), calls(dir.path(), "run")), (0, 0));

    fixture.run(2, arm(PullPolicy::Missing)).await;
    assert_eq!(calls(dir.path(), "pull --platform=linux/arm64"), 1);
    assert_eq!(calls(dir.path(), "run"), 1);
    // The image is there now.
    fixture.run(3, arm(PullPolicy::Missing)).await;
    assert_eq!((calls(dir.path(), "pull"), calls(dir.path(), "run")), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_platform_is_not_the_hosts_fault() {
    let dir = tempfile::tempdir().expect("a directory");
    // The registry provides the image.
    let config = script(
        dir.path(),
        "image) echo id linux/amd64/;;
        run) echo 'docker: Error response from daemon: image with reference x was found but does not match the specified platform: wanted linux/arm64, actual: linux/amd64' >&2; exit 125;;",
    );
    let mut fixture = DockerFixture::without_image(config);
    let arm = ContainerSpec { platform: Some("linux/arm64".into()), ..wanted(PullPolicy::Missing) };
    let outcome = fixture.run(1, arm).await;
    let (fault, message) = not_started(&outcome);
    assert!(fault == StartFailure::Pull && message.contains("wanted linux/arm64"), "{fault:?} {message}");
    assert_eq!(calls(dir.path(), "pull"), calls(dir.path(), "run"), "it was looked for again each time");
}

#[tokio::test(flavor = "multi_thread")]
async fn dockers_message_about_a_failed_try_is_not_output_of_the_next() {
    let dir = tempfile::tempdir().expect("a directory");
    // The image is removed between a look at it and the first try.
    let script = format!(
        "cd {0}
        case $1 in
            pull) exit 0;;
            run) [ -e tried ] || {{ touch tried; echo 'docker: Error response from daemon: No such image: x.' >&2; exit 125; }};;
        esac
        exec docker \"$@\"",
        dir.path().display()
    );
    let config = Config { program: stand_in(dir.path(), &script), ..Config::default() };
    let Some(mut fixture) = DockerFixture::with(config) else { return };
    let token = fixture.start(1, shell("echo out; echo err >&2"));
    let outcome = fixture.outcome(token).await;
    assert!(matches!(outcome, Outcome::Ended(Exit::Ran { code: 0, .. }, _)), "{outcome:?}");
    assert!(dir.path().join("tried").exists());
    assert_eq!(fixture.output(token).await, (b"out\n".to_vec(), b"err\n".to_vec(), false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_at_a_pull_is_the_hosts_fault() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = script(
        dir.path(),
        "image) exit 1;;
        pull) echo 'write /var/lib/docker/tmp/GetImageBlob1: no space left on device' >&2; exit 1;;",
    );
    let mut fixture = DockerFixture::without_image(config);
    let outcome = fixture.run(1, wanted(PullPolicy::Missing)).await;
    let (fault, message) = not_started(&outcome);
    assert!(fault == StartFailure::Host && message.contains("no space left"), "{message}");
    assert_eq!(calls(dir.path(), "pull"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_that_wait_for_a_failing_pull_share_its_failure() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = format!(
        "cd {0}
        case $1 in
            image) exit 1;;
            pull) echo pull >> calls; while [ ! -e go ]; do sleep 0.05; done; echo 'manifest unknown' >&2; exit 1;;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let retries = Config { pull_retries: vec![Duration::from_millis(10)], ..Config::default() };
    let mut fixture =
        DockerFixture::without_image(Config { program: stand_in(dir.path(), &script), ..retries });
    let tokens = [1, 2, 3].map(|job| fixture.start(job, wanted(PullPolicy::Missing)));
    for token in tokens {
        progressed(&mut fixture, token, Phase::Pulling { percent: None, failures: 0 }).await;
    }
    std::fs::write(dir.path().join("go"), "").expect("written");
    for token in tokens {
        let outcome = fixture.outcome(token).await;
        let Outcome::Ended(Exit::NotStarted { fault: StartFailure::Pull, message, .. }, _) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(message.contains("manifest unknown"), "{message}");
    }
    let calls = std::fs::read_to_string(dir.path().join("calls")).expect("it was called");
    assert_eq!(calls.lines().count(), 2, "one pull and its one retry");
    // A later attempt tries again.
    fixture.run(4, wanted(PullPolicy::Missing)).await;
    let calls = std::fs::read_to_string(dir.path().join("calls")).expect("it was called");
    assert_eq!(calls.lines().count(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_attempts_that_wait_for_a_pull_see_its_progress() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = script(
        dir.path(),
        "image) [ -e pulled ];;
        pull)
            printf '%s\\n' '1: Pulling from app' 'a: Already exists' 'b: Pulling fs layer' 'c: Pulling fs layer'
            printf '%s\\n' 'c: Download complete' 'c: Pull complete'
            while [ ! -e go ]; do sleep 0.05; done
            touch pulled;;",
    );
    let mut fixture = DockerFixture::without_image(config);
    let tokens = [1, 2].map(|job| fixture.start(job, wanted(PullPolicy::Missing)));
    for token in tokens {
        progressed(&mut fixture, token, Phase::Pulling { percent: Some(50), failures: 0 }).await;
    }
    std::fs::write(dir.path().join("go"), "").expect("written");
    for token in tokens {
        progressed(&mut fixture, token, Phase::Starting).await;
    }
    assert_eq!(calls(dir.path(), "pull"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_tries_of_a_pull_are_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = script(
        dir.path(),
        "image) exit 1;;
        pull)
            echo 'a: Pulling fs layer'
            if [ ! -e twice ]; then
                if [ -e once ]; then touch twice; else touch once; fi
                echo 'manifest unknown' >&2; exit 1
            fi
            echo 'a: Download complete'
            while [ ! -e go ]; do sleep 0.05; done;;",
    );
    let mut fixture = DockerFixture::without_image(config);
    let token = fixture.start(1, wanted(PullPolicy::Missing));
    progressed(&mut fixture, token, Phase::Pulling { percent: Some(50), failures: 2 }).await;
    std::fs::write(dir.path().join("go"), "").expect("written");
    progressed(&mut fixture, token, Phase::Starting).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_after_a_stopped_pull_starts_afresh() {
    let dir = tempfile::tempdir().expect("a directory");
    let cases = "image) exit 1;;
        pull) echo 'a: Pulling fs layer'; [ -e before ] && echo 'a: Download complete'; touch before; [ -e failed ] && exec sleep 600
            touch failed; echo 'manifest unknown' >&2; exit 1;;";
    let mut fixture = DockerFixture::without_image(script(dir.path(), cases));
    let stopped = fixture.start(1, wanted(PullPolicy::Missing));
    progressed(&mut fixture, stopped, Phase::Pulling { percent: Some(50), failures: 1 }).await;
    fixture.ask_to_stop(stopped, Duration::from_secs(1));
    fixture.event(|it| matches!(it, RuntimeEvent::Ended { .. }).then_some(())).await;

    let next = fixture.start(2, wanted(PullPolicy::Missing));
    let first = fixture
        .event(|it| match it {
            RuntimeEvent::Progressed(token, phase) if *token == next => Some(*phase),
            _ => None,
        })
        .await;
    assert_eq!(first, Phase::Pulling { percent: None, failures: 0 });
}

async fn progressed(fixture: &mut DockerFixture, token: protocol::Token, phase: Phase) {
    let expected = RuntimeEvent::Progressed(token, phase);
    fixture.event(|it| (*it == expected).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_pull_fails_after_three_tries() {
    let Some(mut fixture) = DockerFixture::with(quick()) else { return };
    let registry =
        registry("404 Not Found", r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#);
    for (job, policy) in [(1, PullPolicy::Missing), (2, PullPolicy::Never), (3, PullPolicy::Always)] {
        let image = format!("{registry}/nosuch:1");
        let outcome = fixture.run(job, ContainerSpec { image, ..wanted(policy) }).await;
        assert_eq!(not_started(&outcome).0, StartFailure::Pull, "{outcome:?}");
    }
    let outcome = fixture.run(4, spec(&["true"])).await;
    assert!(matches!(outcome, Outcome::Ended(Exit::Ran { code: 0, .. }, _)), "{outcome:?}");

    let dir = tempfile::tempdir().expect("a directory");
    let no = "image) exit 1;;
        pull) echo 'manifest for app:9 not found: manifest unknown' >&2; exit 1;;";
    let mut fixture = DockerFixture::without_image(script(dir.path(), no));
    let outcome = fixture.run(1, wanted(PullPolicy::Missing)).await;
    assert_eq!((not_started(&outcome).0, calls(dir.path(), "pull")), (StartFailure::Pull, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_outage_costs_the_job_nothing_for_an_hour() {
    let Some(mut fixture) = DockerFixture::with(quick()) else { return };
    for (job, image) in [
        (1, format!("{}/app:1", registry("500 Internal Server Error", ""))),
        (2, format!("{}/app:1", registry("503 Service Unavailable", ""))),
        (3, "127.0.0.1:1/app:1".into()),
    ] {
        let outcome = fixture.run(job, ContainerSpec { image, ..wanted(PullPolicy::Missing) }).await;
        let Outcome::Refused(ReleaseCause::RuntimeUnavailable, why) = &outcome else { panic!("{outcome:?}") };
        assert!(why.contains("registry"), "{why}");
    }
    let mut fixture = DockerFixture::without_image(Config { registry_away_max: Duration::ZERO, ..quick() });
    let image = "127.0.0.1:1/app:1".into();
    let outcome = fixture.run(1, ContainerSpec { image, ..wanted(PullPolicy::Missing) }).await;
    assert_eq!(not_started(&outcome).0, StartFailure::Pull, "{outcome:?}");
}

/// An engine whose first pull never ends; its process number is in `pulling`.
fn stalled(dir: &Path) -> Config {
    script(
        dir,
        "image) exit 1;;
        pull) [ -e pulling ] && exit 0; echo $$ > pulling; exec sleep 600;;",
    )
}

fn hasty() -> ContainerSpec {
    ContainerSpec { pull_timeout: Duration::from_secs(1), ..wanted(PullPolicy::Missing) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_above_its_timeout_is_killed_and_repeated_for_the_next_attempt() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut fixture = DockerFixture::without_image(stalled(dir.path()));
    unreachable(&mut fixture, 1, hasty()).await;
    let outcome = fixture.run(2, hasty()).await;
    assert_eq!(calls(dir.path(), "run"), 1, "{outcome:?}");
    let pulling = std::fs::read_to_string(dir.path().join("pulling")).expect("it was begun");
    let words = Path::new("/proc").join(pulling.trim()).join("cmdline");
    fixture.until("the first pull is killed", || std::fs::read(&words).unwrap_or_default().is_empty()).await;
}

/// Runs an attempt that is given back, and returns the reason.
async fn unreachable(fixture: &mut DockerFixture, job: u64, spec: ContainerSpec) -> String {
    match fixture.run(job, spec).await {
        Outcome::Refused(ReleaseCause::RuntimeUnavailable, why) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_does_not_wait_for_a_registry_that_is_away() {
    let dir = tempfile::tempdir().expect("a directory");
    let cases = "image) exit 1;;
        pull)
            [ -e hang ] && { touch hangs; exec sleep 600; }
            [ -e begin ] && { echo 'a: Pulling fs layer'; echo 'a: Download complete'; exec sleep 600; }
            echo 'dial tcp: lookup registry: no such host' >&2; exit 1;;";
    let config = script(dir.path(), cases);
    let mut fixture = DockerFixture::without_image(config.clone());
    let pulls = |count| assert_eq!(calls(dir.path(), "pull"), count);
    let why = unreachable(&mut fixture, 1, wanted(PullPolicy::Missing)).await;
    assert!(why.contains("no such host"), "{why}");
    pulls(1);
    // One attempt asks again. The others would only take places.
    std::fs::write(dir.path().join("hang"), "").expect("written");
    let asks = fixture.start(2, wanted(PullPolicy::Missing));
    fixture.until("it is asked", || dir.path().join("hangs").exists()).await;
    let why = unreachable(&mut fixture, 3, wanted(PullPolicy::Missing)).await;
    assert!(why.contains("no such host"), "{why}");
    pulls(2);
    fixture.ask_to_stop(asks, Duration::from_secs(1));
    fixture.event(|it| matches!(it, RuntimeEvent::Ended { .. }).then_some(())).await;
    // It answers: all wait for the image.
    std::fs::remove_file(dir.path().join("hang")).expect("it was there");
    std::fs::write(dir.path().join("begin"), "").expect("written");
    for job in [4, 5] {
        let token = fixture.start(job, wanted(PullPolicy::Missing));
        progressed(&mut fixture, token, Phase::Pulling { percent: Some(50), failures: 0 }).await;
    }
    pulls(3);

    // Attempts that the server had sent before it knew share the failure.
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config { outage_shared_for: Duration::from_secs(600), ..script(dir.path(), cases) };
    let mut fixture = DockerFixture::without_image(config);
    for job in 1..=3 {
        unreachable(&mut fixture, job, wanted(PullPolicy::Missing)).await;
    }
    assert_eq!(calls(dir.path(), "pull"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_times_out_at_every_try_is_the_registrys_fault() {
    for (registry_away_max, is_over) in [(quick().registry_away_max, false), (Duration::ZERO, true)] {
        let dir = tempfile::tempdir().expect("a directory");
        let config = Config { registry_away_max, pull_retries: Vec::new(), ..stalled(dir.path()) };
        let mut fixture = DockerFixture::without_image(config);
        let message = match fixture.run(1, hasty()).await {
            Outcome::Refused(ReleaseCause::RuntimeUnavailable, why) if !is_over => why,
            Outcome::Ended(Exit::NotStarted { fault: StartFailure::Pull, message, .. }, _) if is_over => {
                message
            }
            other => panic!("{other:?}"),
        };
        assert!(message.ends_with("the pull took longer than 1 s"), "{message}");
        assert!(calls(dir.path(), "pull") <= 1);
        let away = |it: &RuntimeEvent| matches!(it, RuntimeEvent::Availability(_, it) if !it.is_available());
        assert!(!fixture.past_events.iter().any(away), "the engine is well: {:?}", fixture.past_events);
    }
}

/// A registry with this answer to every request.
fn registry(status: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for asker in listener.incoming().flatten() {
            // Clients that try TLS close the connection.
            drop(answer(asker, status, body));
        }
    });
    address
}

fn answer(asker: TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    let mut lines = BufReader::new(&asker).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|it| !it.is_empty()) {}
    let (status, body) =
        if request.contains(" /v2/ ") && status.starts_with('4') { ("200 OK", "") } else { (status, body) };
    let (length, kind) = (body.len(), "application/json");
    write!(
        &asker,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}
