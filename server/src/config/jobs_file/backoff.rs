//! Reads `retry.backoff`. A key that the kind of backoff does not use is a fault where the job sets it itself; from the defaults it
//! is ignored, because other jobs use it.

use std::time::Duration;

use scheduler::definition::{Backoff, Delays};

use super::fault::{FaultCode, Position};
use super::keys::{self, BackoffKind};
use super::quantity::DurationText;
use super::reader::Reader;
use super::scope::Scope;
use super::tree::{Node, Value};

pub(super) fn read(scope: Scope<'_>, reader: &mut Reader<'_>) -> Backoff {
    let part = scope.part("backoff", keys::BACKOFF, reader);
    let kind = part.find("kind").and_then(|node| reader.choice(node, &keys::BACKOFF_KINDS));
    let kind = kind.unwrap_or(BackoffKind::Exponential);
    refuse_unused(part, kind, reader);
    let jitter = part.find("jitter").and_then(|node| reader.share(node, &JITTERS));
    Backoff {
        delays: match kind {
            BackoffKind::Exponential => {
                let (initial, max) = ceilings(part, reader);
                let factor = part
                    .find("factor")
                    .and_then(|node| reader.thousandths(node, 1_000, keys::FACTOR_MILLI_MAX));
                Delays::Exponential { initial, max, factor_milli: factor.unwrap_or(FACTOR_MILLI) }
            }
            BackoffKind::Linear => {
                let (initial, max) = ceilings(part, reader);
                Delays::Linear { initial, max }
            }
            BackoffKind::Fixed => {
                Delays::Fixed(duration(part, "initial", reader).map_or(INITIAL, |(_, it)| it))
            }
            BackoffKind::List => Delays::List(list(part, reader)),
        },
        jitter_milli: jitter.unwrap_or(Backoff::FULL_JITTER_MILLI),
    }
}

fn refuse_unused(part: Scope<'_>, kind: BackoffKind, reader: &mut Reader<'_>) {
    let used: &[&str] = match kind {
        BackoffKind::Exponential => &["initial", "max", "factor"],
        BackoffKind::Linear => &["initial", "max"],
        BackoffKind::Fixed => &["initial"],
        BackoffKind::List => &["delays"],
    };
    for name in ["initial", "max", "factor", "delays"].into_iter().filter(|name| !used.contains(name)) {
        if let Some(node) = part.own_value(name) {
            let kind = keys::name_of(&keys::BACKOFF_KINDS, &kind);
            let text = format!("{name} is not used with kind {kind}, which takes {}", used.join(", "));
            reader.fault(node.at, FaultCode::InvalidValue, text);
            // Its value may have a fault of its own.
            match name {
                "delays" => drop(durations(node, reader)),
                "factor" => drop(reader.thousandths(node, 1_000, keys::FACTOR_MILLI_MAX)),
                _ => drop(duration(part, name, reader)),
            }
        }
    }
}

fn duration(part: Scope<'_>, name: &str, reader: &mut Reader<'_>) -> Option<(Position, Duration)> {
    let node = part.find(name)?;
    Some((node.at, reader.duration(node, keys::BACKOFF_MIN, keys::DURATION_MAX)?))
}

/// The first and the highest ceiling.
fn ceilings(part: Scope<'_>, reader: &mut Reader<'_>) -> (Duration, Duration) {
    let (initial, max) = (duration(part, "initial", reader), duration(part, "max", reader));
    let first_at = initial.map(|(at, _)| at);
    let first = initial.map_or(INITIAL, |(_, initial)| initial);
    // A job that only raises the first backoff means the maximum to be no lower.
    let highest = max.map_or(MAX.max(first), |(_, max)| max);
    if let Some((at, max)) = max.filter(|(_, max)| *max < first) {
        let text = format!(
            "the highest wait {} is shorter than the first one, {}",
            reader.as_written(at, &DurationText(max).to_string()),
            reader.as_written(first_at.unwrap_or_default(), &DurationText(first).to_string())
        );
        reader.fault(part.own_position(&["max", "initial"], at), FaultCode::OutOfRange, text);
    }
    (first, highest)
}

fn list(part: Scope<'_>, reader: &mut Reader<'_>) -> Vec<Duration> {
    let Some(node) = part.find("delays") else {
        if let Some(kind) = part.find("kind") {
            let text = "kind list needs delays, such as [1s, 10s, 1m]";
            reader.fault(part.own_position(&["kind"], kind.at), FaultCode::MissingField, text);
        }
        return Vec::new();
    };
    durations(node, reader)
}

fn durations(node: &Node, reader: &mut Reader<'_>) -> Vec<Duration> {
    let items: Vec<&Node> = match &node.value {
        Value::List(items) => items.iter().collect(),
        _ => vec![node],
    };
    if !(1..=keys::DELAYS_MAX).contains(&items.len()) {
        let text = format!("{} delays are not within 1 to {}", items.len(), keys::DELAYS_MAX);
        reader.fault(node.at, FaultCode::OutOfRange, text);
    }
    items
        .into_iter()
        .filter_map(|item| reader.duration(item, keys::BACKOFF_MIN, keys::DURATION_MAX))
        .collect()
}

/// The words for a jitter.
const JITTERS: [(&str, u32); 2] = [("full", Backoff::FULL_JITTER_MILLI), ("none", 0)];
const INITIAL: Duration = Duration::from_secs(10);
const MAX: Duration = Duration::from_secs(600);
const FACTOR_MILLI: u32 = 2_000;
