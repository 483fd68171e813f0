//! Output of jobs as it reaches the server, and ends of attempts.

use protocol::report::{Chunk, ChunkData, OutputLengths, Stream};
use protocol::{Fence, JobId, Nonce, Timestamp, Token};
use scheduler::job::State;

use super::Server;
use super::facts::attempt;

/// Job 1 writes.
pub(crate) async fn write(server: &Server, fence: u64, stream: Stream, offset: u64, text: impl AsRef<[u8]>) {
    arrive(server, fence, stream, offset, ChunkData::Bytes(text.as_ref().to_vec())).await;
}

/// Something of the output of job 1 arrives.
pub(crate) async fn arrive(server: &Server, fence: u64, stream: Stream, offset: u64, data: ChunkData) {
    let token = Token { job: JobId(1), fence: Fence(fence), nonce: Nonce(7) };
    server.logs.append(vec![Chunk { token, stream, offset, data }]).await.expect("it is stored");
}

/// One job that runs and has written nothing.
pub(crate) async fn silent() -> Server {
    let server = Server::start().await;
    server.post("/api/jobs/resize", "").await;
    server.stand.world().start(1);
    server
}

/// One job that runs and has written two lines and one between them.
pub(crate) async fn running() -> Server {
    let server = silent().await;
    write(&server, 101, Stream::Stdout, 0, "one\n").await;
    write(&server, 101, Stream::Stderr, 0, "oops\n").await;
    write(&server, 101, Stream::Stdout, 4, "two\n").await;
    server
}

/// Ends the job, which has written this number of bytes.
pub(crate) fn end(server: &Server, state: State, exit_code: i32, output: OutputLengths) {
    let mut world = server.stand.world();
    world.record(1).row.attempt.as_mut().expect("it runs").output = output;
    world.end(1, state, exit_code);
}

/// The same, and what is missing may be on its way.
pub(crate) fn end_just_now(server: &Server, output: OutputLengths) {
    end(server, State::Succeeded, 0, output);
    let mut world = server.stand.world();
    world.record(1).row.attempt.as_mut().expect("it ran").ended_at = Some(Timestamp(i64::MAX));
}

/// The attempt ends with this number of bytes of output, and another one runs.
pub(crate) fn try_again(server: &Server, output: OutputLengths) {
    let mut world = server.stand.world();
    let record = world.record(1);
    let mut past = record.row.attempt.take().expect("it runs");
    (past.ended_at, past.output) = (Some(Timestamp(4_000)), output);
    record.past.push(past);
    record.row.attempt = Some(attempt(2, 202));
}
