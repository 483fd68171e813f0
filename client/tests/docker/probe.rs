//! The docker runtime's probe after the worker decided that nothing starts on its engine.

use longshore_client::runtime::Runtime;
use longshore_client::runtime::docker::Config;
use protocol::RuntimeKind;
use protocol::report::Availability;
use worker::input::RuntimeEvent;

use crate::support::{DockerFixture, docker, spec, stand_in};

#[tokio::test(flavor = "multi_thread")]
async fn a_successful_probe_makes_the_engine_available_and_leaves_no_container() {
    let Some(mut fixture) = DockerFixture::new() else { return };
    let available = RuntimeEvent::Availability(RuntimeKind::Docker, Availability::Available);
    let doubted = |it: &RuntimeEvent| {
        matches!(it, RuntimeEvent::Availability(_, Availability::Unavailable(_))).then_some(())
    };
    fixture.run(1, spec(&["true"])).await;
    fixture.docker().probe(spec(&["true"]).into(), "nothing starts".into());
    fixture.event(doubted).await;
    fixture.past_events.clear();
    fixture.event(|it| (*it == available).then_some(())).await;
    let name = format!("longshore-{}-probe-{}", fixture.membership.cluster, fixture.membership.worker);
    assert!(!docker(["inspect", "--type", "container", "--", &name]).status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_repeats_until_the_engine_starts_containers() {
    let dir = tempfile::tempdir().expect("a directory");
    let container = r#"{"Id":"abc","Name":"/NAME","Created":"2026-01-01T00:00:00Z","Image":"app","Labels":{},"State":{"Status":"created",
        "ExitCode":127,"Error":"OCI runtime: /longshore-probe: No such file or directory: unknown","StartedAt":"0001-01-01T00:00:00Z","FinishedAt":"0001-01-01T00:00:00Z"}}"#;
    std::fs::write(dir.path().join("container"), container.replace('\n', "")).expect("written");
    // The first try fails like the jobs before it; the second reaches the program.
    let script = format!(
        "cd {0}
        case $1 in
            run) echo \"$*\" >> tries
                [ $(wc -l < tries) = 1 ] && {{ echo 'docker: Error response from daemon: no space left on device' >&2; exit 125; }}
                exit 127;;
            inspect) [ $(wc -l < tries) = 2 ] && sed s/NAME/$7/ container || {{ echo \"Error: No such container: $7\" >&2; exit 1; }};;
            events) exec sleep 600;;
        esac",
        dir.path().display()
    );
    let mut fixture =
        DockerFixture::without_image(Config { program: stand_in(dir.path(), &script), ..Config::default() });
    let available = RuntimeEvent::Availability(RuntimeKind::Docker, Availability::Available);
    fixture.docker().probe(spec(&["true"]).into(), "three starts failed".into());
    fixture.docker().probe(spec(&["true"]).into(), "three starts failed".into());

    fixture.event(|it| (*it == available).then_some(())).await;

    let why = Availability::Unavailable("three starts failed".into());
    let others = fixture.past_events.iter().filter(|it| **it != available).collect::<Vec<_>>();
    assert_eq!(others, [&RuntimeEvent::Availability(RuntimeKind::Docker, why)]);
    let tries = std::fs::read_to_string(dir.path().join("tries")).expect("it was tried");
    assert_eq!(tries.lines().count(), 2, "{tries}");
    assert!(tries.contains("--entrypoint /longshore-probe"), "{tries}");
}
