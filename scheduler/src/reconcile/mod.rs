//! Agreement between the scheduler and a worker on the attempts that the worker holds: inventories, unknown
//! attempts, foreign containers, and stops that are not confirmed yet.

pub(crate) mod foreign;
pub(crate) mod inventory;
pub(crate) mod late_reports;
mod received_inventory;
pub(crate) mod unconfirmed;
pub(crate) mod unknown_attempts;
