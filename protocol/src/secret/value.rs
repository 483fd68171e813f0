//! One secret value.

use alloc::vec::Vec;
use core::fmt;

use bincode::{Decode, Encode};

/// The value of a secret. It is never printed.
#[derive(Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct SecretValue(pub Vec<u8>);

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
