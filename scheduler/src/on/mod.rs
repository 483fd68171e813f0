//! A verb per file: what each kind of input does.

mod cancel;
mod close;
mod connect;
mod inventory;
mod operate;
mod report;
mod submit;
mod tick;

pub(crate) use cancel::cancel;
pub(crate) use close::queue;
pub(crate) use connect::{connect, disconnect, hear};
pub(crate) use operate::operate;
pub(crate) use report::report;
pub(crate) use submit::submit;
pub(crate) use tick::tick;
