//! Two workers of one installation on a real engine: containers that one has left, and their removal by the other.

use std::sync::Arc;

use longshore_client::runtime::docker::Config;
use longshore_client::runtime::{Membership, Runtime};
use protocol::report::Foreign;
use protocol::{Nonce, Token, WorkerId};
use worker::input::RuntimeEvent;

use crate::support::{DockerFixture, spec};

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_another_worker_are_reported_and_removed_only_on_order() {
    let Some(mut gone) = DockerFixture::new() else { return };
    let long = spec(&["sleep", "600"]);
    let [left, kept] = [gone.start(1, long.clone()), gone.start(2, long)];
    gone.started(left).await;
    gone.started(kept).await;
    gone.docker = None;

    let membership = Membership { worker: WorkerId(2), ..gone.membership };
    let state = Arc::new(tempfile::tempdir().expect("a directory"));
    let mut fixture = DockerFixture::at(Config::default(), state, membership);
    let own = fixture.start(3, spec(&["sleep", "600"]));
    fixture.started(own).await;
    let mut found = fixture
        .event(|it| match it {
            RuntimeEvent::Foreign(found) if !found.is_empty() => Some(found.clone()),
            _ => None,
        })
        .await;
    found.sort_unstable_by_key(|it| it.token);
    assert_eq!(found, [left, kept].map(|token| Foreign { worker: WorkerId(1), token }));

    let other_life = Token { nonce: Nonce(1), ..kept };
    for token in [left, own, other_life] {
        fixture.docker().remove_foreign(token);
        fixture.docker().remove_foreign(token);
    }
    fixture.until("it is gone", || !fixture.exists(left)).await;
    assert!(fixture.exists(kept), "nobody has ordered that");
    assert!(fixture.exists(own), "our own is stopped in another way");
}
