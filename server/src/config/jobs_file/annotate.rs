//! Completes the faults of files for people: names the key in each, and quotes its line with a mark under the position.

use super::fault::{Fault, Faults};
use super::sources::Sources;
use super::tree::Node;
use super::{key_names, snippet};

/// Completes the faults of the files, or their warnings, by their texts; `roots` are the trees of those that have one.
pub(super) fn annotate(
    read: Result<Vec<Fault>, Faults>,
    sources: &Sources<'_>,
    roots: &[Option<Node>],
) -> Result<Vec<Fault>, Faults> {
    match read {
        Ok(mut warnings) => {
            quote_lines(&mut warnings, sources);
            Ok(warnings)
        }
        Err(mut faults) => {
            for (file, root) in sources.files.iter().zip(roots) {
                if let Some(root) = root {
                    key_names::add(faults.list.iter_mut().filter(|fault| fault.file == file.shown), root);
                }
            }
            quote_lines(&mut faults.list, sources);
            Err(faults)
        }
    }
}

fn quote_lines(list: &mut [Fault], sources: &Sources<'_>) {
    for file in &sources.files {
        let Ok(text) = file.text else { continue };
        let mut faults = list.iter_mut().filter(|fault| fault.file == file.shown).peekable();
        if faults.peek().is_none() {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        faults.for_each(|fault| fault.snippet = snippet::quote(&lines, fault.at, fault.private));
    }
}
