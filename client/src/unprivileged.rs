//! Tests of missing rights, which root does not notice.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// If the user is root, runs the test with this path within the crate again as user 65534 and returns `true`; the caller must then return. If
/// that user cannot execute the test binary, the test is skipped with a message.
pub(crate) fn rerun_unprivileged(test: &str) -> bool {
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
        Err(error) => eprintln!("skipped: user 65534 cannot execute this test binary: {error}"),
    }
    true
}
