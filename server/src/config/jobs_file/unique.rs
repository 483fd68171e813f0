//! Reads `unique`.

use scheduler::limits::rules::{Clear, OnDuplicate, UniqueRule};
use scheduler::params::Params;

use super::fault::FaultCode;
use super::key_source;
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
    let key = part.find("key").and_then(|node| key_source::read(node, params, is_job, reader));
    let on_duplicate = part.find("on_duplicate").and_then(|node| reader.choice(node, &OnDuplicate::ALL));
    let clear = part.find("clear").and_then(|node| clear(node, reader));
    let (on_duplicate, clear) = (on_duplicate.unwrap_or_default(), clear.unwrap_or(Clear::Always));
    Some(UniqueRule { key, on_duplicate, clear })
}

fn clear(node: &Node, reader: &mut Reader<'_>) -> Option<Clear> {
    // `collect` stops at the first wrong word, so all are checked before.
    let words = reader.texts(node);
    let ends: Vec<_> = words.iter().map(|(at, text)| reader.choose(*at, text, &CLEAR)).collect();
    let ends: Vec<ClearedEnd> = ends.into_iter().collect::<Option<_>>()?;
    match (ends.contains(&ClearedEnd::Success), ends.contains(&ClearedEnd::Failed)) {
        (true, true) => Some(Clear::Always),
        (true, false) => Some(Clear::Success),
        (false, true) => Some(Clear::Failed),
        (false, false) if node.has_any_at(&reader.left_out) => None,
        (false, false) => {
            let text =
                "clear needs success, failed or both: with none of them a key would never be free again";
            reader.fault(node.at, FaultCode::InvalidValue, text);
            None
        }
    }
}
