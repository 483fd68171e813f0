//! The definitions that a caller of a reload expects to find.

use protocol::Revision;

/// The revisions that a caller expects of the whole set; an absent one is any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Of the present definitions.
    pub present: Option<Revision>,
    /// Of the definitions in the file.
    pub new: Option<Revision>,
}
