//! Container keys that are options of `docker run` beside image, mounts and rights: names, limits of processes, groups.

use std::net::IpAddr;

use protocol::container::{ContainerOptions, HOST_GATEWAY, ULIMITS, UNLIMITED, Ulimit};

use super::super::fault::{FaultCode, Position, quoted};
use super::super::grammar::{self, ValueFault};
use super::super::keys;
use super::super::reader::Reader;
use super::super::scope::{self, Scope};
use super::super::tree::{Node, Value};

/// Reads them.
pub(super) fn read(scope: Scope<'_>, reader: &mut Reader<'_>) -> ContainerOptions {
    ContainerOptions {
        hostname: scope.find("hostname").and_then(|node| reader.checked_text(node, hostname)),
        extra_hosts: scope.find("extra_hosts").map(|node| hosts(node, reader)).unwrap_or_default(),
        dns: texts(scope, "dns", address, reader),
        dns_search: texts(scope, "dns_search", search_domain, reader),
        ulimits: scope.find("ulimits").map(|node| ulimits(node, reader)).unwrap_or_default(),
        group_add: texts(scope, "group_add", grammar::group, reader),
    }
}

/// A list of texts, or one; a bare number is taken as text.
fn texts(
    scope: Scope<'_>,
    name: &str,
    check: fn(&str) -> Result<(), ValueFault>,
    reader: &mut Reader<'_>,
) -> Vec<String> {
    let Some(node) = scope.find(name) else { return Vec::new() };
    let mut read = |node: &Node| {
        let text = reader.loose_text(node)?;
        reader.accept(node.at, check(&text)).map(|()| text)
    };
    let checked: Vec<String> = match &node.value {
        Value::List(items) => items.iter().filter_map(read).collect(),
        _ => read(node).into_iter().collect(),
    };
    check_count(node, checked.len(), reader);
    checked
}

fn check_count(node: &Node, count: usize, reader: &mut Reader<'_>) {
    if count > ENTRIES_MAX {
        let text = format!("{count} entries are too many (max {ENTRIES_MAX})");
        reader.fault(node.at, FaultCode::TooLong, text);
    }
}

/// Names with addresses: a map, or a list of `NAME:ADDRESS` or `NAME=ADDRESS`. A list keeps its order: the first line of a
/// name counts. A map has none, so it is sorted by name.
fn hosts(node: &Node, reader: &mut Reader<'_>) -> Vec<(String, String)> {
    let mut hosts = Vec::new();
    if let Value::Map(map) = &node.value {
        for pair in &map.pairs {
            for (at, address) in reader.texts(&pair.value) {
                hosts.extend(host((pair.key_at, &pair.key), (at, &address), reader));
            }
        }
        hosts.sort_by(|(one, _), (other, _)| one.cmp(other));
    } else {
        for (at, text) in reader.texts(node) {
            match text.split_once('=').or_else(|| text.split_once(':')) {
                Some((name, address)) => hosts.extend(host((at, name), (at, address), reader)),
                None => {
                    let form = "is not NAME:ADDRESS, such as db:10.0.0.5";
                    let wrong: Result<(), _> = Err(ValueFault::input(FaultCode::InvalidValue, &text, form));
                    reader.accept(at, wrong);
                }
            }
        }
    }
    check_count(node, hosts.len(), reader);
    hosts
}

fn host(
    (name_at, name): (Position, &str),
    (address_at, address): (Position, &str),
    reader: &mut Reader<'_>,
) -> Option<(String, String)> {
    // Compose takes brackets around addresses with colons; engines take none.
    let bare = address.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(address);
    let name_fits = reader.accept(name_at, domain(name));
    let address_fits = reader.accept(address_at, address_or_gateway(bare));
    name_fits.and(address_fits).map(|()| (name.to_owned(), bare.to_owned()))
}

/// Limits by name, sorted: a number, or a map of `soft` and `hard`.
fn ulimits(node: &Node, reader: &mut Reader<'_>) -> Vec<Ulimit> {
    let Value::Map(map) = &node.value else {
        reader.wrong_type(node, "a map of limits, such as {nofile: 65536}");
        return Vec::new();
    };
    let mut ulimits = Vec::new();
    for pair in &map.pairs {
        let is_known = reader.accept(pair.key_at, ulimit_name(&pair.key));
        if let (Some(()), Some((soft, hard))) = (is_known, bounds(&pair.value, reader)) {
            ulimits.push(Ulimit { name: pair.key.clone(), soft, hard });
        }
    }
    ulimits.sort_by(|one, other| one.name.cmp(&other.name));
    ulimits
}

fn bounds(node: &Node, reader: &mut Reader<'_>) -> Option<(i64, i64)> {
    let Value::Map(map) = &node.value else {
        return reader.integer(node, keys::ULIMIT).map(|limit| (limit, limit));
    };
    scope::check_keys(map, keys::ULIMIT_BOUNDS, &[], reader);
    let part = Scope::new(map, None);
    let mut bound = |name| {
        let Some(node) = part.find(name) else {
            reader.fault(node.at, FaultCode::MissingField, format!("the limit needs {}", quoted(name)));
            return None;
        };
        reader.integer(node, keys::ULIMIT)
    };
    let (soft, hard) = (bound("soft"), bound("hard"));
    let (soft, hard) = (soft?, hard?);
    let is_above = hard != UNLIMITED && (soft == UNLIMITED || soft > hard);
    if is_above {
        let text = format!("soft must not be above hard; {UNLIMITED} is without a limit");
        reader.fault(node.at, FaultCode::OutOfRange, text);
        return None;
    }
    Some((soft, hard))
}

fn ulimit_name(name: &str) -> Result<(), ValueFault> {
    if ULIMITS.contains(&name) {
        return Ok(());
    }
    if name == "core" {
        let text = "core cannot be set: a core dump may hold secrets, so containers write none";
        return Err(ValueFault::new(FaultCode::UnsupportedField, text));
    }
    if ["nice", "rtprio", "rttime"].contains(&name) {
        let text = format!(
            "{name} cannot be set: a process with such a priority could take the machine from its worker"
        );
        return Err(ValueFault::new(FaultCode::UnsupportedField, text));
    }
    let form = match grammar::nearest(name, ULIMITS.into_iter()) {
        Some(near) => format!("is not a limit: did you mean \"{near}\"?"),
        None => format!("is not a limit: {}", ULIMITS.join(", ")),
    };
    Err(ValueFault::input(FaultCode::InvalidValue, name, form))
}

fn address(text: &str) -> Result<(), ValueFault> {
    let form = "is not an address, such as 10.0.0.5";
    text.parse::<IpAddr>().map(drop).map_err(|_| ValueFault::input(FaultCode::InvalidValue, text, form))
}

fn address_or_gateway(text: &str) -> Result<(), ValueFault> {
    if text == HOST_GATEWAY {
        return Ok(());
    }
    address(text).map_err(|wrong| ValueFault { text: format!("{}, or {HOST_GATEWAY}", wrong.text), ..wrong })
}

/// Labels with dots between them, as in names of hosts. Underscores are not part of the standard, but common.
fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    text.len() <= DOMAIN_BYTES_MAX && text.split('.').all(is_label)
}

fn domain(text: &str) -> Result<(), ValueFault> {
    let form = "is not a name, such as db.example";
    is_domain(text).then_some(()).ok_or_else(|| ValueFault::input(FaultCode::InvalidValue, text, form))
}

/// As engines take them: no underscores, and `.` for none at all.
fn search_domain(text: &str) -> Result<(), ValueFault> {
    let bare = text.strip_suffix('.').unwrap_or(text);
    let has_letter = bare.bytes().any(|byte| byte.is_ascii_alphabetic());
    if text == "." || (is_domain(bare) && has_letter && !bare.contains('_')) {
        return Ok(());
    }
    let form = "is not a domain, such as example.org";
    Err(ValueFault::input(FaultCode::InvalidValue, text, form))
}

fn hostname(text: &str) -> Result<(), ValueFault> {
    if is_domain(text) && text.len() <= HOSTNAME_BYTES_MAX {
        return Ok(());
    }
    let form = format!("is not the name of a host, with at most {HOSTNAME_BYTES_MAX} bytes");
    Err(ValueFault::input(FaultCode::InvalidValue, text, form))
}

/// Entries of a list: more are a mistake, and would make a long command line.
const ENTRIES_MAX: usize = 100;
/// Limits of RFC 1035.
const DOMAIN_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
/// `HOST_NAME_MAX` of Linux is 64; engines take 63.
const HOSTNAME_BYTES_MAX: usize = 63;
