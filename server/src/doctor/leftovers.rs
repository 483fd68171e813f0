//! Files that something left behind, and inputs that the store refused.

use std::path::Path;

use super::finding::Finding;
use crate::engine::{RefusedCounts, refused_inputs};
use crate::maintenance::leftovers::{self, LeftoverKind};

pub(super) fn examine(data: &Path) -> Vec<Finding> {
    let found = match leftovers::find(data) {
        Ok(found) => found,
        Err(error) => {
            let text = format!("cannot be listed: {error}");
            return vec![Finding::warn("leftovers", text, "run this as the server's user")];
        }
    };
    let count = |kind| found.iter().filter(|it| it.kind == kind).count();
    let bytes: u64 = found.iter().map(leftovers::Leftover::bytes).sum();
    let text = if found.is_empty() {
        "none".to_owned()
    } else {
        format!(
            "{} replaced stores, {} drafts, {} reports of refused groups, {} MiB; the server deletes them after 30 days, drafts after one",
            count(LeftoverKind::ReplacedStore),
            count(LeftoverKind::Draft),
            count(LeftoverKind::RefusedGroup),
            bytes >> 20
        )
    };
    vec![Finding::ok("leftovers", text), refused(data, count(LeftoverKind::RefusedGroup))]
}

fn refused(data: &Path, reports: usize) -> Finding {
    let RefusedCounts { suspected, blocked } = refused_inputs(data);
    if reports + suspected + blocked == 0 {
        return Finding::ok("refused groups", "none");
    }
    Finding::warn(
        "refused groups",
        format!("{reports} reports; {suspected} inputs are suspected, {blocked} are blocked"),
        "this is a bug: attach refused-group-*.txt to a report of it; to accept the inputs again, stop the server and delete refused-inputs.txt",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_of_leftovers_are_counted_beside_their_bytes() {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join("refused-group-7.txt"), vec![b'x'; 2 << 20]).unwrap();
        let shown = format!("{:?}", examine(data.path()));
        assert!(shown.contains("0 replaced stores, 0 drafts, 1 reports of refused groups, 2 MiB"), "{shown}");
    }
}
