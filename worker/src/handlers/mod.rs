//! One file per kind of input. A function `on_…` handles an input, an order or an event of a runtime; the others are steps that several of them
//! share.

pub(crate) mod availability;
pub(crate) mod connect;
pub(crate) mod end;
pub(crate) mod enqueue;
pub(crate) mod pull;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod shutdown;
pub(crate) mod start_failures;
pub(crate) mod stop;
pub(crate) mod tick;
