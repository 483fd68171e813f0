//! The serde visitors of a job request.

mod quantity;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use scheduler::details::JobDetails;
use scheduler::placement::narrowing::Narrowing;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::after::After;
use super::batch_fields::BatchFields;
use super::collector::FaultCollector;
use super::entry_faults::EntryFaults;
use super::fields::{EntryKind, FIELDS};
use super::job::JobRequest;
use super::{DEPTH_MAX, too_deep};
use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use quantity::Quantity;

/// The entries of an array.
pub(super) struct Entries<'n, T> {
    pub(super) collector: &'n FaultCollector,
    pub(super) faults: &'n mut EntryFaults,
    pub(super) take: T,
}

impl<'de, T: FnMut(JobRequest<'de>) -> Result<(), Problem>> DeserializeSeed<'de> for Entries<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: FnMut(JobRequest<'de>) -> Result<(), Problem>> Visitor<'de> for Entries<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of jobs")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let collector = self.collector;
        for index in 0.. {
            collector.enter_entry(index, None);
            let Some(request) = list.next_element_seed(Entry { kind: EntryKind::Member, collector })? else {
                break;
            };
            let taken = match collector.has_faults() {
                true => Err(collector.problem()),
                false => (self.take)(request),
            };
            if let Err(problem) = taken {
                self.faults.add(collector, problem).map_err(|last| collector.abort(last))?;
            }
        }
        collector.leave_entries();
        Ok(())
    }
}

/// The object of one job.
pub(super) struct Entry<'n> {
    pub(super) kind: EntryKind,
    pub(super) collector: &'n FaultCollector,
}

impl<'de> DeserializeSeed<'de> for Entry<'_> {
    type Value = JobRequest<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.collector.set_field("");
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_> {
    type Value = JobRequest<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let collector = self.collector;
        let mut request = JobRequest::default();
        let mut details = JobDetails::default();
        let mut batch = BatchFields::default();
        let mut unique: (Option<String>, Option<String>) = (None, None);
        let mut seen = 0_u32;
        let mut starts = 0;
        let (mut workers, mut requires) = (Vec::new(), Vec::new());
        while let Some(field) = map.next_key_seed(FieldName { kind: self.kind })? {
            let name = match field {
                Field::Known(index) => FIELDS[index],
                Field::Unknown(name) => {
                    collector.unknown_field(&name, self.kind);
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let bit = 1 << FIELDS.iter().position(|known| *known == name).unwrap_or_default();
            if seen & bit != 0 {
                return Err(collector.abort(twice(name)));
            }
            seen |= bit;
            collector.set_field(name);
            match name {
                "name" => request.name = Some(map.next_value_seed(Text)?),
                "as" => request.entry_name = collector.entry_name(&map.next_value_seed(Text)?),
                "after" => {
                    let After { existing, entries } =
                        collector.after(map.next_value()?, self.kind == EntryKind::Member);
                    (request.job.after, request.after_entries) = (existing, entries);
                }
                "environment" => {
                    details.overrides.environment = map.next_value_seed(Pairs { of: name, collector })?;
                }
                "args" => {
                    details.overrides.args = map.next_value()?;
                    if details.overrides.args.is_empty() {
                        request.cleared.add(scheduler::params::Field::Args);
                    }
                }
                "unique_key" => {
                    request.job.unique_key = collector.unique_key(&map.next_value_seed(Text)?);
                }
                "priority" => request.job.priority = collector.priority(map.next_value()?),
                "timeout" => request.job.timeout = collector.timeout(&map.next_value_seed(Quantity)?),
                "run_at" => {
                    starts += 1;
                    request.job.run_at = collector.run_at(&map.next_value_seed(Text)?);
                }
                "delay" => {
                    starts += 1;
                    request.job.run_at = collector.delay(&map.next_value_seed(Quantity)?);
                }
                "workers" => {
                    workers = collector.workers(map.next_value()?);
                    if workers.is_empty() {
                        request.cleared.add(scheduler::params::Field::Workers);
                    }
                }
                "requires" => {
                    requires = collector.requires(map.next_value()?);
                    if requires.is_empty() {
                        request.cleared.add(scheduler::params::Field::Requires);
                    }
                }
                "params" => request.params = map.next_value_seed(Values { of: name, collector })?,
                // Kept as text: no decision depends on it.
                "input" => {
                    let input: Value = map.next_value()?;
                    if nesting(&input) >= DEPTH_MAX {
                        return Err(collector.abort(too_deep()));
                    }
                    details.overrides.input = Some(input.to_string());
                }
                "count" => batch.count = collector.count(name, map.next_value()?),
                "each" => batch.each = Some(map.next_value_seed(Each { collector })?),
                "batch_name" => batch.options.name = Some(map.next_value_seed(Text)?.into_owned()),
                "batch_unique_key" => unique.0 = Some(map.next_value_seed(Text)?.into_owned()),
                "on_duplicate" => unique.1 = Some(map.next_value_seed(Text)?.into_owned()),
                "concurrency" => batch.options.concurrency = collector.count(name, map.next_value()?),
                "max_failures" => batch.options.max_failures = collector.count(name, map.next_value()?),
                _ => details.labels = map.next_value_seed(Pairs { of: name, collector })?,
            }
        }
        request.job.narrowing = Narrowing::asked(workers, requires);
        if starts > 1 {
            collector.two_starts();
        }
        collector.check(&details);
        batch.options.unique = collector.batch_unique(unique.0.as_deref(), unique.1.as_deref());
        if batch != BatchFields::default() {
            collector.check_batch(&batch);
            request.batch = Some(Box::new(batch));
        }
        if !details.is_empty() {
            request.job.details = Some(Box::new(details));
        }
        Ok(request)
    }
}

enum Field {
    Known(usize),
    Unknown(String),
}

struct FieldName {
    kind: EntryKind,
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
            Some(index) if self.kind.fields().contains(&index) => Field::Known(index),
            _ => Field::Unknown(name.to_owned()),
        })
    }
}

/// A text, borrowed from the body if it has no escapes.
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

/// An object of texts, in its order.
struct Pairs<'n> {
    of: &'static str,
    collector: &'n FaultCollector,
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
                    self.collector.set_field(format!("{}.{}", self.of, excerpt(&name)));
                    return Err(error);
                }
            }
        }
        match repeated(&pairs) {
            Some(name) => Err(self.collector.abort(twice(&format!("{}.{}", self.of, excerpt(name))))),
            None => Ok(pairs),
        }
    }
}

/// An object of any values, in its order.
struct Values<'n> {
    of: &'static str,
    collector: &'n FaultCollector,
}

impl<'de> DeserializeSeed<'de> for Values<'_> {
    type Value = Vec<(String, Value)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Values<'_> {
    type Value = Vec<(String, Value)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs: Self::Value = Vec::new();
        while let Some(pair) = map.next_entry::<String, Value>()? {
            if pairs.len() == VALUES_MAX {
                return Err(self.collector.abort(too_many_values(self.of)));
            }
            if nesting(&pair.1) >= DEPTH_MAX - 1 {
                return Err(self.collector.abort(too_deep()));
            }
            pairs.push(pair);
        }
        match repeated(&pairs) {
            Some(name) => Err(self.collector.abort(twice(&format!("{}.{}", self.of, excerpt(name))))),
            None => Ok(pairs),
        }
    }
}

/// A list of objects of any values.
struct Each<'n> {
    collector: &'n FaultCollector,
}

impl<'de> DeserializeSeed<'de> for Each<'_> {
    type Value = Vec<Vec<(String, Value)>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Each<'_> {
    type Value = Vec<Vec<(String, Value)>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let collector = self.collector;
        let mut each = Vec::new();
        while let Some(params) = list.next_element_seed(Values { of: "each", collector })? {
            each.push(params);
        }
        Ok(each)
    }
}

/// The depth of lists and objects in this value.
fn nesting(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nesting).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(nesting).max().unwrap_or(0),
        _ => 0,
    }
}

fn too_many_values(field: &str) -> Problem {
    let detail = format!("\"{field}\" has more than {VALUES_MAX} parameters");
    Problem::new(ProblemCode::InvalidParam, detail).field(field)
}

fn repeated<T>(pairs: &[(String, T)]) -> Option<&str> {
    if pairs.len() < 2 {
        return None;
    }
    let mut seen = HashSet::with_capacity(pairs.len());
    pairs.iter().map(|(name, _)| name.as_str()).find(|name| !seen.insert(*name))
}

fn twice(field: &str) -> Problem {
    Problem::new(ProblemCode::DuplicateKey, format!("\"{field}\" appears twice")).field(field)
}

/// Parameters of one job: many more than a definition can have.
const VALUES_MAX: usize = 1_000;
