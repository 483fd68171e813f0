//! The kind of file system that a directory is on. Locks and syncs over a network cannot be trusted, so a store is not put there.
//!
//! Kernel file systems have numbers. All FUSE file systems share one, so their names are read from the table of mounts.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::statfs;

/// The name of the network file system that a directory is on; nothing if it is on none that is known.
pub(crate) fn on_network(path: &Path) -> io::Result<Option<&'static str>> {
    // Without /proc only the number is left.
    on_network_by(path, &fs::read("/proc/self/mountinfo").unwrap_or_default())
}

fn on_network_by(path: &Path, mounts: &[u8]) -> io::Result<Option<&'static str>> {
    let number = u64::try_from(statfs(path)?.f_type).unwrap_or(0);
    let path = path.canonicalize()?;
    let device = path.metadata()?.dev();
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let by_name = || mount_of(&path, &device, mounts).and_then(|mount| by_name(&mount));
    Ok(by_number(number).or_else(by_name))
}

/// The name of a file system that is known to be on another machine. Magic numbers: statfs(2), linux/magic.h.
const fn by_number(kind: u64) -> Option<&'static str> {
    // The kernel's type is signed on some machines: only the low 32 bits mean something.
    match kind & 0xFFFF_FFFF {
        0x6969 => Some("NFS"),
        0x517B | 0xFE53_4D42 | 0xFF53_4D42 => Some("an SMB share"),
        0x5346_414F | 0x6B41_4653 => Some("AFS"),
        0x00C3_6400 => Some("Ceph"),
        0x0BD0_0BD0 => Some("Lustre"),
        0x0102_1997 => Some("9P"),
        0x7461_636F => Some("OCFS2"),
        0x4750_4653 => Some("GPFS"),
        _ => None,
    }
}

/// A line of the table of mounts: proc_pid_mountinfo(5).
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The numbers of the device, as `8:1`.
    device: String,
    point: PathBuf,
    /// The type, for FUSE with the name of its program: `fuse.sshfs`.
    kind: String,
    source: String,
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ');
        let device = String::from_utf8_lossy(words.nth(2)?).into_owned();
        let point = PathBuf::from(OsString::from_vec(unescaped(words.nth(1)?)));
        // Optional words end with a dash.
        words.find(|word| *word == b"-")?;
        let mut text = || Some(String::from_utf8_lossy(&unescaped(words.next()?)).into_owned());
        Some(Self { device, point, kind: text()?, source: text()? })
    }
}

/// The mount that an absolute path without links on this device is on: the longest one of the device that holds it, and of several there the
/// last, which hides the others. Some file systems give their files other devices; then all mounts count.
fn mount_of(path: &Path, device: &str, mounts: &[u8]) -> Option<Mount> {
    let mounts = mounts.split(|byte| *byte == b'\n').filter_map(Mount::parse);
    let holders = mounts.filter(|mount| path.starts_with(&mount.point));
    holders.max_by_key(|mount| (mount.device == device, mount.point.components().count()))
}

/// Blanks, tabs, line breaks and backslashes stand in the table as `\` and three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            _ => bytes.push(*first),
        }
    }
    bytes
}

fn by_name(mount: &Mount) -> Option<&'static str> {
    if mount.kind == "fuse" {
        // Programs that give no name of their own.
        let is_dav = mount.source.starts_with("https://") || mount.source.starts_with("http://");
        let is_bucket = mount.source == "mountpoint-s3";
        return is_dav.then_some("WebDAV").or_else(|| is_bucket.then_some("an S3 bucket"));
    }
    NAMES.iter().find(|(kind, _)| *kind == mount.kind).map(|(_, name)| *name)
}

/// Types in the table of mounts, and their names for people. A FUSE file system that is not listed counts as local, as fuse-overlayfs is.
const NAMES: &[(&str, &str)] = &[
    ("beegfs", "BeeGFS"),
    ("pvfs2", "OrangeFS"),
    ("wekafs", "WekaFS"),
    ("panfs", "PanFS"),
    ("fuse.sshfs", "SSHFS"),
    ("fuse.glusterfs", "GlusterFS"),
    ("fuse.ceph", "Ceph"),
    ("fuse.ceph-fuse", "Ceph"),
    ("fuse.juicefs", "JuiceFS"),
    ("fuse.cubefs", "CubeFS"),
    ("fuse.seaweedfs", "SeaweedFS"),
    ("fuse.mfs", "MooseFS"),
    ("fuse.moosefs", "MooseFS"),
    ("fuse.lizardfs", "LizardFS"),
    ("fuse.quobyte", "Quobyte"),
    ("fuse.fuse_dfs", "HDFS"),
    ("fuse.alluxio-fuse", "Alluxio"),
    ("fuse.objectivefs", "ObjectiveFS"),
    ("fuse.s3fs", "an S3 bucket"),
    ("fuse.goofys", "an S3 bucket"),
    ("fuse.mount-s3", "an S3 bucket"),
    ("fuse.mountpoint-s3", "an S3 bucket"),
    ("fuse.gcsfuse", "a Google Cloud Storage bucket"),
    ("fuse.blobfuse", "an Azure Blob container"),
    ("fuse.blobfuse2", "an Azure Blob container"),
    ("fuse.rclone", "an rclone remote"),
    ("fuse.davfs", "WebDAV"),
    ("fuse.davfs2", "WebDAV"),
    ("fuse.curlftpfs", "an FTP server"),
    ("fuse.fuse-nfs", "NFS"),
    ("fuse.smbnetfs", "an SMB share"),
];

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = r"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:40 / /srv rw,nosuid master:2 shared:3 - fuse.fuse-overlayfs fuse-overlayfs rw,user_id=0
24 23 0:41 / /srv/far rw - fuse.sshfs backup@far:/data rw
25 23 0:42 / /srv/far/near rw - ext4 /dev/sdb1 rw
26 23 0:43 / /srv/two\040words rw - fuse.rclone remote: rw
27 22 0:44 / /hidden rw - fuse.s3fs s3fs rw
28 22 0:45 / /hidden rw - tmpfs tmpfs rw
29 22 0:46 / /shown rw - tmpfs tmpfs rw
30 22 0:47 / /shown rw - beegfs beegfs_nodev rw
31 22 0:48 / /dav rw - fuse https://dav.example/files rw
32 22 0:49 / /bucket rw - fuse mountpoint-s3 rw
33 22 0:50 / /ntfs rw - fuseblk /dev/sdc1 rw
34 22 0:51 / /own rw - fuse /dev/fuse rw
a line that means nothing
";

    fn found(path: &str) -> Option<&'static str> {
        on_device(path, "unknown")
    }

    fn on_device(path: &str, device: &str) -> Option<&'static str> {
        by_name(&mount_of(Path::new(path), device, MOUNTS.as_bytes()).expect("a mount"))
    }

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        assert_eq!(by_number(0x6969), Some("NFS"));
        assert_eq!(by_number(0xFFFF_FFFF_FF53_4D42), Some("an SMB share"));
        assert_eq!(by_number(0xEF53), None, "ext4 is local");
    }

    #[test]
    fn a_directory_is_on_the_longest_mount_that_holds_it() {
        assert_eq!(found("/srv/far/data"), Some("SSHFS"));
        assert_eq!(found("/srv/far"), Some("SSHFS"));
        assert_eq!(found("/srv/far/near/data"), None, "a local disk within a remote one");
        assert_eq!(found("/srv/farther"), None, "a name is compared as a whole");
        assert_eq!(found("/srv/two words/data"), Some("an rclone remote"));
    }

    #[test]
    fn the_last_mount_at_a_place_counts() {
        assert_eq!((found("/hidden/data"), found("/shown/data")), (None, Some("BeeGFS")));
    }

    #[test]
    fn a_mount_that_a_later_one_hides_does_not_count() {
        assert_eq!(
            (on_device("/srv/far/data", "0:41"), on_device("/srv/far/data", "8:1")),
            (Some("SSHFS"), None)
        );
    }

    #[test]
    fn local_file_systems_of_fuse_are_allowed() {
        for local in ["/", "/srv/data", "/ntfs/data", "/own/data"] {
            assert_eq!(found(local), None, "{local}");
        }
        assert_eq!((found("/dav/data"), found("/bucket/data")), (Some("WebDAV"), Some("an S3 bucket")));
    }

    #[test]
    fn each_type_of_the_list_is_refused_by_its_name() {
        for kind in ["glusterfs", "ceph", "juicefs", "s3fs", "rclone", "gcsfuse"] {
            let mount = Mount {
                device: String::new(),
                point: "/".into(),
                kind: format!("fuse.{kind}"),
                source: String::new(),
            };
            assert!(by_name(&mount).is_some(), "{kind}");
        }
    }

    #[test]
    fn a_link_to_a_network_file_system_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let far = place.path().canonicalize().unwrap().join("far");
        fs::create_dir(&far).unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&far, &link).unwrap();
        let mounts = format!("24 23 0:41 / {} rw - fuse.sshfs far:/ rw\n", far.display());
        assert_eq!(on_network_by(&link, mounts.as_bytes()).unwrap(), Some("SSHFS"));
        assert_eq!(on_network_by(place.path(), mounts.as_bytes()).unwrap(), None);
        assert!(on_network(&place.path().join("no")).is_err());
    }
}
