//! A copy of the workspace to plant bugs in, so that nobody's own files are ever touched.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// Makes `copy` hold what is needed to build the workspace's members, and nothing else. A file that is the same already is not written,
/// so that what was built from it is not built again.
///
/// # Errors
/// Something cannot be read or written.
pub(super) fn refresh(root: &Path, copy: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(root).with_context(|| root.display().to_string())? {
        let entry = entry?;
        let (from, to) = (entry.path(), copy.join(entry.file_name()));
        let is_member = from.join("Cargo.toml").exists();
        if entry.file_type()?.is_file() {
            copy_file(&from, &to)?;
        } else if is_member {
            copy_directory(&from, &to)?;
        }
    }
    Ok(())
}

fn copy_directory(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = entry.file_type()?;
        if kind.is_dir() && OUTPUTS.iter().all(|output| name != *output) {
            copy_directory(&entry.path(), &to.join(&name))?;
        } else if kind.is_file() {
            copy_file(&entry.path(), &to.join(&name))?;
        }
        names.insert(name);
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        match (names.contains(&entry.file_name()), entry.file_type()?.is_dir()) {
            (true, _) => {}
            (false, true) => fs::remove_dir_all(entry.path())?,
            (false, false) => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(from).with_context(|| from.display().to_string())?;
    if fs::read(to).is_ok_and(|before| before == bytes) {
        return Ok(());
    }
    fs::write(to, bytes).with_context(|| to.display().to_string())
}

/// Directories that builds and fuzzing leave behind.
const OUTPUTS: [&str; 3] = ["target", "corpus", "artifacts"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_what_the_workspace_has_and_only_what_differs_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let (root, copy) = (directory.path().join("root"), directory.path().join("root/target/copy"));
        for (path, text) in
            [("Cargo.toml", "w"), ("a/Cargo.toml", "a"), ("a/src/b.rs", "b"), ("docs/c.md", "c")]
        {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir_all(&copy).unwrap();
        refresh(&root, &copy).unwrap();
        assert_eq!(fs::read_to_string(copy.join("a/src/b.rs")).unwrap(), "b");
        assert!(!copy.join("docs").exists() && !copy.join("target").exists());

        fs::write(copy.join("a/src/b.rs"), "a bug").unwrap();
        fs::write(copy.join("a/src/gone.rs"), "").unwrap();
        fs::create_dir_all(copy.join("a/src/b")).unwrap();
        fs::write(copy.join("a/src/b/mod.rs"), "").unwrap();
        let written = fs::metadata(copy.join("a/Cargo.toml")).unwrap().modified().unwrap();
        refresh(&root, &copy).unwrap();
        assert_eq!(fs::read_to_string(copy.join("a/src/b.rs")).unwrap(), "b");
        assert!(!copy.join("a/src/gone.rs").exists() && !copy.join("a/src/b").exists());
        assert_eq!(fs::metadata(copy.join("a/Cargo.toml")).unwrap().modified().unwrap(), written);
    }
}
