//! The serde form of texts that definitions share: that of a string. `#[serde(with = "shared_text")]` for one, `shared_text::list` for several.
//! serde has it, too, but its feature would have to be enabled for the whole program.

use alloc::string::String;
use alloc::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_ref().serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    String::deserialize(deserializer).map(Arc::from)
}

pub(crate) mod list {
    use alloc::vec::Vec;

    use super::{Arc, Deserialize, Deserializer, Serializer, String};

    pub(crate) fn serialize<S: Serializer>(texts: &[Arc<str>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(texts.iter().map(AsRef::<str>::as_ref))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Arc<str>>, D::Error> {
        Ok(Vec::<String>::deserialize(deserializer)?.into_iter().map(Arc::from).collect())
    }
}
