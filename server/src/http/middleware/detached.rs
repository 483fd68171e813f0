//! Changes that go on without their client.

use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::http::middleware::problem::Problem;

/// Runs a change to its end, for the actor and the note of the present request. A client that leaves ends the handler of its request; it
/// must not end a change between the store and the memory.
///
/// # Errors
/// Those of the change.
pub(crate) async fn run_detached<T: Send + 'static>(
    change: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    let (actor, note) = (Actor::current(), note::current());
    let change = async move { note.serve(actor.serve(change)).await };
    tokio::spawn(change).await.unwrap_or_else(|error| Err(Problem::internal(error)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;
    use crate::auth::role::Role;

    #[tokio::test]
    async fn a_change_goes_on_for_its_actor_when_the_client_leaves() {
        let (go_on, gate) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let change = async move {
            gate.await.unwrap();
            tell.send(Actor::current().token.clone()).unwrap();
            Ok(())
        };
        let mut request =
            Box::pin(Arc::new(Actor::with_token("ci", Role::Admin)).serve(run_detached(change)));
        assert!((&mut request).now_or_never().is_none());
        drop(request);
        go_on.send(()).unwrap();
        assert_eq!(told.await.unwrap().as_deref(), Some("ci"));
    }
}
