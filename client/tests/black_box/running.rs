//! Attempts are run, and their ends are reported until the server acknowledges them.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use protocol::order::{Cancel, OutputMark, ReconcileVerdict, Reconciled, StopCause};
use protocol::report::{ChunkData, Numbered, Outcome, Phase, ReleaseCause, Stream, Succeeded};
use protocol::{Order, Report, ReportNo, Revision, RuntimeKind};

use crate::stub::{Stub, Worker, assignment, definition, soon, token};

fn success(report: Report) -> Option<Numbered<Succeeded>> {
    if let Report::Success(it) = report { Some(it) } else { None }
}

#[tokio::test]
async fn an_attempt_runs_and_its_success_is_reported() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.join().await;

    peer.enqueue(1..=1, &[("FAKE_RESULT", "{\"ok\":1}")]).await;

    let told = peer.until(success).await;
    assert_eq!(told.first, ReportNo(1));
    assert_eq!(told.list[0].token, token(1));
    assert_eq!(told.list[0].result.as_deref(), Some("{\"ok\":1}"));
    assert!(told.list[0].timing.ran.is_some());
}

#[tokio::test]
async fn running_is_reported_before_the_end() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.join().await;

    peer.enqueue(1..=1, &[("FAKE_SLEEP", "1h")]).await;

    let Report::Running(running) = peer.next().await else { panic!("Running comes first") };
    assert_eq!((running.first, running.list[0].token), (ReportNo(1), token(1)));
    let cancel = Cancel { token: token(1), grace: None, cause: StopCause::Cancel };
    peer.say(Order::Cancel(cancel)).await;
    let failed = peer.until(|it| if let Report::Failure(it) = it { Some(it) } else { None }).await;
    assert_eq!((failed.first, failed.list[0].outcome), (ReportNo(2), Outcome::Cancelled));
}

#[tokio::test]
async fn each_way_to_fail_has_its_outcome() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.join().await;
    let cases = [
        (("FAKE_EXIT", "3"), Outcome::Failed, Some(3)),
        (("FAKE_FAIL", "pull"), Outcome::PullFailed, None),
        (("FAKE_FAIL", "start"), Outcome::StartFailed, None),
        (("FAKE_FAIL", "host"), Outcome::HostFailed, None),
    ];
    for (job, (variable, outcome, code)) in (1..).zip(cases) {
        peer.enqueue(job..=job, &[variable]).await;
        let failed = peer.until(|it| if let Report::Failure(it) = it { Some(it) } else { None }).await;
        assert_eq!((failed.list[0].outcome, failed.list[0].exit_code), (outcome, code), "{variable:?}");
        peer.say(Order::Acknowledge(failed.last())).await;
    }
}

#[tokio::test]
async fn many_attempts_share_few_frames() {
    let stub = Stub::bind().await;
    let _worker = Worker::start_with(&stub, |config| config.backlog = 5_000);
    let mut peer = stub.join().await;

    peer.enqueue(1..=3_000, &[]).await;

    let mut told = Vec::new();
    let mut frames = 0;
    while told.len() < 3_000 {
        let part = peer.until(success).await;
        assert_eq!(part.first, ReportNo(told.len() as u64 + 1));
        told.extend(part.list.iter().map(|it| it.token));
        frames += 1;
        peer.say(Order::Acknowledge(part.last())).await;
    }
    told.sort_unstable();
    assert_eq!(told, (1..=3_000).map(token).collect::<Vec<_>>());
    assert!(frames < 1_500, "{frames} frames");
}

#[tokio::test]
async fn unacknowledged_reports_are_repeated_with_their_numbers() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.join().await;
    peer.enqueue(1..=1, &[]).await;
    let first = peer.until(success).await;
    peer.enqueue(2..=2, &[]).await;
    let second = peer.until(success).await;
    drop(peer);

    let mut peer = stub.accept().await;
    peer.welcome(first.last()).await;

    let Report::Success(again) = peer.next().await else { panic!("reports come before the Inventory") };
    assert_eq!((again.first, again.list[0].token), (second.first, token(2)));
    let inventory = peer.reconcile(ReconcileVerdict::Keep).await;
    assert_eq!(inventory.attempts, [(token(2), Phase::Ended)]);
}

#[tokio::test]
async fn an_acknowledged_attempt_is_forgotten() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.join().await;
    peer.enqueue(1..=1, &[]).await;
    let told = peer.until(success).await;
    peer.say(Order::Acknowledge(told.last())).await;
    // A recall of an unknown attempt is answered, so the acknowledgement was processed before.
    peer.say(Order::Recall(vec![token(1)])).await;
    let status = peer.until(|it| if let Report::Status(it) = it { Some(it) } else { None }).await;
    assert_eq!(status, [(token(1), Phase::Unknown)]);
}

#[tokio::test]
async fn an_attempt_with_output_is_forgotten_only_when_its_output_is_acknowledged() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.join().await;
    peer.enqueue(1..=1, &[("FAKE_STDOUT", "hello")]).await;
    let mut chunk = None;
    let mut told = None;
    while chunk.is_none() || told.is_none() {
        match peer.next().await {
            Report::Output(chunks) => chunk = chunks.into_iter().next(),
            Report::Success(it) => told = Some(it),
            _ => {}
        }
    }
    let (chunk, told) = (chunk.expect("came"), told.expect("came"));
    assert_eq!((chunk.stream, chunk.offset), (Stream::Stdout, 0));
    assert_eq!(chunk.data, ChunkData::Bytes(b"hello\n".to_vec()));
    assert_eq!(told.list[0].output.stdout, 6);

    let mut phase = Vec::new();
    peer.say(Order::Acknowledge(told.last())).await;
    peer.say(Order::Recall(vec![token(1)])).await;
    phase.extend(peer.until(|it| if let Report::Status(it) = it { Some(it) } else { None }).await);
    peer.say(Order::OutputAcknowledge(vec![OutputMark {
        token: token(1),
        stream: Stream::Stdout,
        offset: 6,
    }]))
    .await;
    // The mark takes another path than the recall, so the test asks until it has arrived.
    loop {
        peer.say(Order::Recall(vec![token(1)])).await;
        let status = peer.until(|it| if let Report::Status(it) = it { Some(it) } else { None }).await;
        if status == [(token(1), Phase::Unknown)] {
            break;
        }
    }
    assert_eq!(phase, [(token(1), Phase::Ended)]);
}

#[tokio::test]
async fn an_unknown_definition_is_asked_for_and_nothing_fails() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.join().await;
    let assignment = assignment(1, &[]);
    let revision = assignment.revision;

    peer.say(Order::Enqueue(vec![assignment])).await;

    let wanted = peer.until(|it| if let Report::Wanted(it) = it { Some(it) } else { None }).await;
    assert_eq!(wanted, [revision]);
    peer.say(Order::Definitions(vec![definition(&[])])).await;
    assert_eq!(peer.until(success).await.list[0].token, token(1));
}

#[tokio::test]
async fn attempts_beyond_slots_and_backlog_are_released() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.join().await;

    peer.enqueue(1..=6, &[("FAKE_SLEEP", "1h")]).await;

    let released = peer.until(|it| if let Report::Released(it) = it { Some(it.list) } else { None }).await;
    let released: Vec<_> = released.iter().map(|it| (it.token, it.cause)).collect();
    assert_eq!(released, [(token(5), ReleaseCause::Full), (token(6), ReleaseCause::Full)]);
}

#[tokio::test]
async fn nothing_starts_before_the_server_has_reconciled() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.accept().await;
    peer.welcome(ReportNo(0)).await;
    let Report::Inventory(inventory) = peer.next().await else { panic!("the Inventory comes") };
    assert!(inventory.last && inventory.attempts.is_empty());

    peer.enqueue(1..=1, &[]).await;
    peer.say(Order::Recall(vec![token(9)])).await;
    let Report::Status(status) = peer.next().await else { panic!("nothing else is told before") };
    assert_eq!(status, [(token(9), Phase::Unknown)]);

    peer.say(Order::Reconciled(Reconciled { attempts: Vec::new(), last: true })).await;
    assert_eq!(peer.until(success).await.list[0].token, token(1));
}

#[tokio::test]
async fn attempts_that_the_server_does_not_keep_are_stopped_after_a_reconnect() {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.join().await;
    peer.enqueue(1..=1, &[("FAKE_SLEEP", "1h")]).await;
    peer.until(|it| if let Report::Running(it) = it { Some(it) } else { None }).await;
    drop(peer);

    let mut peer = stub.accept().await;
    peer.welcome(ReportNo(1)).await;
    let inventory = peer.reconcile(ReconcileVerdict::Stop).await;

    assert_eq!(inventory.attempts, [(token(1), Phase::Running)]);
    let failed = peer.until(|it| if let Report::Failure(it) = it { Some(it) } else { None }).await;
    assert_eq!((failed.first, failed.list[0].outcome), (ReportNo(2), Outcome::Lost));
}

#[tokio::test]
async fn images_of_attempts_in_the_backlog_stay_when_the_disk_is_full() {
    let (stub, engine) = (Stub::bind().await, tempfile::tempdir().expect("a directory"));
    // Two images that an earlier process has pulled. Containers are not listed before the attempts are here.
    let record =
        r#"{"sha256:1":{"names":["idle:latest"],"used":1},"sha256:2":{"names":["queued:latest"],"used":0}}"#;
    let script = format!(
        r#"#!/bin/sh
        cd {}
        case "$1 $2" in
            "info "*) pwd;;
            "version "*) echo 28.2.2;;
            "events "*) exec sleep 600;;
            "ps "*) [ "$4" = --filter ] && exit; while [ ! -e queued ]; do sleep 0.05; done;;
            "image inspect")
                for it in 1 2; do echo "{{\"id\":\"sha256:$it\",\"tags\":[],\"size\":1}}"; done;;
            "image rm") shift 4; echo $* >> removed; exit 1;;
        esac
"#,
        engine.path().display()
    );
    let program = engine.path().join("docker");
    std::fs::write(&program, script).expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let worker = Worker::start_with(&stub, |config| {
        std::fs::write(config.state_dir.join("images.json"), record).expect("written");
        config.runtimes.docker = Some(program);
        config.image_gc = longshore_client::config::parse_image_gc("high=1% low=0%").ok();
        config.slots = 1;
    });
    let mut peer = stub.join().await;
    let mut docker = definition(&[]);
    docker.revision = Revision(77);
    docker.container.runtime = RuntimeKind::Docker;
    docker.container.image = "docker.io/library/queued".into();
    peer.say(Order::Definitions(vec![definition(&[("FAKE_SLEEP", "1h")]), docker])).await;
    let mut waiting = assignment(2, &[]);
    waiting.revision = Revision(77);
    peer.say(Order::Enqueue(vec![assignment(1, &[("FAKE_SLEEP", "1h")]), waiting])).await;
    peer.until(|it| matches!(it, Report::Running(_)).then_some(())).await;
    std::fs::write(engine.path().join("queued"), "").expect("written");

    let removed = || std::fs::read_to_string(engine.path().join("removed")).unwrap_or_default();
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let tried = async {
        while removed().is_empty() {
            looks.tick().await;
        }
    };
    soon("a removal", tried).await;
    assert_eq!(removed(), "sha256:1\n", "the other one was not used for longer, but is needed");
    drop(worker);
}
