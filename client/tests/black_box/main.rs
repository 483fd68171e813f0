//! The worker process against a scripted server: real sockets, real frames, the fake runtime.

mod connecting;
mod frozen_server;
mod leaving;
mod running;
mod stub;
