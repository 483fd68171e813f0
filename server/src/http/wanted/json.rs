//! The shape of a body, as serde walks it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use scheduler::input::Details;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::super::code::Code;
use super::super::problem::{Problem, shown};
use super::Wanted;
use super::notes::Notes;
use super::rules::FIELDS;

/// The entries of an array.
pub(super) struct Entries<'n, T> {
    pub(super) notes: &'n Notes,
    pub(super) take: T,
}

impl<'de, T: FnMut(Wanted<'de>) -> Result<(), Problem>> DeserializeSeed<'de> for Entries<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: FnMut(Wanted<'de>) -> Result<(), Problem>> Visitor<'de> for Entries<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of jobs")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let notes = self.notes;
        for index in 0.. {
            notes.turn_to(index, None);
            let Some(wanted) = list.next_element_seed(Entry { named: true, notes })? else { break };
            if notes.has_faults() {
                return Err(notes.end_with_faults());
            }
            (self.take)(wanted).map_err(|problem| notes.end(problem))?;
        }
        notes.turn_back();
        Ok(())
    }
}

/// One object: a job.
pub(super) struct Entry<'n> {
    /// Whether it says of which definition it is.
    pub(super) named: bool,
    pub(super) notes: &'n Notes,
}

impl<'de> DeserializeSeed<'de> for Entry<'_> {
    type Value = Wanted<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.notes.at("");
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_> {
    type Value = Wanted<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let notes = self.notes;
        let mut wanted = Wanted::default();
        let mut details = Details::default();
        let mut seen = 0_u8;
        while let Some(field) = map.next_key_seed(FieldName { named: self.named })? {
            let name = match field {
                Field::Known(index) => FIELDS[index],
                Field::Unknown(name) => {
                    notes.unknown_field(&name, self.named);
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let bit = 1 << FIELDS.iter().position(|known| *known == name).unwrap_or_default();
            if seen & bit != 0 {
                return Err(notes.end(twice(name)));
            }
            seen |= bit;
            notes.at(name);
            match name {
                "name" => wanted.name = Some(map.next_value_seed(Text)?),
                "environment" => {
                    details.body.environment = map.next_value_seed(Pairs { of: name, notes })?;
                }
                "args" => details.body.args = map.next_value()?,
                "priority" => wanted.job.priority = notes.priority(map.next_value()?),
                "timeout" => wanted.job.timeout = notes.timeout(&map.next_value_seed(Text)?),
                _ => details.labels = map.next_value_seed(Pairs { of: name, notes })?,
            }
        }
        notes.check(&details);
        if !details.body.is_empty() || !details.labels.is_empty() {
            wanted.job.details = Some(Box::new(details));
        }
        Ok(wanted)
    }
}

enum Field {
    Known(usize),
    Unknown(String),
}

struct FieldName {
    named: bool,
}

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = Field;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, name: &str) -> Result<Field, E> {
        let known = FIELDS.iter().position(|known| *known == name);
        Ok(match known {
            Some(index) if self.named || index > 0 => Field::Known(index),
            _ => Field::Unknown(name.to_owned()),
        })
    }
}

/// A text, borrowed from the body where it has no escapes.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// An object of strings, in its order.
struct Pairs<'n> {
    of: &'static str,
    notes: &'n Notes,
}

impl<'de> DeserializeSeed<'de> for Pairs<'_> {
    type Value = Vec<(String, String)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Pairs<'_> {
    type Value = Vec<(String, String)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs: Self::Value = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            match map.next_value::<String>() {
                Ok(value) => pairs.push((name, value)),
                Err(error) => {
                    self.notes.at(format!("{}.{}", self.of, shown(&name)));
                    return Err(error);
                }
            }
        }
        match repeated(&pairs) {
            Some(name) => Err(self.notes.end(twice(&format!("{}.{}", self.of, shown(name))))),
            None => Ok(pairs),
        }
    }
}

fn repeated(pairs: &[(String, String)]) -> Option<&str> {
    if pairs.len() < 2 {
        return None;
    }
    let mut seen = HashSet::with_capacity(pairs.len());
    pairs.iter().map(|(name, _)| name.as_str()).find(|name| !seen.insert(*name))
}

fn twice(field: &str) -> Problem {
    Problem::new(Code::DuplicateKey, format!("\"{field}\" appears twice")).field(field)
}
