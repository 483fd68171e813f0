//! Reads the source of a key: of `concurrency`, `rate_limit` and `unique`.

use scheduler::limits::rules::KeySource;
use scheduler::params::Params;

use super::fault::{FaultCode, quoted};
use super::grammar;
use super::reader::Reader;
use super::tree::Node;

/// Reads `labels.NAME`, `params.NAME`, or a constant. A secret parameter is refused, because keys are shown.
pub(super) fn read(node: &Node, params: &Params, is_job: bool, reader: &mut Reader<'_>) -> Option<KeySource> {
    let text = reader.text(node)?;
    reader.accept(node.at, grammar::at_most(&text, KEY_BYTES_MAX))?;
    if let Some(name) = text.strip_prefix("labels.").filter(|name| !name.is_empty()) {
        return Some(KeySource::Label(name.to_owned()));
    }
    if let Some(name) = text.strip_prefix("params.").filter(|name| !name.is_empty()) {
        let param = params.find(name);
        let shown = |reader: &Reader<'_>| {
            let written = reader.as_written(node.at, &text);
            quoted(written.strip_prefix("params.").unwrap_or(&written))
        };
        let fault = match param {
            None => Some(format!("there is no parameter {}", shown(reader))),
            Some(param) if param.secret => {
                Some(format!("the parameter {} is secret, and keys are shown", shown(reader)))
            }
            Some(_) => None,
        };
        // A key among the defaults is checked with each job.
        if let Some(fault) = fault.filter(|_| is_job) {
            reader.fault(node.at, FaultCode::InvalidValue, fault);
            return None;
        }
        return Some(KeySource::Param(name.to_owned()));
    }
    if text.contains('.') || text.is_empty() {
        let text = format!(
            "{} is no key: write params.NAME, labels.NAME, or a word without dots",
            reader.shown(node.at, &text)
        );
        reader.fault(node.at, FaultCode::InvalidValue, text);
        return None;
    }
    Some(KeySource::Constant(text.as_str().into()))
}

const KEY_BYTES_MAX: usize = 128;
