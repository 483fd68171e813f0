//! Every planted bug can still be planted: `cargo xtask planted` takes too long to be run for each change.

use std::collections::BTreeMap;

use super::Complaint;
use super::tree::Tree;
use crate::planted::patch::Patch;
use crate::planted::{DIRECTORY, REFRESH};

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut numbers: BTreeMap<&str, &str> = BTreeMap::new();
    for (file, text) in
        tree.files().filter(|(file, _)| file.starts_with(DIRECTORY) && file.ends_with(".patch"))
    {
        let mut complain = |what: String| {
            let file = file.to_owned();
            let why = "a bug that cannot be planted is not tested, so nobody knows whether the simulation still finds it";
            complaints.push(Complaint { file, line: 1, what, why, instead: REFRESH });
        };
        let name = file.rsplit('/').next().unwrap_or(file);
        let number = name.split('-').next().unwrap_or(name);
        if let Some(other) = numbers.insert(number, name) {
            complain(format!("it has the number of {other}"));
        }
        if let Err(error) = plant(tree, text) {
            complain(format!("it cannot be planted: {error:#}"));
        }
    }
    complaints
}

fn plant(tree: &Tree, text: &str) -> anyhow::Result<()> {
    let patch = Patch::parse(text)?;
    for file in &patch.files {
        file.plant(tree.text(&file.path).unwrap_or_default())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted::patch::tests::PATCH;

    #[test]
    fn a_patch_that_has_rotted_is_named() {
        let with = |code: &'static str| {
            let tree = Tree::of(&[("sim/planted/01-sum.patch", PATCH), ("worker/src/a.rs", code)]);
            check(&tree)
        };
        assert_eq!(with("fn sum() {\n    four()\n}\n"), []);
        let rotten = with("fn sum() {\n    2 + 2\n}\n");
        assert_eq!(rotten.len(), 1);
        assert_eq!(rotten[0].file, "sim/planted/01-sum.patch");
        assert!(rotten[0].what.contains("worker/src/a.rs has no such lines"), "{}", rotten[0].what);
    }

    #[test]
    fn two_bugs_of_one_number_are_found() {
        let code = "fn sum() {\n    four()\n}\n";
        let patches = [("sim/planted/01-a.patch", PATCH), ("sim/planted/01-b.patch", PATCH)];
        let tree = Tree::of(&[patches[0], patches[1], ("worker/src/a.rs", code)]);
        assert_eq!(check(&tree).len(), 1);
    }
}
