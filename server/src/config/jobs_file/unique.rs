//! Reads `unique`.

use scheduler::limits::rules::KeySource;
use scheduler::params::Params;
use scheduler::unique::{Clear, OnDuplicate, UniqueRule};

use super::fault::{Code, quoted};
use super::grammar;
use super::keys::limits::{CLEAR, ClearedEnd, UNIQUE};
use super::reader::Reader;
use super::scope::Scope;
use super::tree::Node;

pub(super) fn read(
    scope: Scope<'_>,
    params: &Params,
    is_job: bool,
    reader: &mut Reader<'_>,
) -> Option<UniqueRule> {
    let part = scope.part("unique", UNIQUE, reader);
    scope.find("unique")?;
    let key = part.find("key").and_then(|node| key_source(node, params, is_job, reader));
    let on_duplicate = part.find("on_duplicate").and_then(|node| reader.choice(node, &OnDuplicate::ALL));
    let clear = part.find("clear").and_then(|node| clear(node, reader));
    let (on_duplicate, clear) = (on_duplicate.unwrap_or_default(), clear.unwrap_or(Clear::Always));
    Some(UniqueRule { key, on_duplicate, clear })
}

fn clear(node: &Node, reader: &mut Reader<'_>) -> Option<Clear> {
    let mut ends = Vec::new();
    for (at, text) in reader.texts(node) {
        ends.push(reader.choose(at, &text, &CLEAR)?);
    }
    match (ends.contains(&ClearedEnd::Success), ends.contains(&ClearedEnd::Failed)) {
        (true, true) => Some(Clear::Always),
        (true, false) => Some(Clear::Success),
        (false, true) => Some(Clear::Failed),
        (false, false) => {
            let text =
                "clear needs success, failed or both: with none of them a key would never be free again";
            reader.fault(node.at, Code::InvalidValue, text);
            None
        }
    }
}

fn key_source(node: &Node, params: &Params, is_job: bool, reader: &mut Reader<'_>) -> Option<KeySource> {
    let text = reader.text(node)?;
    reader.accept(node.at, grammar::at_most(&text, KEY_BYTES_MAX))?;
    if let Some(name) = text.strip_prefix("labels.").filter(|name| !name.is_empty()) {
        return Some(KeySource::Label(name.to_owned()));
    }
    if let Some(name) = text.strip_prefix("params.").filter(|name| !name.is_empty()) {
        let param = params.find(name);
        let fault = match param {
            None => Some(format!("there is no parameter {}", quoted(name))),
            Some(param) if param.secret => {
                Some(format!("the parameter {} is secret, and keys are shown", quoted(name)))
            }
            Some(_) => None,
        };
        // A key among the defaults is checked with each job.
        if let Some(fault) = fault.filter(|_| is_job) {
            reader.fault(node.at, Code::InvalidValue, fault);
            return None;
        }
        return Some(KeySource::Param(name.to_owned()));
    }
    if text.contains('.') || text.is_empty() {
        let text =
            format!("{} is no key: write params.NAME, labels.NAME, or a word without dots", quoted(&text));
        reader.fault(node.at, Code::InvalidValue, text);
        return None;
    }
    Some(KeySource::Constant(text.as_str().into()))
}

const KEY_BYTES_MAX: usize = 128;
