//! The key `retention`: how long ended jobs of a definition and their output are kept. It is no part of the revision.

use super::keys::retention as keys;
use super::reader::Reader;
use super::scope::Scope;
use crate::retention_rule::RetentionRule;

/// Reads the rule; without the key it is empty, and the limits of the server hold alone.
pub(super) fn read(scope: Scope<'_>, reader: &mut Reader<'_>) -> RetentionRule {
    let part = scope.part("retention", keys::RETENTION, reader);
    let keep = part.find("keep").and_then(|node| reader.integer(node, keys::KEEP));
    let mut age = |key: &str| {
        let node = part.find(key)?;
        reader.duration(node, keys::AGE_MIN, keys::AGE_MAX)
    };
    RetentionRule {
        keep: keep.and_then(|keep| u64::try_from(keep).ok()),
        max_age: age("max_age"),
        failed_max_age: age("failed_max_age"),
        output_max_age: age("output_max_age"),
    }
}
