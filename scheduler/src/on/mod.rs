//! A verb per file: what each kind of input does.

mod absence;
mod cancel;
mod claim;
mod close;
mod confirm;
mod connect;
mod define;
mod drain;
mod foreign;
mod form;
mod inventory;
mod names;
mod operate;
mod release;
mod report;
mod strangers;
mod submit;
mod tick;
mod unsent;

pub(crate) use absence::{Commits, notice_absence, tick_within};
pub(crate) use cancel::cancel;
pub(crate) use close::queue;
pub(crate) use confirm::ask;
pub(crate) use connect::{connect, disconnect, hear};
pub(crate) use define::{define, quicken, wanted_of};
pub(crate) use drain::end as end_drain;
pub(crate) use form::form;
pub(crate) use operate::operate;
pub(crate) use release::release;
pub(crate) use report::report;
pub(crate) use strangers::announce;
pub(crate) use submit::submit;
pub(crate) use tick::tick;
pub(crate) use unsent::take_back;
