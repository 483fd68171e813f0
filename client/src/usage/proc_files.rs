//! Reads of small files of the kernel, and the formats that several of them share.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The content of a small file; `None` if it cannot be read. A longer file is cut. The name of a process may hold bytes that are no text.
pub(super) fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::with_capacity(512);
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads an open file from its beginning once more: the kernel writes it anew. Only whole lines of a longer file are used.
pub(super) fn read_again(file: &File) -> Option<String> {
    let mut bytes = vec![0; NET_BYTES];
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], length as u64).ok()? {
            0 => break,
            count => length += count,
        }
    }
    // A full buffer may end inside of a number.
    if length == bytes.len() {
        length = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
    }
    bytes.truncate(length);
    String::from_utf8(bytes).ok()
}

/// A file that holds one number.
pub(super) fn number(path: &Path) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

/// The value after a key in lines of `key value`.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix([' ', ':', '\t']))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes received and sent, in `/proc/<pid>/net/dev`, over all interfaces but the loopback.
pub(super) fn network(dev: &str) -> (u64, u64) {
    let interfaces = dev.lines().filter_map(|line| line.split_once(':'));
    let counted = interfaces.filter(|(name, _)| name.trim() != "lo").filter_map(|(_, columns)| {
        let columns: Vec<u64> = columns.split_whitespace().map_while(|it| it.parse().ok()).collect();
        Some((*columns.first()?, *columns.get(SENT_COLUMN)?))
    });
    counted.fold((0, 0), |sum: (u64, u64), it| (sum.0.saturating_add(it.0), sum.1.saturating_add(it.1)))
}

/// Index of the bytes sent among the columns of an interface in `/proc/<pid>/net/dev`, from 0.
const SENT_COLUMN: usize = 8;

/// No file of the kernel that is read here is longer, even with hundreds of block devices.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Enough for a hundred network interfaces.
const NET_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &str = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     900       9    0    0    0     0          0         0      900       9    0    0    0     0       0          0
  eth0:     200       2    0    0    0     0          0         0       50       1    0    0    0     0       0          0
  eth1:7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0
";

    #[test]
    fn bytes_of_all_interfaces_but_the_loopback_are_added() {
        assert_eq!(network(DEV), (207, 58));
        assert_eq!(network("eth0: 5\neth1: x y\n"), (0, 0), "lines of another form are left out");
        let absurd = format!("a: {0} 0 0 0 0 0 0 0 {0}\nb: {0} 0 0 0 0 0 0 0 {0}\n", u64::MAX);
        assert_eq!(network(&absurd), (u64::MAX, u64::MAX));
    }

    #[test]
    fn unfinished_line_of_a_long_file_is_dropped() {
        let directory = tempfile::tempdir().expect("a directory");
        let content = |lines: usize| "eth0: 12345678 0 0 0 0 0 0 0 87654321 0 0 0 0 0 0 0\n".repeat(lines);
        let line = content(1).len();
        assert_ne!(NET_BYTES % line, 0, "the limit lies inside of a line");
        for (lines, expected) in [(3, 3), (NET_BYTES / line + 9, NET_BYTES / line)] {
            let path = directory.path().join("dev");
            std::fs::write(&path, content(lines)).expect("a file");
            let read = read_again(&File::open(&path).expect("a file"));
            assert_eq!(read.map(|text| text == content(expected)), Some(true), "{lines} lines");
        }
    }

    #[test]
    fn a_name_that_is_cut_within_a_character_hides_nothing_behind_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("status");
        std::fs::write(&path, b"Name:\txxxxxxxxxxxxxx\xc3\nVmHWM:\t    64 kB\n").expect("a file");
        assert_eq!(read(&path).and_then(|text| keyed(&text, "VmHWM")), Some(64));
    }

    #[test]
    fn a_key_is_found_as_a_whole_word() {
        let stat = "usage_usec 12\nusage 7\n";
        assert_eq!((keyed(stat, "usage"), keyed(stat, "usage_usec")), (Some(7), Some(12)));
        assert_eq!(keyed("VmHWM:\t    64 kB\n", "VmHWM"), Some(64));
        assert_eq!((keyed(stat, "other"), keyed("usage x", "usage")), (None, None));
    }
}
