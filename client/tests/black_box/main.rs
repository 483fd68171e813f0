//! The worker's body against a server that does what the test says: real sockets, real frames, the fake runtime.

mod connecting;
mod leaving;
mod running;
mod stub;
