//! SIGTERM once, twice and three times, and the reports before the process ends.

use std::os::unix::fs::PermissionsExt;

use futures_util::SinkExt;
use longshore_client::OnTerm;
use protocol::order::Configure;
use protocol::report::{Outcome, ReleaseCause};
use protocol::wire::{decode_report, encode_order};
use protocol::{ClusterId, Order, Report, RuntimeKind};
use tokio_tungstenite::tungstenite::Message;

use crate::stub::{Peer, Stub, Worker, assignment, definition, soon, token};

/// Acknowledges everything until the worker is gone; returns its reports.
async fn serve(mut peer: Peer) -> Vec<Report> {
    let mut heard = Vec::new();
    loop {
        match peer.message().await {
            Some(Message::Binary(frame)) => {
                let report = decode_report(&frame).expect("is well-formed").expect("is known");
                let last = match &report {
                    Report::Running(it) => Some(it.last()),
                    Report::Success(it) => Some(it.last()),
                    Report::Failure(it) => Some(it.last()),
                    Report::Released(it) => Some(it.last()),
                    _ => None,
                };
                if let Some(last) = last {
                    let frame = encode_order(&Order::Acknowledge(last)).expect("fits");
                    // The worker may have left already.
                    let _ = peer.socket.send(Message::Binary(frame.into())).await;
                }
                heard.push(report);
            }
            Some(Message::Close(_)) | None => return heard,
            Some(_) => {}
        }
    }
}

async fn busy(stub: &Stub, sleep: &str) -> Peer {
    let mut peer = stub.join().await;
    peer.enqueue(1..=4, &[("FAKE_SLEEP", sleep)]).await;
    peer.until(|it| matches!(it, Report::Running(_)).then_some(())).await;
    peer
}

fn released(heard: &[Report]) -> Vec<(protocol::Token, ReleaseCause)> {
    let lists =
        heard.iter().filter_map(|it| if let Report::Released(it) = it { Some(&it.list) } else { None });
    lists.flatten().map(|it| (it.token, it.cause)).collect()
}

fn outcomes(heard: &[Report]) -> Vec<Outcome> {
    let lists =
        heard.iter().filter_map(|it| if let Report::Failure(it) = it { Some(&it.list) } else { None });
    lists.flatten().map(|it| it.outcome).collect()
}

#[tokio::test]
async fn an_idle_worker_leaves_at_once() {
    let stub = Stub::bind().await;
    let worker = Worker::start(&stub);
    let peer = stub.join().await;
    worker.term().await;
    let heard = serve(peer).await;
    assert!(matches!(&heard[..], [Report::Condition(it)] if it.draining), "{heard:?}");
    worker.left().await;
}

#[tokio::test]
async fn a_drained_worker_releases_waiting_attempts_and_finishes_running_ones() {
    let stub = Stub::bind().await;
    let worker = Worker::start(&stub);
    let peer = busy(&stub, "300ms").await;
    worker.term().await;

    let heard = serve(peer).await;

    assert_eq!(released(&heard), [(token(3), ReleaseCause::Draining), (token(4), ReleaseCause::Draining)]);
    let successes =
        heard.iter().filter_map(|it| if let Report::Success(it) = it { Some(it.list.len()) } else { None });
    assert_eq!(successes.sum::<usize>(), 2);
    worker.left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_worker_removes_ended_containers() {
    let (stub, engine) = (Stub::bind().await, tempfile::tempdir().expect("a directory"));
    let name = token(1).container_name(ClusterId(0xc1));
    let container = serde_json::json!({
        "Id": "abc", "Name": format!("/{name}"), "Created": "2026-01-01T00:00:00Z", "Image": "app",
        "Labels": {
            "longshore.cluster": ClusterId(0xc1).to_string(), "longshore.worker": "7",
            "longshore.job": "1", "longshore.fence": "1", "longshore.nonce": token(1).nonce.to_string(),
        },
        "State": {
            "Status": "exited", "ExitCode": 0,
            "StartedAt": "2026-01-01T00:00:00Z", "FinishedAt": "2026-01-01T00:00:01Z",
        },
    });
    let script = format!(
        "#!/bin/sh\ncd {}
        case $1 in
            info) echo engine 2;;
            version) echo 28.2.2;;
            image) exit 0;;
            run) echo '{container}' > {name}; while [ ! -e go ]; do sleep 0.05; done;;
            inspect) exec cat $7;;
            rm) shift 3; while [ ! -e closed ]; do sleep 0.05; done; rm $*; echo $*;;
            events) exec sleep 600;;
        esac\n",
        engine.path().display()
    );
    let program = engine.path().join("docker");
    std::fs::write(&program, script).expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let worker = Worker::start_with(&stub, |config| config.runtimes.docker = Some(program));
    let mut peer = stub.join().await;
    let mut docker = definition(&[]);
    docker.container.runtime = RuntimeKind::Docker;
    docker.container.image = "app".into();
    peer.say(Order::Definitions(vec![docker])).await;
    peer.say(Order::Enqueue(vec![assignment(1, &[])])).await;
    peer.until(|it| matches!(it, Report::Running(_)).then_some(())).await;
    worker.term().await;
    std::fs::write(engine.path().join("go"), "").expect("written");

    // The engine is slower than the last acknowledgement.
    serve(peer).await;
    std::fs::write(engine.path().join("closed"), "").expect("written");

    let attempt = worker.dir.path().join("attempts/1-1");
    let Worker { task, dir: _state, .. } = worker;
    soon("the worker to leave", task).await.expect("does not panic").expect("leaves without error");
    assert!(!engine.path().join(name).exists(), "its container is gone");
    assert!(!attempt.exists(), "and its directory");
}

#[tokio::test]
async fn a_second_sigterm_stops_what_runs() {
    let stub = Stub::bind().await;
    let worker = Worker::start(&stub);
    let peer = busy(&stub, "1h").await;
    worker.term().await;
    worker.term().await;

    let heard = serve(peer).await;

    assert_eq!(outcomes(&heard), [Outcome::Interrupted, Outcome::Interrupted]);
    worker.left().await;
}

#[tokio::test]
async fn a_detaching_worker_releases_waiting_attempts_and_leaves_the_rest_running() {
    let stub = Stub::bind().await;
    let worker = Worker::start_with(&stub, |config| config.on_term = OnTerm::Detach);
    let peer = busy(&stub, "1h").await;
    worker.term().await;

    let heard = serve(peer).await;

    assert_eq!(released(&heard).len(), 2);
    assert!(outcomes(&heard).is_empty());
    worker.left().await;
}

#[tokio::test]
async fn a_worker_without_its_server_can_still_be_stopped() {
    let stub = Stub::bind().await;
    let worker = Worker::start(&stub);
    let peer = busy(&stub, "1h").await;
    drop(peer);
    drop(stub);
    worker.term().await;
    worker.term().await;
    worker.left().await;
}

#[tokio::test]
async fn the_server_can_drain_a_worker() {
    let stub = Stub::bind().await;
    let worker = Worker::start(&stub);
    let mut peer = stub.join().await;
    peer.say(Order::Configure(Configure { drain: true, ..Configure::default() })).await;
    serve(peer).await;
    worker.left().await;
}
