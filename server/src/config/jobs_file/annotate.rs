//! Completes the faults of a file for people: names the key in each, and quotes its line with a mark under the position.

use super::fault::{Fault, Faults};
use super::tree::Node;
use super::{key_names, snippet};

/// Completes the faults of `file`, or its warnings, by its text; `root` is its tree, if it has one.
pub(super) fn annotate(
    read: Result<Vec<Fault>, Faults>,
    file: &str,
    text: &str,
    root: Option<&Node>,
) -> Result<Vec<Fault>, Faults> {
    match read {
        Ok(mut warnings) => {
            quote_lines(&mut warnings, file, text);
            Ok(warnings)
        }
        Err(mut faults) => {
            if let Some(root) = root {
                key_names::add(faults.list.iter_mut().filter(|fault| *fault.file == *file), root);
            }
            quote_lines(&mut faults.list, file, text);
            Err(faults)
        }
    }
}

fn quote_lines(list: &mut [Fault], file: &str, text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    for fault in list.iter_mut().filter(|fault| *fault.file == *file) {
        fault.snippet = snippet::quote(&lines, fault.at, fault.private);
    }
}
