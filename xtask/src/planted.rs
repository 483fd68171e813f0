//! `cargo xtask planted`: bugs that are planted on purpose, one at a time, and the simulation must find each.
//!
//! `sim/planted` has the list. Each is planted in a copy of the workspace (`target/planted/tree`), the simulation is built with it, and
//! runs from the same first seed on one core: what it says is the same each time. A bug that nobody notices is a hole in the oracle or in
//! what the script does, and is mended there.

mod copy;
pub(crate) mod patch;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde_json::Value;
use tokio::process::Command;

use crate::step;
use patch::{Component, Patch};

#[derive(Args)]
pub(crate) struct Options {
    /// Only bugs whose name contains this; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Go on after a bug that nobody notices
    #[arg(long)]
    keep_going: bool,
    /// How many transitions may pass until it is noticed
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    transitions: u64,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

/// The directory of the patches, relative to the workspace.
pub(crate) const DIRECTORY: &str = "sim/planted";

pub(crate) async fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let started = Instant::now();
    let bugs = bugs(root, options)?;
    let sandbox =
        Sandbox { tree: root.join("target/planted/tree"), build: root.join("target/planted/build") };
    fs::create_dir_all(&sandbox.tree).with_context(|| sandbox.tree.display().to_string())?;
    copy::refresh(root, &sandbox.tree)?;
    sandbox.ensure_clean(options).await?;

    let (mut caught, mut last) = (Vec::new(), Duration::ZERO);
    for (name, patch) in &bugs {
        let fate = sandbox.try_one(patch, options).await;
        match &fate {
            Ok(catch) => {
                let unexpected =
                    if patch.rules.contains(&catch.rule) { "" } else { " (not the expected rule)" };
                println!("caught after {:>7} transitions  {name}: {}{unexpected}", catch.after, catch.rule);
                caught.push(patch.component());
            }
            Err(why) => {
                println!("NOT CAUGHT  {name} ({}): {why:#}", patch.bug);
                ensure!(options.keep_going, "{name} was not caught; --keep-going tries the others too");
            }
        }
        last = started.elapsed();
    }
    let in_component = |component| caught.iter().filter(|it| **it == component).count();
    println!(
        "{} of {} caught in {}: {} in the scheduler, {} in the worker, {} in the models of the programs",
        caught.len(),
        bugs.len(),
        step::seconds(last),
        in_component(Component::Scheduler),
        in_component(Component::Worker),
        in_component(Component::Model)
    );
    ensure!(caught.len() == bugs.len(), "{} bugs were not caught", bugs.len() - caught.len());
    Ok(())
}

/// Names and patches, in order; each of them can be planted in the workspace as it is.
fn bugs(root: &Path, options: &Options) -> anyhow::Result<Vec<(String, Patch)>> {
    let directory = root.join(DIRECTORY);
    let mut paths = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        paths.push(entry?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|it| it == "patch"));
    paths.sort();
    let mut bugs = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !options.only.is_empty() && !options.only.iter().any(|only| name.contains(only)) {
            continue;
        }
        let read = || -> anyhow::Result<Patch> {
            let patch = Patch::parse(&fs::read_to_string(&path)?)?;
            for file in &patch.files {
                file.plant(&fs::read_to_string(root.join(&file.path)).with_context(|| file.path.clone())?)?;
            }
            Ok(patch)
        };
        let patch =
            read().with_context(|| format!("{DIRECTORY}/{name}.patch cannot be planted; {REFRESH}"))?;
        bugs.push((name, patch));
    }
    ensure!(!bugs.is_empty(), "no bug has such a name: see {DIRECTORY}");
    Ok(bugs)
}

/// How a patch is brought up to date with the code.
pub(crate) const REFRESH: &str = "plant the same bug by hand, write what `git diff` says below the prose of the patch, and take the bug \
                                  back; if the code that it was about is gone, remove it or find another place for it";

/// A copy of the workspace in which bugs are planted.
struct Sandbox {
    tree: PathBuf,
    build: PathBuf,
}

/// A bug was noticed.
struct Catch {
    rule: String,
    after: u64,
}

impl Sandbox {
    /// A rule that is broken without any bug says nothing about one.
    async fn ensure_clean(&self, options: &Options) -> anyhow::Result<()> {
        self.compile().await?;
        match self.simulate(options).await? {
            None => Ok(()),
            Some(catch) => bail!(
                "without any planted bug the simulation says after {} transitions: {}",
                catch.after,
                catch.rule
            ),
        }
    }

    /// Plants a bug, runs the simulation with it, and takes it back.
    async fn try_one(&self, patch: &Patch, options: &Options) -> anyhow::Result<Catch> {
        // All files are read before one is written: a patch that does not fit leaves the tree as it is.
        let mut files = Vec::new();
        for file in &patch.files {
            let path = self.tree.join(&file.path);
            let text = fs::read_to_string(&path).with_context(|| file.path.clone())?;
            let planted = file.plant(&text)?;
            files.push((path, text, planted));
        }
        for (path, _, planted) in &files {
            fs::write(path, planted)?;
        }
        let outcome = match self.compile().await {
            Ok(()) => self.simulate(options).await,
            Err(error) => Err(error.context("it does not compile")),
        };
        for (path, text, _) in files {
            fs::write(path, text)?;
        }
        match outcome? {
            Some(catch) if catch.after <= options.transitions => Ok(catch),
            _ => bail!("{} transitions, and nobody has noticed", options.transitions),
        }
    }

    async fn compile(&self) -> anyhow::Result<()> {
        let words = ["cargo", "build", "--release", "--locked", "--quiet", "--package", "longshore-sim"];
        let mut command = step::command(&self.tree, &words);
        command.arg("--target-dir").arg(&self.build);
        // It is built for each bug and runs for seconds: what makes the program faster costs more than it gives.
        command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        command.env("CARGO_INCREMENTAL", "1").env("RUSTFLAGS", "--cap-lints=allow").kill_on_drop(true);
        let output = command.output().await.context("cannot run cargo")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim_end());
        Ok(())
    }

    /// Runs the simulation, and returns its finding if it notices anything.
    async fn simulate(&self, options: &Options) -> anyhow::Result<Option<Catch>> {
        let mut command = Command::new(self.build.join("release/longshore-sim"));
        command.args(["--jobs", "1", "--brief", "--seed", &options.seed.to_string()]);
        command.args(["--transitions", &options.transitions.to_string()]).kill_on_drop(true);
        let output = tokio::time::timeout(WAIT_TIMEOUT, command.output()).await;
        let output =
            output.context("the simulation does not come to an end")?.context("cannot run the simulation")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let sum = text.lines().rfind(|line| line.starts_with('{')).context("the simulation gives no sum")?;
        let sum: Value = serde_json::from_str(sum).with_context(|| sum.to_owned())?;
        let rule = sum["rule"].as_str().map(str::to_owned);
        Ok(rule.map(|rule| Catch { rule, after: sum["transitions"].as_u64().unwrap_or(u64::MAX) }))
    }
}

/// Ten times what a busy machine takes for a million transitions; a bug may also make a state machine loop for ever.
const WAIT_TIMEOUT: Duration = Duration::from_secs(300);
