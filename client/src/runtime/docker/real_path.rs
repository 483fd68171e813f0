//! Resolves links in paths of this machine. A lookup may hang, so `admit` calls this on threads with a time limit.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The path to which the source of a bind mount leads. If it does not exist, the rest below its nearest existing directory is taken as
/// written: the engine will report it, or sees it where this process does not, as with a private `/tmp`.
///
/// # Errors
/// The reason why this process cannot see whether a link leads elsewhere. The engine has more rights, and would follow it.
pub(super) fn real_source(path: &Path) -> Result<PathBuf, String> {
    match path.canonicalize() {
        Ok(real) => return Ok(real),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.to_string()),
    }
    // Without a slash at the end, which would follow a link.
    let path: PathBuf = path.components().collect();
    for ancestor in path.ancestors() {
        match ancestor.symlink_metadata() {
            Ok(_) => return below_existing(ancestor, &path),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(path)
}

/// The real path of the nearest ancestor that exists, and the rest of the path.
fn below_existing(ancestor: &Path, path: &Path) -> Result<PathBuf, String> {
    let real = ancestor.canonicalize().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            format!("`{}` is a link to nothing", ancestor.to_string_lossy().escape_debug())
        }
        _ => error.to_string(),
    })?;
    let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
    Ok(real.components().chain(rest.components()).collect())
}

/// The path of a socket without links. Without the socket it is the place at which the engine would make it.
pub(super) fn real_socket(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return Some(real);
    }
    // A link may lead to a place where nothing is yet.
    let target = path.read_link().ok().and_then(|target| Some(path.parent()?.join(target)));
    let expected = target.as_deref().unwrap_or(path);
    expected.ancestors().skip(1).find_map(|ancestor| {
        let below = expected.strip_prefix(ancestor).ok()?;
        Some(ancestor.canonicalize().ok()?.join(below))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::unprivileged::rerun_unprivileged;

    #[test]
    fn a_link_behind_a_closed_directory_is_no_path() {
        if rerun_unprivileged(
            "runtime::docker::real_path::tests::a_link_behind_a_closed_directory_is_no_path",
        ) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("closed");
        std::fs::create_dir(&closed).unwrap();
        symlink("/etc", closed.join("link")).unwrap();
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o600)).unwrap();
        let seen = real_source(&closed.join("link"));
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
        assert!(seen.as_ref().is_err_and(|why| why.contains("Permission denied")), "{seen:?}");
    }

    #[test]
    fn a_source_that_cannot_be_seen_through_is_no_path() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().canonicalize().unwrap();
        let seen = |below: &str| real_source(&dir.join(below));
        std::fs::create_dir(dir.join("real")).unwrap();
        std::fs::write(dir.join("real/file"), "").unwrap();
        for (link, target) in
            [("link", "real"), ("dangling", "/nowhere/at/all"), ("loop", "loop"), ("real/up", "../nothing")]
        {
            symlink(target, dir.join(link)).unwrap();
        }
        assert_eq!(seen("link/file"), Ok(dir.join("real/file")));
        // A missing path counts as written below the directory that exists.
        assert_eq!(seen("no/yet"), Ok(dir.join("no/yet")));
        assert_eq!(seen("link/no/yet/"), Ok(dir.join("real/no/yet")));
        for link in ["dangling", "dangling/", "dangling/.", "dangling/below/it", "link/up", "link/up/below"] {
            assert!(seen(link).is_err_and(|why| why.contains("is a link to nothing")), "{link}");
        }
        // All other errors prove nothing, as those of a directory that only root may search.
        for unseen in ["loop", "loop/below", "real/file/below"] {
            assert!(seen(unseen).is_err(), "{unseen}");
        }
    }

    #[test]
    fn a_socket_is_resolved_before_it_exists() {
        let dir = tempfile::tempdir().unwrap();
        let [real, link] = ["real", "link"].map(|name| dir.path().canonicalize().unwrap().join(name));
        std::fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        assert_eq!(real_socket(&link.join("docker.sock")), Some(real.join("docker.sock")));
        symlink("elsewhere.sock", real.join("docker.sock")).unwrap();
        std::fs::write(real.join("elsewhere.sock"), "").unwrap();
        assert_eq!(real_socket(&link.join("docker.sock")), Some(real.join("elsewhere.sock")));
        assert_eq!(real_socket(&link.join("no/yet/docker.sock")), Some(real.join("no/yet/docker.sock")));
        symlink("../later/x.sock", real.join("dangling.sock")).unwrap();
        let later = dir.path().canonicalize().unwrap().join("later/x.sock");
        assert_eq!(real_socket(&real.join("dangling.sock")), Some(later));
    }
}
