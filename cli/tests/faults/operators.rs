//! What people decide about jobs and workers: it is done, it survives `kill -9` of the server, and nobody undoes it by being late.

mod cancel;
mod drain;
mod release;
