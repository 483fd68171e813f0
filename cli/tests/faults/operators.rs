//! Decisions of operators about jobs and workers: they survive `kill -9` of the server, and late messages do not undo them.

mod cancel;
mod drain;
mod release;
