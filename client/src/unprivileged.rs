//! Tests of missing rights, which root does not notice.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Runs the calling test, of this path within the crate, once more as nobody, and returns `true`, if the user is root.
pub(crate) fn ran_as_nobody(test: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let mut again = Command::new(std::env::current_exe().expect("a program"));
    // Root's own directory for temporary files may be closed to others.
    let again = again.args([test, "--exact"]).uid(65534).gid(65534).current_dir("/").env("TMPDIR", "/tmp");
    match again.output() {
        Ok(output) => {
            let has_run = String::from_utf8_lossy(&output.stdout).contains("1 passed");
            assert!(output.status.success() && has_run, "{output:?}");
        }
        Err(error) => eprintln!("not run: nobody cannot start this program: {error}"),
    }
    true
}
