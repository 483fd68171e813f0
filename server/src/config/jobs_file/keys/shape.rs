//! A key of a map, and the type of its value.

use super::Range;

/// A key of a map.
#[derive(Debug)]
pub(in crate::config::jobs_file) struct Key {
    pub(in crate::config::jobs_file) name: &'static str,
    pub(in crate::config::jobs_file) shape: Shape,
    /// One sentence for editors.
    pub(in crate::config::jobs_file) about: &'static str,
}

/// The type of a value.
#[derive(Debug)]
pub(in crate::config::jobs_file) enum Shape {
    Text,
    /// Text; a bare number is taken as text.
    LooseText,
    /// A list of words, or one string to be split into words.
    Words,
    /// A list of texts, or one.
    Texts,
    /// A map of names to values, or a list of `NAME=value`.
    Pairs,
    /// As `Pairs`; a value of the map may also be a secret, `{secret: NAME}`.
    Variables,
    Bool,
    Integer(Range),
    /// A list of integers, or one.
    Integers(Range),
    /// A number with decimals.
    Number,
    Duration,
    /// A duration, or `none`.
    DurationOrNone,
    Size,
    Choice(fn() -> Vec<&'static str>),
    /// A list of choices, or one.
    Choices(fn() -> Vec<&'static str>),
    /// A list of durations, or one.
    Durations,
    /// `full`, `none`, or a number from 0 to 1.
    Jitter,
    Volumes,
    /// A map of names to addresses, or a list of `NAME:ADDRESS`.
    Hosts,
    /// A map of names to limits, each a number or a part.
    Ulimits,
    /// A cron rule, a schedule, or a list of these.
    Schedules,
    Part(&'static [Key]),
    /// Conditions on labels: a map of labels to values, or a list of conditions.
    Conditions,
    /// A map of conditions to whole numbers.
    Weights(Range),
    /// A list of texts, or one; bare numbers are taken as text.
    LooseTexts,
    /// A list of parts, or one.
    PartList(&'static [Key]),
    /// A map of names to parts.
    Parts(&'static [Key]),
    /// A scalar of any kind, or a list of these.
    Any,
    /// A map of names to scalars or lists.
    Values,
    /// A value of any kind.
    Json,
    /// `one`, `all`, or a number of workers.
    RunOn,
    /// A part, or an integer that stands for its first key.
    PartOrInteger(&'static [Key], Range),
}

pub(in crate::config::jobs_file) const fn key(name: &'static str, shape: Shape, about: &'static str) -> Key {
    Key { name, shape, about }
}
