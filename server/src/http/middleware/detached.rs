//! Changes that go on without their client.

use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::http::middleware::problem::Problem;

/// Runs a change to its end, for the actor and the note of the present request. A client that leaves ends the handler of its request; it
/// must not end a change between the store and the memory.
///
/// # Errors
/// Those of the change.
pub(crate) async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    let (actor, note) = (Actor::current(), note::current());
    let change = async move { note.serve(actor.serve(change)).await };
    tokio::spawn(change).await.unwrap_or_else(|error| Err(Problem::internal(error)))
}
