//! The jobs file on the disk, as a deploy replaces it: by a rename, with the owner and the mode that it had, and with its former text kept
//! beside it.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, XattrFlags, access, fgetxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

use crate::config::jobs_file::listing::FileIdentity;
use crate::config::jobs_file::{self, JobsText};

/// The file that a deploy replaces.
#[derive(Debug)]
pub(super) struct DeployTarget {
    /// The path with its links resolved, so that a link stays one.
    path: PathBuf,
    /// None if there is no file now.
    metadata: Option<Metadata>,
}

/// The reason why the jobs file cannot be replaced. It names files without their directories: an API client does not need to know them.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", name(path))]
pub struct TargetError {
    path: PathBuf,
    reason: String,
    /// The next step.
    pub(crate) hint: &'static str,
}

/// The reason why a file that could be replaced was not.
#[derive(Debug)]
pub(super) enum ReplaceError {
    /// Somebody has edited it since it was found.
    Edited,
    /// The disk refuses.
    Disk(TargetError),
}

impl DeployTarget {
    /// Finds the file behind the path of the server's jobs file, and checks that it can be replaced as far as that can be seen beforehand.
    /// Blocks on the disk.
    pub(super) fn find(jobs_file: &Path) -> Result<Self, TargetError> {
        let refuse = |reason: String, hint| TargetError { path: jobs_file.to_owned(), reason, hint };
        let of_disk = |error: &io::Error| refuse(reason(error), hint(error));
        let is_link = fs::symlink_metadata(jobs_file).is_ok_and(|it| it.is_symlink());
        let (path, metadata) = match fs::canonicalize(jobs_file) {
            Ok(path) => {
                let metadata = fs::metadata(&path).map_err(|error| of_disk(&error))?;
                (path, Some(metadata))
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !is_link => (jobs_file.to_owned(), None),
            Err(error) => return Err(of_disk(&error)),
        };
        if metadata.as_ref().is_some_and(Metadata::is_dir) {
            return Err(refuse(
                "it is a directory of jobs files; a deploy replaces one file".to_owned(),
                ONE_FILE,
            ));
        }
        if metadata.as_ref().is_some_and(|it| !it.is_file()) {
            return Err(refuse("it is not a regular file".to_owned(), ONE_FILE));
        }
        let may_write = |path: &Path, rights| {
            access(path, rights).map_err(|error| {
                let error = io::Error::from(error);
                TargetError { path: path.to_owned(), reason: reason(&error), hint: hint(&error) }
            })
        };
        let target = Self { path, metadata };
        may_write(target.directory(), Access::WRITE_OK | Access::EXEC_OK)?;
        if target.metadata.is_some() {
            may_write(&target.path, Access::WRITE_OK)?;
        }
        Ok(target)
    }

    /// Replaces the file by this text, which is on the disk when this returns, and keeps the former text beside it. After a crash the
    /// file has either its old or its new text. `replaced` is called as soon as it has the new one. Returns the path of the former text;
    /// none if there was no file. Blocks on the disk.
    ///
    /// # Errors
    /// The file is as it was. Drafts beside it may be left; the next deploy removes them.
    pub(super) fn replace(
        &self,
        text: &[u8],
        replaced: impl FnOnce(FileIdentity),
    ) -> Result<Option<PathBuf>, ReplaceError> {
        let (draft, former_draft) = (self.hidden_beside(".draft"), self.hidden_beside(".previous.draft"));
        let swap = || {
            let file =
                self.write_drafts(text, &draft, &former_draft).map_err(|error| self.of_disk(&error))?;
            if self.has_changed() {
                return Err(ReplaceError::Edited);
            }
            fs::rename(&draft, &self.path).map_err(|error| self.of_disk(&error))?;
            Ok(file)
        };
        let file = swap().inspect_err(|_| {
            for draft in [&draft, &former_draft] {
                // One that was not made cannot be removed, and one that stays does no harm.
                let _ = fs::remove_file(draft);
            }
        })?;
        // Without this, a watch loads the file once more.
        if let Ok(metadata) = file.metadata() {
            replaced(FileIdentity::of(&metadata));
        }
        let former = self.metadata.as_ref().map(|_| self.previous());
        // The file has its new text, so nothing from here on may refuse the deploy.
        let kept = former.and_then(|former| match fs::rename(&former_draft, &former) {
            Ok(()) => Some(former),
            Err(error) => {
                tracing::warn!(%error, file = %former.display(), "the former text of the jobs file is not kept");
                None
            }
        });
        if let Err(error) = File::open(self.directory()).and_then(|directory| directory.sync_all()) {
            tracing::error!(
                %error, directory = %self.directory().display(),
                "the deployed jobs file may be lost if this machine crashes now: its directory cannot be synced"
            );
        }
        Ok(kept)
    }

    /// True if there was a file when this was found.
    pub(super) const fn exists(&self) -> bool {
        self.metadata.is_some()
    }

    /// The path of the former text.
    pub(super) fn previous(&self) -> PathBuf {
        previous_of(&self.path)
    }

    /// Writes the new text and the former one beside the file. Returns the file with the new one.
    fn write_drafts(&self, text: &[u8], draft: &Path, former_draft: &Path) -> io::Result<File> {
        if let Some(metadata) = &self.metadata {
            self.copy_former(former_draft, metadata)?;
        }
        let mut file = self.open_draft(draft)?;
        file.write_all(text)?;
        file.sync_all()?;
        Ok(file)
    }

    fn of_disk(&self, error: &io::Error) -> ReplaceError {
        ReplaceError::Disk(TargetError { path: self.path.clone(), reason: reason(error), hint: hint(error) })
    }

    /// True if the file is not the one that was found.
    fn has_changed(&self) -> bool {
        let now = fs::metadata(&self.path).ok();
        now.as_ref().map(FileIdentity::of) != self.metadata.as_ref().map(FileIdentity::of)
    }

    fn copy_former(&self, draft: &Path, metadata: &Metadata) -> io::Result<()> {
        let mut copy = self.open_draft(draft)?;
        // Not more than the file had when its kind was checked.
        io::copy(&mut io::Read::take(File::open(&self.path)?, metadata.len()), &mut copy)?;
        copy.sync_all()
    }

    /// Makes a new file with the owner and the mode of the target.
    fn open_draft(&self, draft: &Path) -> io::Result<File> {
        if let Err(error) = fs::remove_file(draft)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        // Made anew, so that nobody else has it open; others may read it only once it has its owner.
        let file = File::options().write(true).create_new(true).mode(0o600).open(draft)?;
        let Some(like) = &self.metadata else { return Ok(file) };
        let own = file.metadata()?;
        let owner = (own.uid() != like.uid()).then(|| like.uid());
        let group = (own.gid() != like.gid()).then(|| like.gid());
        if owner.is_some() || group.is_some() {
            let (user, of_group) = (like.uid(), like.gid());
            fchown(&file, owner, group).map_err(|error| {
                let text = format!(
                    "a new file cannot be given to its owner, user {user} and group {of_group}: {error}"
                );
                io::Error::new(ErrorKind::PermissionDenied, text)
            })?;
        }
        file.set_permissions(fs::Permissions::from_mode(like.mode() & 0o777))?;
        copy_acl(&File::open(&self.path)?, &file)?;
        Ok(file)
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// A path in the same directory, whose name no server reads as one of a jobs file.
    fn hidden_beside(&self, ending: &str) -> PathBuf {
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(ending);
        self.directory().join(name)
    }
}

/// Gives a new file the access control list of the old one: with such a list the mode alone would admit others.
fn copy_acl(old: &File, new: &File) -> io::Result<()> {
    let mut list = [0; ACL_BYTES_MAX];
    match fgetxattr(old, ACL, &mut list) {
        Ok(length) => fsetxattr(new, ACL, &list[..length], XattrFlags::empty())?,
        // The directory may have given the new file one.
        Err(Errno::NODATA) => match fremovexattr(new, ACL) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        },
        Err(Errno::NOTSUP) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// The extended attribute with the access control list of a file: acl(5).
const ACL: &str = "system.posix_acl_access";
/// More than a thousand entries of eight bytes.
const ACL_BYTES_MAX: usize = 16 * 1_024;

/// The path of the former text of the jobs file with this path. Links of the path must be resolved.
pub(super) fn previous_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".previous");
    name.into()
}

/// The former text of this jobs file, so that a deploy of it can be taken back; none if no deploy has kept one. Blocks on the disk.
pub(super) fn former_text(jobs_file: &Path) -> Option<JobsText> {
    let path = fs::canonicalize(jobs_file).ok().filter(|path| path.is_file())?;
    jobs_file::read_text(&previous_of(&path)).ok()
}

/// The name of a file, without the directories above it.
pub(super) fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ReadOnlyFilesystem => "it is on a read-only mount".to_owned(),
        ErrorKind::ResourceBusy => {
            "it is a mount of its own, which cannot be replaced by a rename".to_owned()
        }
        ErrorKind::NotFound => "its directory, or the file that it links to, does not exist".to_owned(),
        _ => format!("the server cannot replace it: {error}"),
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::ResourceBusy => "mount the directory of the jobs file, writable, in place of the file",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space on the disk of the jobs file",
        ErrorKind::IsADirectory => "remove the directory whose name ends with .draft beside the jobs file",
        _ => {
            "the server's user must own the jobs file and its directory, and both must be on a writable mount"
        }
    }
}

const ONE_FILE: &str = "name one file with --jobs, or bring the files to the server, and 'longshore reload'";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_link_stays_one() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("real")).unwrap();
        fs::write(at("real/v1.yaml"), "old").unwrap();
        fs::set_permissions(at("real/v1.yaml"), fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("real/v1.yaml", at("jobs.yaml")).unwrap();
        // Left by a crash.
        fs::write(at("real/.v1.yaml.draft"), "half").unwrap();
        let mut written = None;
        let target = DeployTarget::find(&at("jobs.yaml")).expect("it can be replaced");
        let former = target.replace(b"new", |identity| written = Some(identity)).expect("replaced");
        assert!(fs::symlink_metadata(at("jobs.yaml")).unwrap().is_symlink());
        assert_eq!((read(&at("jobs.yaml")), read(&former.expect("kept"))), ("new".into(), "old".into()));
        let metadata = fs::metadata(at("real/v1.yaml")).unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o640);
        assert_eq!(written, Some(FileIdentity::of(&metadata)), "as the watch of the file will find it");
        let mut names: Vec<_> = fs::read_dir(at("real")).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["v1.yaml", "v1.yaml.previous"]);
    }

    #[test]
    fn a_file_keeps_its_access_control_list() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("jobs.yaml");
        fs::write(&path, "old").unwrap();
        // Version 2; the owner reads and writes, user 1000 reads, the group and others do nothing.
        let entries =
            [(1, 6, u32::MAX), (2, 4, 1000), (4, 0, u32::MAX), (0x10, 4, u32::MAX), (0x20, 0, u32::MAX)];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            list.extend([u16::to_le_bytes(tag), u16::to_le_bytes(rights)].concat());
            list.extend(u32::to_le_bytes(id));
        }
        match fsetxattr(File::open(&path).unwrap(), ACL, &list, XattrFlags::empty()) {
            // A file system without such lists has none to lose.
            Err(Errno::NOTSUP) => return,
            set => set.unwrap(),
        }
        let target = DeployTarget::find(&path).expect("it can be replaced");
        let former = target.replace(b"new", |_| {}).expect("replaced").expect("kept");
        for file in [path, former] {
            let mut kept = [0; ACL_BYTES_MAX];
            let length = fgetxattr(File::open(&file).unwrap(), ACL, &mut kept).unwrap();
            assert_eq!(kept[..length], list, "{}", file.display());
        }
    }

    #[test]
    fn a_file_that_is_gone_is_made_and_a_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("jobs.yaml");
        let target = DeployTarget::find(&file).expect("its directory is there");
        assert_eq!(target.replace(b"new", |_| {}).expect("made"), None);
        assert_eq!(read(&file), "new");
        for path in [directory.path().to_owned(), directory.path().join("gone/jobs.yaml"), "/dev/null".into()]
        {
            DeployTarget::find(&path).expect_err("it cannot be replaced");
        }
    }

    #[test]
    fn a_failed_replacement_leaves_the_file_and_its_former_text() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("jobs.yaml"), "old").unwrap();
        fs::write(at("jobs.yaml.previous"), "older").unwrap();
        fs::create_dir(at(".jobs.yaml.draft")).unwrap();
        let target = DeployTarget::find(&at("jobs.yaml")).expect("nothing is seen beforehand");
        target.replace(b"new", |_| panic!("it was not replaced")).expect_err("the draft cannot be made");
        assert_eq!((read(&at("jobs.yaml")), read(&at("jobs.yaml.previous"))), ("old".into(), "older".into()));
        assert!(!at(".jobs.yaml.previous.draft").exists());
    }

    #[test]
    fn a_file_that_was_changed_since_it_was_found_stays() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("jobs.yaml");
        fs::write(&file, "old").unwrap();
        let target = DeployTarget::find(&file).expect("it can be replaced");
        fs::write(&file, "edited").unwrap();
        let error = target.replace(b"new", |_| panic!("it was not replaced")).expect_err("it was changed");
        assert!(matches!(error, ReplaceError::Edited), "{error:?}");
        assert_eq!(read(&file), "edited");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "drafts are left");
    }
}
