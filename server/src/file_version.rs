//! The version of the policy file and of the registries file: there is one.

use serde::Deserialize;

/// The key `version` of a file, which may be left out.
#[derive(Default, Deserialize)]
#[serde(try_from = "u32")]
pub(crate) struct FileVersion;

impl TryFrom<u32> for FileVersion {
    type Error = &'static str;

    fn try_from(version: u32) -> Result<Self, Self::Error> {
        if version == 1 { Ok(Self) } else { Err("this Longshore reads version 1") }
    }
}
