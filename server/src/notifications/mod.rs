//! Notifications: messages to people and programs when jobs of a definition fail, recover, are late or do not come.
//!
//! The store writes a message in the transaction of its occasion. [`Delivery`](delivery::Delivery) sends it, again and again for a day, and
//! records each try. A message may therefore arrive twice, with the same id, and is not lost by a crash.

pub mod addresses;
pub mod batch_facts;
pub mod client;
pub mod delivery;
pub mod details;
mod discord;
pub mod mail;
pub mod message;
pub mod occasion;
mod output_tail;
pub mod receivers;
pub mod requests;
pub mod target;
pub mod target_key;
pub mod tries;
