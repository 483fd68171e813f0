//! The serde form of a duration: whole milliseconds, with `#[serde(with = "milliseconds")]`. For a duration that may be absent it is
//! `milliseconds::optional`.

use core::fmt;
use core::time::Duration;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes the milliseconds.
///
/// # Errors
/// As the serializer says.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    Milliseconds(*duration).serialize(serializer)
}

/// Reads milliseconds.
///
/// # Errors
/// The value is no number.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Milliseconds::deserialize(deserializer).map(|it| it.0)
}

/// For a duration that may be absent.
pub mod optional {
    use super::{Deserialize, Deserializer, Duration, Milliseconds, Serialize, Serializer};

    /// Writes the milliseconds, or nothing.
    ///
    /// # Errors
    /// As the serializer says.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        duration.map(Milliseconds).serialize(serializer)
    }

    /// Reads milliseconds, or nothing.
    ///
    /// # Errors
    /// The value is no number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Milliseconds>::deserialize(deserializer)?.map(|it| it.0))
    }
}

/// A duration as whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Milliseconds(pub Duration);

impl Serialize for Milliseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(whole(self.0))
    }
}

impl<'de> Deserialize<'de> for Milliseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EitherForm).map(Self)
    }
}

fn whole(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Attempt directories of older workers hold a duration as seconds and nanoseconds.
struct EitherForm;

impl<'de> Visitor<'de> for EitherForm {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("milliseconds")
    }

    fn visit_u64<E: de::Error>(self, millis: u64) -> Result<Duration, E> {
        Ok(Duration::from_millis(millis))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Duration, A::Error> {
        let duration = Duration::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Ok(Duration::from_millis(whole(duration)))
    }
}
