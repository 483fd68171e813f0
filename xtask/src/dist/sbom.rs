//! The list of all libraries in the binary, as CycloneDX 1.5: name, version, licence, and who depends on whom.
//!
//! It is made from `cargo metadata`, which knows all of it. The tool cargo-cyclonedx would have to be compiled in each release, and lists the
//! libraries of tests as well unless told otherwise for each crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Release, stage};
use crate::step;

/// The workspace and its libraries on this system, as cargo lists them.
///
/// # Errors
/// Cargo fails.
pub(super) async fn metadata(root: &Path) -> anyhow::Result<Value> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let words =
        ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", platform.as_str()];
    Ok(serde_json::from_slice(&stage::output(step::command(root, &words)).await?)?)
}

/// The package of the program in the metadata.
///
/// # Errors
/// There is none.
pub(super) fn program(metadata: &Value) -> anyhow::Result<&Value> {
    list(metadata, "packages")
        .iter()
        .find(|package| package["name"] == "longshore-cli")
        .context("cargo lists no longshore-cli")
}

/// Writes the list and returns its file.
///
/// # Errors
/// Cargo fails, or the file cannot be written.
pub(super) async fn write(release: &Release, out: &Path) -> anyhow::Result<PathBuf> {
    let mut date = Command::new("date");
    date.args(["--utc", "--date", &format!("@{}", release.epoch), "+%Y-%m-%dT%H:%M:%SZ"]);
    let time = String::from_utf8(stage::output(date).await?)?;
    let document = document(&metadata(&release.root).await?, time.trim())?;
    let file = out.join(format!("longshore-{}.cdx.json", release.version));
    fs::write(&file, serde_json::to_string_pretty(&document)? + "\n")?;
    Ok(file)
}

fn document(metadata: &Value, time: &str) -> anyhow::Result<Value> {
    let program = program(metadata)?;
    let root = program["id"].as_str().context("a package without id")?;
    let packages: BTreeMap<&str, &Value> = list(metadata, "packages")
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"], "nodes")
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();

    let (mut reached, mut next) = (BTreeSet::from([root]), vec![root]);
    let mut dependencies = Vec::new();
    while let Some(id) = next.pop() {
        let linked = nodes.get(id).map(|node| linked(node)).unwrap_or_default();
        next.extend(linked.iter().copied().filter(|id| reached.insert(id)));
        let names: BTreeSet<String> =
            linked.iter().filter_map(|id| packages.get(id)).map(|package| url(package)).collect();
        dependencies.push((packages.get(id).map(|package| url(package)).unwrap_or_default(), names));
    }
    dependencies.sort();

    let mut components: Vec<(String, Value)> = reached
        .iter()
        .filter(|id| **id != root)
        .filter_map(|id| packages.get(id))
        .map(|package| (url(package), component(package)))
        .collect();
    components.sort_by(|left, right| left.0.cmp(&right.0));
    let mut application = component(program);
    application["type"] = "application".into();
    application["name"] = "longshore".into();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "timestamp": time, "component": application },
        "components": components.into_iter().map(|(_, component)| component).collect::<Vec<_>>(),
        "dependencies": dependencies
            .into_iter()
            .map(|(of, on)| json!({ "ref": of, "dependsOn": on }))
            .collect::<Vec<_>>(),
    }))
}

/// The packages that are linked into a package: not those of its tests and of its build script.
fn linked(node: &Value) -> Vec<&str> {
    list(node, "deps")
        .iter()
        .filter(|dependency| list(dependency, "dep_kinds").iter().any(|kind| kind["kind"].is_null()))
        .filter_map(|dependency| dependency["pkg"].as_str())
        .collect()
}

fn component(package: &Value) -> Value {
    let url = url(package);
    let mut component = json!({
        "type": "library",
        "bom-ref": url,
        "name": package["name"],
        "version": package["version"],
        "purl": url,
    });
    if let Some(licence) = package["license"].as_str() {
        // Cargo once allowed a slash, which is no SPDX expression.
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    component
}

/// The package URL, which names a package of any ecosystem.
fn url(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    // A `+` begins build metadata, and must be escaped in a URL.
    format!("pkg:cargo/{}@{}", text("name"), text("version").replace('+', "%2B"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, licence: &str) -> Value {
        json!({ "id": name, "name": name, "version": "1.0.0", "license": licence })
    }

    #[test]
    fn libraries_of_the_program_are_listed_and_those_of_tests_are_not() {
        let linked = |name: &str| json!({ "pkg": name, "dep_kinds": [{ "kind": null }] });
        let metadata = json!({
            "packages": [
                package("longshore-cli", "MIT"),
                package("direct", "MIT/Apache-2.0"),
                package("deep", "ISC"),
                package("for-tests", "GPL-3.0"),
            ],
            "resolve": { "nodes": [
                { "id": "longshore-cli", "deps": [
                    linked("direct"),
                    { "pkg": "for-tests", "dep_kinds": [{ "kind": "dev" }] },
                ] },
                { "id": "direct", "deps": [linked("deep")] },
                { "id": "deep", "deps": [] },
            ] },
        });
        let document = document(&metadata, "2026-01-01T00:00:00Z").unwrap();
        let urls: Vec<&str> =
            list(&document, "components").iter().filter_map(|one| one["purl"].as_str()).collect();
        assert_eq!(urls, ["pkg:cargo/deep@1.0.0", "pkg:cargo/direct@1.0.0"]);
        assert_eq!(document["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(document["metadata"]["component"]["name"], "longshore");
        let of_program = &document["dependencies"][2];
        assert_eq!(of_program["ref"], "pkg:cargo/longshore-cli@1.0.0");
        assert_eq!(of_program["dependsOn"], json!(["pkg:cargo/direct@1.0.0"]));
    }
}
