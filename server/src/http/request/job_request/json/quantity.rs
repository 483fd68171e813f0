//! Durations of a request in JSON.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, Visitor};

use super::Text;

/// A duration: a text, or a number, which the reader of the text refuses for its missing unit.
pub(super) struct Quantity;

impl<'de> DeserializeSeed<'de> for Quantity {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Quantity {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Text.expecting(f)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Text.visit_borrowed_str(text)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Text.visit_str(text)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }
}
