//! A stage for one test: processes of the real program in a directory of their own, and what is needed to ask and to wait.

mod dice;
pub(crate) mod docker;
mod http;
mod ledger;
mod process;
mod stage;
mod wait;

pub(crate) use dice::Dice;
pub(crate) use http::{Answer, Api};
pub(crate) use ledger::Ledger;
pub(crate) use process::Process;
pub(crate) use stage::Stage;
pub(crate) use wait::{eventually, holds};
