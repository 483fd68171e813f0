//! A verb per file: what the worker does about each thing that can happen to it.

pub(crate) mod connect;
pub(crate) mod doubt;
pub(crate) mod end;
pub(crate) mod enqueue;
pub(crate) mod leave;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod stop;
pub(crate) mod tick;
