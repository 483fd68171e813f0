//! `longshore-setup` of the Debian package, with directories of the test in place of those of the system. The test of the package runs it as it is.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/debian/longshore-setup");

/// A machine on which `longshore-setup server jobs.test` was run.
fn server(root: &Path) {
    let program = |name: &str, text: &str| {
        let path = root.join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    fs::create_dir_all(root.join("bin")).unwrap();
    program("id", "echo 0");
    program("longshore", &format!("exec {} \"$@\"", env!("CARGO_BIN_EXE_longshore")));
    // There is no user longshore here.
    program(
        "install",
        "for word; do shift; case $word in -o | -g) skip=1 ;; *) [ -n \"$skip\" ] || set -- \"$@\" \"$word\"; skip= ;; esac; done
         exec /usr/bin/install \"$@\"",
    );
    let etc = root.join("etc");
    fs::create_dir_all(etc.join("tls")).unwrap();
    fs::write(etc.join("server-url"), "https://jobs.test:8080\n").unwrap();
    let ca = etc.join("ca").display().to_string();
    let made = Command::new(env!("CARGO_BIN_EXE_longshore"))
        .args(["cert", "--host", "jobs.test", "--dir", &ca])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    fs::copy(etc.join("ca/ca.pem"), etc.join("ca.pem")).unwrap();
    fs::copy(etc.join("ca/server.pem"), etc.join("tls/server.pem")).unwrap();
}

fn setup(root: &Path, words: &[&str]) -> Output {
    let script = fs::read_to_string(SCRIPT).unwrap();
    let script = script.replace("/etc/longshore", &root.join("etc").display().to_string());
    fs::write(root.join("longshore-setup"), script).unwrap();
    let path = format!("{}:/usr/bin:/bin", root.join("bin").display());
    Command::new("sh").arg(root.join("longshore-setup")).args(words).env("PATH", path).output().unwrap()
}

#[test]
fn a_renewal_keeps_the_name_and_the_authority_of_the_server() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    server(root);
    let certificate = || fs::read(root.join("etc/tls/server.pem")).unwrap();
    let authority = fs::read(root.join("etc/ca.pem")).unwrap();
    let before = certificate();
    let refused = |words: &[&str], why: &str| {
        let output = setup(root, words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{words:?}: {output:?}");
        assert_eq!(certificate(), before, "{words:?}");
        assert_eq!(fs::read(root.join("etc/ca.pem")).unwrap(), authority, "{words:?}");
    };
    refused(&["renew", "other.test"], "workers and users reach this server as jobs.test");
    fs::rename(root.join("etc/ca"), root.join("ca")).unwrap();
    refused(&["renew"], "is not one that workers trust");
    fs::rename(root.join("ca"), root.join("etc/ca")).unwrap();
    for words in [&["renew"][..], &["renew", "jobs.test"]] {
        let before = certificate();
        let output = setup(root, words);
        assert!(output.status.success(), "{output:?}");
        assert_ne!(certificate(), before);
        assert_eq!(fs::read(root.join("etc/ca.pem")).unwrap(), authority);
    }
    // While the authority changes, workers trust the old and the new one, and go on to do so.
    let other = Command::new(env!("CARGO_BIN_EXE_longshore"))
        .args(["cert", "--host", "jobs.test", "--dir", &root.join("other").display().to_string()])
        .output()
        .unwrap();
    assert!(other.status.success(), "{other:?}");
    let other = fs::read(root.join("other/ca.pem")).unwrap();
    for bundle in
        [[&other[..], &authority].concat(), [b"# the new one\n", &authority[..], b"\n\n", &other].concat()]
    {
        fs::write(root.join("etc/ca.pem"), &bundle).unwrap();
        let before = certificate();
        let output = setup(root, &["renew"]);
        assert!(output.status.success(), "{output:?}");
        assert_ne!(certificate(), before);
        assert_eq!(fs::read(root.join("etc/ca.pem")).unwrap(), bundle);
    }
    fs::write(root.join("etc/ca.pem"), &other).unwrap();
    let before = certificate();
    assert_eq!(setup(root, &["renew"]).status.code(), Some(2), "workers trust another authority only");
    assert_eq!(certificate(), before);
    fs::remove_file(root.join("etc/server-url")).unwrap();
    let output = setup(root, &["renew"]);
    assert_eq!(output.status.code(), Some(2), "this machine is no server: {output:?}");
}
