//! A server of an earlier version, as `cargo xtask freeze` has kept its orders: today's worker answers each of them.
//!
//! A release always speaks today's format. A version with a dash is a draft, and counts for as long as the format is the same.

use std::path::Path;

use futures_util::SinkExt;
use protocol::report::{Phase, ReleaseCause};
use protocol::{JobId, Report, WIRE_FORMAT};
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;

use crate::stub::{Peer, Stub, Worker};

#[tokio::test]
async fn the_worker_answers_every_order_of_a_frozen_server() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../frozen");
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let Ok(text) = std::fs::read_to_string(entry.path().join("frames.json")) else { continue };
        let version = entry.file_name().into_string().expect("a version");
        let frames: Value = serde_json::from_str(&text).expect("is JSON");
        let frames = frames["valid"].as_array().expect("a list");
        let hello = frames.iter().find(|frame| frame["name"] == "Hello").expect("a Hello");
        if hello["fields"]["format"] != WIRE_FORMAT {
            assert!(version.contains('-'), "the wire format of the release {version} has changed");
            eprintln!(
                "not tested: the draft {version} has another wire format; cargo xtask freeze {version} renews it"
            );
            continue;
        }
        play(frames).await;
    }
}

async fn play(frames: &[Value]) {
    let stub = Stub::bind().await;
    let _worker = Worker::start(&stub);
    let mut peer = stub.accept().await;
    peer.hello().await;
    say(&mut peer, frames, "Welcome").await;
    peer.until(|report| matches!(report, Report::Inventory(_)).then_some(())).await;
    say(&mut peer, frames, "Reconciled").await;
    say(&mut peer, frames, "Pulse").await;

    // This worker does not offer the GPU of the attempt.
    say(&mut peer, frames, "Definitions").await;
    say(&mut peer, frames, "Enqueue").await;
    let released = peer
        .until(|report| match report {
            Report::Released(it) => it.list.into_iter().next(),
            _ => None,
        })
        .await;
    assert_eq!((released.token.job, released.cause), (JobId(12), ReleaseCause::Full), "{released:?}");

    say(&mut peer, frames, "Cancel").await;
    assert_eq!(unknown(&mut peer).await, JobId(10));
    say(&mut peer, frames, "Recall").await;
    assert_eq!(unknown(&mut peer).await, JobId(13));
    say(&mut peer, frames, "Configure").await;
    let condition = peer
        .until(|report| match report {
            Report::Condition(it) => Some(it),
            _ => None,
        })
        .await;
    assert_eq!((condition.slots, condition.draining), (3, false));
    say(&mut peer, frames, "OutputAcknowledge").await;
    say(&mut peer, frames, "GoAway").await;
    peer.closed().await;
}

async fn say(peer: &mut Peer, frames: &[Value], name: &str) {
    let frame = frames.iter().find(|frame| frame["name"] == name && frame["direction"] == "to_worker");
    let digits = frame.and_then(|frame| frame["hex"].as_str()).expect("a frame with bytes").as_bytes();
    let byte =
        |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("a byte");
    let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
    peer.socket.send(Message::Binary(bytes.into())).await.expect("is sent");
}

/// The job of an attempt that the worker says it does not know.
async fn unknown(peer: &mut Peer) -> JobId {
    peer.until(|report| match report {
        Report::Status(list) => list.into_iter().find(|(_, phase)| *phase == Phase::Unknown),
        _ => None,
    })
    .await
    .0
    .job
}
