//! The crates that each crate may depend on, and the libraries that the pure crates may use.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::Complaint;
use super::tree::Tree;

/// A crate of the workspace, by the name of its directory, and its dependencies.
#[derive(Debug)]
pub(super) struct Package {
    directory: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug)]
struct Dependency {
    /// The directory, if it is one of ours; else the library's name.
    name: String,
    is_ours: bool,
    is_for_tests: bool,
    has_default_features: bool,
}

impl Package {
    /// The packages of the workspace at `root`, and of the separate workspace for fuzzing, as cargo lists them.
    pub(super) fn all(root: &Path) -> anyhow::Result<Vec<Self>> {
        let mut packages = Self::of_workspace(root)?;
        packages.extend(Self::of_workspace(&root.join(APART))?);
        Ok(packages)
    }

    fn of_workspace(root: &Path) -> anyhow::Result<Vec<Self>> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(root)
            .output()
            .context("cannot run `cargo metadata`")?;
        ensure!(
            output.status.success(),
            "`cargo metadata` failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Self::parse(&serde_json::from_slice(&output.stdout)?)
    }

    fn parse(metadata: &Value) -> anyhow::Result<Vec<Self>> {
        let packages = metadata["packages"].as_array().context("`cargo metadata` tells no packages")?;
        packages
            .iter()
            .map(|package| {
                let manifest = package["manifest_path"].as_str().context("a package without manifest")?;
                let directory = Path::new(manifest)
                    .parent()
                    .and_then(last_name)
                    .context("a manifest without directory")?;
                let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
                Ok(Self {
                    directory,
                    dependencies: dependencies.iter().filter_map(Dependency::parse).collect(),
                })
            })
            .collect()
    }
}

impl Dependency {
    fn parse(dependency: &Value) -> Option<Self> {
        let ours = dependency["path"].as_str().and_then(|path| last_name(Path::new(path)));
        Some(Self {
            is_ours: ours.is_some(),
            name: ours.or_else(|| dependency["name"].as_str().map(str::to_owned))?,
            is_for_tests: dependency["kind"] == "dev",
            has_default_features: dependency["uses_default_features"] == true,
        })
    }
}

fn last_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

pub(super) fn check(packages: &[Package], tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for package in packages {
        let manifest = format!("{}/Cargo.toml", package.directory);
        let mut complain = |name: &str, what: String, why, instead| {
            let line = line_of(tree.text(&manifest).unwrap_or_default(), name);
            complaints.push(Complaint { file: manifest.clone(), line, what, why, instead });
        };
        let Some((_, layer)) = LAYERS.iter().find(|(name, _)| *name == package.directory) else {
            complain(
                "[package]",
                format!("crate `{}` has no layer", package.directory),
                "its layer says which crates it may depend on",
                "add a line to LAYERS (xtask/src/tidy/layers.rs) and to ARCHITECTURE.md",
            );
            continue;
        };
        let libraries =
            LIBRARIES.iter().find(|(name, _)| *name == package.directory).map(|(_, libraries)| *libraries);
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            if dependency.is_ours {
                let is_for_tests = dependency.is_for_tests && FOR_TESTS.contains(&name);
                if !is_for_tests && !layer.contains(&name) {
                    complain(
                        name,
                        format!("`{}` depends on `{name}`", package.directory),
                        "a crate depends on lower layers only, and the state machines do not know each other (ARCHITECTURE.md)",
                        "move what both need to a lower layer, or send a message",
                    );
                }
            } else if let Some(libraries) = libraries.filter(|_| !dependency.is_for_tests) {
                if !libraries.contains(&name) {
                    complain(
                        name,
                        format!("`{}` uses the library `{name}`", package.directory),
                        "a pure crate uses only libraries that cannot read a clock, a socket or the system's randomness",
                        "do it in `server` or `client` and pass the result in, or add a line to LIBRARIES (xtask/src/tidy/layers.rs) and say why in the commit",
                    );
                } else if dependency.has_default_features {
                    complain(
                        name,
                        format!("`{}` uses `{name}` with its default features", package.directory),
                        "default features bring the standard library, and with it clocks and randomness",
                        "set `default-features = false` in the workspace's table",
                    );
                }
            }
        }
    }
    complaints
}

/// The line that declares a dependency; the first line if it is not found.
fn line_of(manifest: &str, name: &str) -> usize {
    let declares = |line: &str| {
        let rest = line.trim_start().strip_prefix(name);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || "-_".contains(next)))
    };
    manifest.lines().position(declares).map_or(1, |index| index + 1)
}

/// Each crate, and the crates that it may depend on.
const LAYERS: [(&str, &[&str]); 13] = [
    ("baddisk", &[]),
    ("protocol", &[]),
    ("scheduler", &["protocol"]),
    ("worker", &["protocol"]),
    ("server", &["protocol", "scheduler"]),
    ("client", &["protocol", "worker"]),
    ("cli", &["protocol", "server", "client"]),
    ("testkit", &[]),
    ("chaos", &["testkit"]),
    ("bench", &["protocol", "scheduler", "worker", "server", "client", "testkit"]),
    ("sim", &["protocol", "scheduler", "worker"]),
    ("fuzz", &["protocol", "scheduler", "worker", "server", "client"]),
    ("xtask", &["testkit"]),
];

/// Crates that the tests of every crate may depend on: they test the program from outside, or give it a disk that fails.
const FOR_TESTS: [&str; 2] = ["baddisk", "testkit"];

/// The crate that needs another compiler, and is a workspace of its own for that.
const APART: &str = "fuzz";

/// The crates that must stay pure, and the libraries that they may use outside of tests.
const LIBRARIES: [(&str, &[&str]); 3] = [
    ("protocol", &["bincode", "serde", "thiserror"]),
    ("scheduler", &["croner", "hashbrown", "jiff", "rand", "serde", "sha2", "thiserror"]),
    ("worker", &["croner", "hashbrown", "jiff", "rand", "thiserror"]),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complaints(directory: &str, dependency: Value) -> Vec<String> {
        let metadata = json!({ "packages": [{
            "manifest_path": format!("/somewhere/{directory}/Cargo.toml"),
            "dependencies": [dependency],
        }] });
        let tree = Tree::of(&[(
            "scheduler/Cargo.toml",
            "[dependencies]\ntokio-util.workspace = true\ntokio.workspace = true\n",
        )]);
        let packages = Package::parse(&metadata).unwrap();
        check(&packages, &tree).into_iter().map(|it| format!("{}:{} {}", it.file, it.line, it.what)).collect()
    }

    fn library(name: &str, kind: Option<&str>, default_features: bool) -> Value {
        json!({ "name": name, "kind": kind, "uses_default_features": default_features })
    }

    fn ours(directory: &str) -> Value {
        json!({ "name": format!("longshore-{directory}"), "kind": "dev", "path": format!("/somewhere/{directory}") })
    }

    #[test]
    fn a_pure_crate_uses_no_library_that_is_not_listed() {
        let tokio = library("tokio", None, false);
        assert_eq!(
            complaints("scheduler", tokio),
            ["scheduler/Cargo.toml:3 `scheduler` uses the library `tokio`"]
        );
        assert!(complaints("scheduler", library("proptest", Some("dev"), true)).is_empty());
        assert!(complaints("scheduler", library("hashbrown", None, false)).is_empty());
        assert!(complaints("server", library("tokio", None, true)).is_empty());
    }

    #[test]
    fn a_pure_crate_uses_no_default_features() {
        let found = complaints("worker", library("rand", None, true));
        assert_eq!(found, ["worker/Cargo.toml:1 `worker` uses `rand` with its default features"]);
    }

    #[test]
    fn dependencies_lead_to_lower_layers_even_in_tests() {
        assert_eq!(
            complaints("scheduler", ours("worker")),
            ["scheduler/Cargo.toml:1 `scheduler` depends on `worker`"]
        );
        assert_eq!(complaints("protocol", ours("scheduler")).len(), 1);
        assert_eq!(complaints("xtask", ours("protocol")).len(), 1);
        assert!(complaints("cli", ours("testkit")).is_empty(), "support for tests");
        assert!(complaints("server", ours("scheduler")).is_empty());
    }

    #[test]
    fn a_crate_without_a_layer_is_reported() {
        assert_eq!(complaints("attic", ours("protocol")), ["attic/Cargo.toml:1 crate `attic` has no layer"]);
    }
}
