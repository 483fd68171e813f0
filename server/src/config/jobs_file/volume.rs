//! Mounts: `source:target[:ro]`, or a map. Mounts that would expose the host are refused here, whatever a worker allows.

use std::collections::HashSet;
use std::path::Path;

use protocol::container::{ENGINE_SOCKETS, Volume};

use super::fault::{FaultCode, Position};
use super::grammar::{self, ValueFault};
use super::keys;
use super::reader::Reader;
use super::scope::{self, Scope};
use super::tree::{Node, Value};

/// The mounts of a job. They replace those of the defaults.
pub(super) fn read(scope: Scope<'_>, reader: &mut Reader<'_>) -> Vec<Volume> {
    let Some(node) = scope.find("volumes") else { return Vec::new() };
    let Value::List(items) = &node.value else {
        reader.wrong_type(node, "a list of mounts");
        return Vec::new();
    };
    let volumes: Vec<_> = items.iter().filter_map(|item| read_one(item, reader)).collect();
    let mut targets = HashSet::new();
    for WrittenVolume { volume, target_at, .. } in &volumes {
        if !targets.insert(plain_path(&volume.target)) {
            reader.accept::<()>(*target_at, Err(invalid(&volume.target, "is mounted twice")));
        }
    }
    volumes.into_iter().map(|written| written.volume).collect()
}

/// A mount and the positions of its two halves, so that a fault is reported at the half that has it.
struct WrittenVolume {
    volume: Volume,
    source_at: Position,
    target_at: Position,
}

fn read_one(node: &Node, reader: &mut Reader<'_>) -> Option<WrittenVolume> {
    let written = match &node.value {
        Value::Map(map) => {
            scope::check_keys(map, keys::VOLUME, &[], reader);
            read_long(node.at, Scope::new(map, None), reader)?
        }
        Value::Scalar(_) => {
            let text = reader.text(node)?;
            let volume = reader.accept(node.at, read_short(&text))?;
            WrittenVolume { volume, source_at: node.at, target_at: node.at }
        }
        Value::List(_) => {
            reader.wrong_type(node, "source:target, or a map");
            return None;
        }
    };
    let source = reader.accept(written.source_at, check_source(&written.volume));
    let target = reader.accept(written.target_at, check_target(&written.volume.target));
    source.and(target).map(|()| written)
}

fn read_short(text: &str) -> Result<Volume, ValueFault> {
    let parts: Vec<_> = text.split(':').collect();
    let (source, target, mode) = match parts[..] {
        [source, target] => (source, target, "rw"),
        [source, target, mode] => (source, target, mode),
        _ => return Err(invalid(text, "is not source:target or source:target:ro")),
    };
    let read_only = match mode {
        "ro" => true,
        "rw" => false,
        _ => return Err(invalid(text, "has another mode than ro or rw")),
    };
    Ok(Volume { source: source.to_owned(), target: target.to_owned(), read_only })
}

fn read_long(at: Position, scope: Scope<'_>, reader: &mut Reader<'_>) -> Option<WrittenVolume> {
    let kind = scope.find("type").and_then(|node| reader.choice(node, &[("bind", true), ("volume", false)]));
    let read_only = scope.find("read_only").and_then(|node| reader.bool(node)).unwrap_or(false);
    let mut required = |name: &str| match scope.find(name) {
        Some(node) => Some((node.at, reader.text(node)?)),
        None => {
            reader.fault(at, FaultCode::MissingField, format!("a mount needs \"{name}\""));
            None
        }
    };
    let (source, target) = (required("source"), required("target"));
    let ((source_at, source), (target_at, target)) = (source?, target?);
    let volume = Volume { source, target, read_only };
    if kind.is_some_and(|is_bind| is_bind != volume.is_bind()) {
        let text = "the type does not fit the source: a bind has an absolute path, a volume has a name";
        reader.fault(at, FaultCode::InvalidMount, text);
    }
    Some(WrittenVolume { volume, source_at, target_at })
}

fn check_source(volume: &Volume) -> Result<(), ValueFault> {
    let source = &volume.source;
    check_path(source)?;
    if volume.is_bind() {
        check_host_path(&plain_path(source))
    } else if grammar::is_docker_name(source) {
        Ok(())
    } else {
        Err(invalid(source, "is no source, which is an absolute path or the name of a volume"))
    }
}

fn check_target(target: &str) -> Result<(), ValueFault> {
    check_path(target)?;
    if !target.starts_with('/') {
        return Err(invalid(target, "is no target, which is an absolute path"));
    }
    check_not_root(target)
}

fn check_path(path: &str) -> Result<(), ValueFault> {
    check_no_parent(path)?;
    if path.contains([',', ':', '"']) || path.chars().any(char::is_control) {
        return Err(invalid(path, "must not contain a comma, a colon, a quote or a control character"));
    }
    if path.len() > grammar::PATH_BYTES_MAX {
        return Err(ValueFault::new(
            FaultCode::TooLong,
            format!("a path is too long (max {})", grammar::PATH_BYTES_MAX),
        ));
    }
    Ok(())
}

fn check_no_parent(path: &str) -> Result<(), ValueFault> {
    if path.split('/').any(|part| part == "..") {
        return Err(forbidden(path, "must not contain \"..\""));
    }
    Ok(())
}

fn check_not_root(target: &str) -> Result<(), ValueFault> {
    if plain_path(target) == "/" { Err(forbidden(target, "cannot be mounted over")) } else { Ok(()) }
}

/// A memory file system must not replace the root directory either.
pub(super) fn check_tmpfs(mount: &str) -> Result<(), ValueFault> {
    let target = mount.split_once(':').map_or(mount, |(target, _)| target);
    check_no_parent(target).and_then(|()| check_not_root(target))
}

fn check_host_path(path: &str) -> Result<(), ValueFault> {
    if path == "/" {
        return Err(forbidden(path, "would give the whole machine to the job"));
    }
    let is_socket = SOCKET_NAMES.iter().any(|name| path.ends_with(name));
    if is_socket || ENGINE_SOCKETS.iter().any(|socket| Path::new(socket).starts_with(path)) {
        return Err(forbidden(
            path,
            "would give the socket of a container engine, and so the machine, to the job",
        ));
    }
    Ok(())
}

/// A path without `//`, `/./` and a slash at its end.
fn plain_path(path: &str) -> String {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    format!("/{}", parts.join("/"))
}

fn invalid(input: &str, reason: &str) -> ValueFault {
    ValueFault::input(FaultCode::InvalidMount, input, reason)
}

fn forbidden(input: &str, reason: &str) -> ValueFault {
    ValueFault::input(FaultCode::ForbiddenMount, input, reason)
}

/// Sockets of engines that run without root are in the directory of their user.
const SOCKET_NAMES: [&str; 4] = ["/docker.sock", "/podman.sock", "/containerd.sock", "/crio.sock"];
