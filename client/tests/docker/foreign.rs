//! Two workers of one installation on a real engine: containers that one has left, and their removal by the other.

use std::sync::Arc;

use longshore_client::runtime::docker::Config;
use longshore_client::runtime::{Membership, Runtime};
use protocol::report::Foreign;
use protocol::{Nonce, Token, WorkerId};
use worker::input::RuntimeEvent;

use crate::support::{Desk, spec};

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_another_worker_are_reported_and_removed_only_on_order() {
    let Some(mut gone) = Desk::new() else { return };
    let long = spec(&["sleep", "600"]);
    let [left, kept] = [gone.start(1, long.clone()), gone.start(2, long)];
    gone.started(left).await;
    gone.started(kept).await;
    gone.docker = None;

    let membership = Membership { worker: WorkerId(2), ..gone.membership };
    let state = Arc::new(tempfile::tempdir().expect("a directory"));
    let mut desk = Desk::at(Config::default(), state, membership);
    let own = desk.start(3, spec(&["sleep", "600"]));
    desk.started(own).await;
    let mut told = desk
        .event(|it| match it {
            RuntimeEvent::Foreign(told) if !told.is_empty() => Some(told.clone()),
            _ => None,
        })
        .await;
    told.sort_unstable_by_key(|it| it.token);
    assert_eq!(told, [left, kept].map(|token| Foreign { worker: WorkerId(1), token }));

    let other_life = Token { nonce: Nonce(1), ..kept };
    for token in [left, own, other_life] {
        desk.docker().remove_foreign(token);
        desk.docker().remove_foreign(token);
    }
    desk.until("it is gone", || !desk.exists(left)).await;
    assert!(desk.exists(kept), "nobody has ordered that");
    assert!(desk.exists(own), "our own is stopped in another way");
}
