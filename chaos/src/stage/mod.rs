//! A stage for one test: processes of the real program in a directory of their own, and what is needed to ask and to wait.

mod dice;
pub mod docker;
mod http;
mod ledger;
mod place;
mod port;
mod process;
mod wait;

pub use dice::Dice;
pub use http::{Answer, Api};
pub use ledger::Ledger;
pub use place::Stage;
pub use process::{Launch, Process, mentioning, was_told};
pub use wait::{eventually, holds, within};
