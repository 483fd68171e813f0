//! The Debian package, built from the debug binary, then installed, used, upgraded, removed and purged in a container of the base image.
//!
//! The container has no network and no systemd. The script in package_test/in_container.sh therefore starts the programs by the `ExecStart=`
//! lines of the installed units, as the users that these name.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::process::Command;
use tokio::time::timeout;

use crate::dist::debian::{self, Compression};
use crate::dist::{Release, stage};
use crate::images::{self, stand_in};
use crate::when::When;
use crate::{build, docker, step};

/// Tests the package, or says in one line why not.
///
/// # Errors
/// The package is wrong, or it is required and something that the test needs is missing.
pub(crate) async fn run(root: &Path, wanted: When) -> anyhow::Result<()> {
    if wanted.is_off("packages", LEFT_OUT) {
        return Ok(());
    }
    match find_programs().await {
        Ok(()) => step::run("packages", test(root)).await,
        Err(missing) => wanted.leave_out("packages", missing, LEFT_OUT),
    }
}

const LEFT_OUT: &str = "the Debian package is not tested";

async fn find_programs() -> anyhow::Result<()> {
    ensure!(
        step::is_installed(&["dpkg-deb", "--version"]).await,
        "there is no dpkg-deb (apt-get install dpkg)"
    );
    docker::version().await.map(drop)
}

async fn test(root: &Path) -> anyhow::Result<()> {
    let binary = build::as_for_tests(root, "longshore").await?;
    let release = Release::new(root, binary).await?;
    let earlier = Release { version: format!("{}~earlier", release.version), ..release.clone() };
    let scratch = stand_in::scratch(root)?;
    let package = debian::build(&release, scratch.path(), Compression::None).await?;
    let earlier = debian::build(&earlier, scratch.path(), Compression::None).await?;
    expect_same_bytes(root, &release, &package).await?;
    expect_contents(&package).await?;

    std::fs::rename(&package, scratch.path().join("longshore.deb"))?;
    std::fs::rename(&earlier, scratch.path().join("earlier.deb"))?;
    std::fs::write(scratch.path().join("in_container.sh"), IN_CONTAINER)?;
    images::provide_base(root).await?;
    let mut container = Command::new("docker");
    container
        .args(["run", "--rm", "--init", "--network", "none", "--pull", "never", "--volume"])
        .arg(format!("{}:/test:ro", scratch.path().display()))
        .args([images::BASE, "sh", "/test/in_container.sh", &release.version])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    timeout(CONTAINER_MAX, step::succeed(container))
        .await
        .with_context(|| format!("the container took longer than {CONTAINER_MAX:?}"))?
}

/// A second build has the same bytes.
async fn expect_same_bytes(root: &Path, release: &Release, package: &Path) -> anyhow::Result<()> {
    let elsewhere = stand_in::scratch(root)?;
    let again = debian::build(release, elsewhere.path(), Compression::None).await?;
    let mut compare = Command::new("cmp");
    compare.arg(package).arg(&again);
    docker::quietly(compare).await.context("two builds of the package differ")
}

async fn expect_contents(package: &Path) -> anyhow::Result<()> {
    let mut contents = Command::new("dpkg-deb");
    contents.arg("--contents").arg(package);
    let listing = String::from_utf8(stage::output(contents).await?)?;
    let foreign = listing.lines().find(|line| !line.contains(" root/root "));
    ensure!(foreign.is_none(), "not all entries belong to root: {foreign:?}");
    let entries: Vec<(&str, PathBuf)> = listing
        .lines()
        .filter_map(|line| Some((line.split(' ').next()?, PathBuf::from(line.split(" ./").nth(1)?))))
        .collect();
    for (mode, path) in EXPECTED {
        let found = entries.iter().find(|(_, entry)| entry == Path::new(path));
        ensure!(found.is_some_and(|(found, _)| *found == mode), "{path} should be {mode}: {found:?}");
    }
    Ok(())
}

/// Modes and paths, as `dpkg-deb --contents` shows them; not all, but one of each kind.
const EXPECTED: [(&str, &str); 14] = [
    ("-rwxr-xr-x", "usr/bin/longshore"),
    ("-rwxr-xr-x", "usr/sbin/longshore-setup"),
    ("-rw-r--r--", "lib/systemd/system/longshore-server.service"),
    ("-rw-r--r--", "lib/systemd/system/longshore-worker.service"),
    ("drwxr-xr-x", "etc/longshore"),
    ("-rw-r--r--", "etc/longshore/jobs.yaml"),
    ("-rw-r--r--", "etc/longshore/server.yaml"),
    ("-rw-r--r--", "etc/longshore/worker.yaml"),
    ("-rw-r--r--", "usr/share/man/man1/longshore.1.gz"),
    ("-rw-r--r--", "usr/share/man/man1/longshore-run.1.gz"),
    ("-rw-r--r--", "usr/share/bash-completion/completions/longshore"),
    ("-rw-r--r--", "usr/share/zsh/vendor-completions/_longshore"),
    ("-rw-r--r--", "usr/share/fish/vendor_completions.d/longshore.fish"),
    ("-rw-r--r--", "usr/share/doc/longshore/copyright"),
];

const IN_CONTAINER: &str = include_str!("package_test/in_container.sh");

/// It takes some ten seconds.
const CONTAINER_MAX: Duration = Duration::from_mins(3);
