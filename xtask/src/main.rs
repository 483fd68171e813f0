//! Commands for developers: `cargo xtask test` checks everything, `cargo xtask demo` shows it.
//!
//! Nothing imports this crate, and it imports nothing of Longshore: it starts the binary `longshore` and speaks to it over HTTP,
//! as a user would. Here are only the commands and their options; each lives in the file of its name.

mod bless;
mod build;
mod check;
mod children;
mod compose_test;
mod demo;
mod dependencies;
mod dist;
mod docker;
mod freeze;
mod fuzz;
mod http;
mod images;
mod openapi;
mod package_test;
mod pictures;
mod planted;
mod python_worker;
mod sim;
mod step;
mod tidy;
mod traces;
mod when;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use when::When;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "What developers of Longshore run")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check everything: format, lints, house rules, tests, documentation, dependencies
    Test(check::Options),
    /// Start a server and two workers on free ports, run jobs, and show what happens
    Demo(demo::Options),
    /// Run both state machines against each other in virtual time, with faults; fresh seeds each time
    Sim(sim::Options),
    /// Plant known bugs, one at a time: the simulation must find each
    Planted(planted::Options),
    /// Check the rules that no other tool checks: imports between crates, banned words, dead links, file sizes
    Tidy,
    /// Rewrite the expected outputs that tests compare with; read the difference before committing it
    Bless,
    /// Keep what this version reads and writes in frozen/, for the tests of later versions
    Freeze(freeze::Options),
    /// Make the pictures of the dashboard in README and docs; look at them before committing them
    Pictures,
    /// Fuzz everything that reads bytes from a peer; needs a nightly compiler and cargo-fuzz
    Fuzz(fuzz::Options),
    /// Run the worker of examples/worker-python and the tests of clients/python; `test` does so too
    PythonWorker,
    /// Compare the answers of a server with the description of the API; `test` does so too
    Openapi,
    /// Provide the base images of the Dockerfile and the image of the test jobs: pulled, or made on this machine
    Images,
    /// Build what a release consists of: archive, Debian package, images, list of libraries, checksums
    Dist(dist::Options),
    /// Install, use, upgrade and purge the Debian package in a container; `test` does so too
    PackageTest,
    /// Build the images, start docker-compose.yml and deploy/compose-tls with workers, and run jobs through crashes
    ComposeTest(compose_test::Options),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    let root = workspace_root()?;
    match command {
        Command::Test(options) => check::run(&root, &options).await,
        Command::Demo(options) => demo::run(&root, &options).await,
        Command::Sim(options) => sim::run(&root, &options).await,
        Command::Planted(options) => planted::run(&root, &options).await,
        Command::Tidy => tidy::run(&root),
        Command::Bless => bless::run(&root).await,
        Command::Freeze(options) => freeze::run(&root, &options).await,
        Command::Pictures => pictures::run(&root).await,
        Command::Fuzz(options) => fuzz::run(&root, &options).await,
        Command::PythonWorker => python_worker::run(&root, When::Required).await,
        Command::Openapi => openapi::run(&root, When::Required).await,
        Command::Images => images::run(&root).await,
        Command::Dist(options) => dist::run(&root, &options).await,
        Command::PackageTest => package_test::run(&root, When::Required).await,
        Command::ComposeTest(options) => compose_test::run(&root, &options).await,
    }
}

fn workspace_root() -> anyhow::Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest.parent().context("the xtask crate has no parent directory")?;
    Ok(root.to_owned())
}
