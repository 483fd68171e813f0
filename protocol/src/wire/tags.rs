//! The table of tags and messages. A tag never gets a second meaning.

use alloc::vec::Vec;

use super::{DecodeError, FrameBody, SKIPPABLE_FROM};
use crate::container::ContainerOptions;
use crate::order::{Definition, Order, Reconciled};
use crate::report::{Inventory, Numbered, Report};

/// The names of one side's messages.
pub(super) struct Names {
    /// The tag is the index.
    needed: &'static [&'static str],
    /// The tag is the index after [`SKIPPABLE_FROM`].
    skippable: &'static [&'static str],
}

impl Names {
    /// The name of a tag, if it is known.
    pub(super) const fn of(&self, tag: u8) -> Option<&'static str> {
        let (names, index) = match tag.checked_sub(SKIPPABLE_FROM) {
            Some(index) => (self.skippable, index as usize),
            None => (self.needed, tag as usize),
        };
        if index < names.len() { Some(names[index]) } else { None }
    }
}

/// The names of orders.
pub(super) const ORDERS: Names = Names { needed: &NEEDED_ORDERS, skippable: &[] };

/// The names of reports.
pub(super) const REPORTS: Names = Names { needed: &NEEDED_REPORTS, skippable: &["Foreign", "Usage"] };

const NEEDED_ORDERS: [&str; 13] = [
    "Welcome",
    "Definitions",
    "Enqueue",
    "Reconciled",
    "Cancel",
    "Recall",
    "Acknowledge",
    "Pulse",
    "Configure",
    "OutputAcknowledge",
    "Refused",
    "GoAway",
    "ExtendedDefinitions",
];

const NEEDED_REPORTS: [&str; 13] = [
    "Hello",
    "Running",
    "Success",
    "Failure",
    "Inventory",
    "Released",
    "Heartbeat",
    "Output",
    "Progress",
    "Status",
    "Condition",
    "Wanted",
    "Starting",
];

impl Order {
    /// The first byte of its frame.
    #[must_use]
    pub const fn tag(&self) -> u8 {
        match self {
            Self::Welcome(_) => 0,
            Self::Definitions(_) => 1,
            Self::Enqueue(_) => 2,
            Self::Reconciled(_) => 3,
            Self::Cancel(_) => 4,
            Self::Recall(_) => 5,
            Self::Acknowledge(_) => 6,
            Self::Pulse(_) => 7,
            Self::Configure(_) => 8,
            Self::OutputAcknowledge(_) => 9,
            Self::Refused(_) => 10,
            Self::GoAway(_) => 11,
            Self::ExtendedDefinitions(_) => 12,
        }
    }

    /// Its name, for logs and errors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match ORDERS.of(self.tag()) {
            Some(name) => name,
            None => "",
        }
    }
}

impl Report {
    /// The first byte of its frame.
    #[must_use]
    pub const fn tag(&self) -> u8 {
        match self {
            Self::Hello(_) => 0,
            Self::Running(_) => 1,
            Self::Success(_) => 2,
            Self::Failure(_) => 3,
            Self::Inventory(_) => 4,
            Self::Released(_) => 5,
            Self::Heartbeat(_) => 6,
            Self::Output(_) => 7,
            Self::Progress(_) => 8,
            Self::Status(_) => 9,
            Self::Condition(_) => 10,
            Self::Wanted(_) => 11,
            Self::Starting(_) => 12,
            Self::Foreign(_) => 128,
            Self::Usage(_) => 129,
        }
    }

    /// Its name, for logs and errors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match REPORTS.of(self.tag()) {
            Some(name) => name,
            None => "",
        }
    }
}

pub(super) fn read_order(tag: u8, body: &mut FrameBody<'_>) -> Result<Order, DecodeError> {
    Ok(match tag {
        0 => Order::Welcome(body.read()?),
        1 => Order::Definitions(body.read_list(Vec::len)?),
        2 => Order::Enqueue(body.read_list(Vec::len)?),
        3 => Order::Reconciled(body.read_list(|it: &Reconciled| it.attempts.len())?),
        4 => Order::Cancel(body.read()?),
        5 => Order::Recall(body.read_list(Vec::len)?),
        6 => Order::Acknowledge(body.read()?),
        7 => Order::Pulse(body.read()?),
        8 => Order::Configure(body.read()?),
        9 => Order::OutputAcknowledge(body.read_list(Vec::len)?),
        10 => Order::Refused(body.read()?),
        11 => Order::GoAway(body.read()?),
        12 => Order::ExtendedDefinitions(extended(body.read_list(Vec::len)?)),
        _ => return Err(DecodeError::UnknownTag { tag }),
    })
}

pub(super) fn read_report(tag: u8, body: &mut FrameBody<'_>) -> Result<Report, DecodeError> {
    Ok(match tag {
        0 => Report::Hello(body.read_hello()?),
        1 => Report::Running(body.read_list(entries)?),
        2 => Report::Success(body.read_list(entries)?),
        3 => Report::Failure(body.read_list(entries)?),
        4 => Report::Inventory(body.read_list(|it: &Inventory| it.attempts.len() + it.foreign.len())?),
        5 => Report::Released(body.read_list(entries)?),
        6 => Report::Heartbeat(body.read()?),
        7 => Report::Output(body.read_list(Vec::len)?),
        8 => Report::Progress(body.read_list(Vec::len)?),
        9 => Report::Status(body.read_list(Vec::len)?),
        10 => Report::Condition(body.read()?),
        11 => Report::Wanted(body.read_list(Vec::len)?),
        12 => Report::Starting(body.read_list(entries)?),
        128 => Report::Foreign(body.read_list(Vec::len)?),
        129 => Report::Usage(body.read_list(Vec::len)?),
        _ => return Err(DecodeError::UnknownTag { tag }),
    })
}

fn extended(list: Vec<(Definition, ContainerOptions)>) -> Vec<Definition> {
    let join = |(mut definition, options): (Definition, ContainerOptions)| {
        definition.container.options.0 = options;
        definition
    };
    list.into_iter().map(join).collect()
}

const fn entries<T>(numbered: &Numbered<T>) -> usize {
    numbered.list.len()
}
