//! `cargo xtask test`: the same checks at home and in CI, cheapest first. The first failure ends it and is named in the last line.

use std::path::Path;
use std::time::Instant;

use clap::{Args, ValueEnum};

use crate::dependencies::{self, Dependencies};
use crate::openapi::{self, OpenApi};
use crate::package_test::{self, Packages};
use crate::python_worker::{self, Python};
use crate::traces::{self, Traces};
use crate::{docker, images, sim, step, tidy};

#[derive(Args)]
pub(crate) struct Options {
    /// Run the tests against a real Docker engine?
    #[arg(long, value_enum, default_value_t = Docker::Auto)]
    docker: Docker,
    /// Run the check of examples/worker-python, and the tests of clients/python?
    #[arg(long, value_enum, default_value_t = Python::Auto)]
    python: Python,
    /// Compare the answers of a server with the description of the API?
    #[arg(long, value_enum, default_value_t = OpenApi::Auto)]
    openapi: OpenApi,
    /// Check the program with the feature `otel`, and export traces to a collector?
    #[arg(long, value_enum, default_value_t = Traces::Required)]
    traces: Traces,
    /// Look at the dashboard in a real browser?
    #[arg(long, value_enum, default_value_t = WithPrograms::Auto)]
    browser: WithPrograms,
    /// Load the rules and the board of deploy/ into a real Prometheus?
    #[arg(long, value_enum, default_value_t = WithPrograms::Auto)]
    prometheus: WithPrograms,
    /// Install, upgrade and purge the Debian package in a container?
    #[arg(long, value_enum, default_value_t = Packages::Auto)]
    packages: Packages,
    /// Judge the libraries with cargo-deny: advisories, licences, bans, sources?
    #[arg(long, value_enum, default_value_t = Dependencies::Auto)]
    dependencies: Dependencies,
}

/// When the tests run that need programs of this machine.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WithPrograms {
    /// They run; without the programs, the command fails
    Required,
    /// They run if the programs are installed
    Auto,
    /// They do not run
    Off,
}

impl WithPrograms {
    /// The value of the variable by which tests know whether to use these programs.
    async fn for_tests(self, flag: &str, programs: &[&str], packages: &str) -> anyhow::Result<&'static str> {
        if self == Self::Off {
            println!("{flag}: off; the tests with it do not run");
            return Ok("off");
        }
        for program in programs {
            if step::is_installed(&[program, "--version"]).await {
                continue;
            }
            let missing = format!("there is no `{program}` (apt-get install {packages})");
            if self == Self::Required {
                anyhow::bail!("--{flag} required: {missing}");
            }
            println!("{flag}: {missing}; the tests with it do not run");
            return Ok("off");
        }
        Ok("required")
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Docker {
    /// They run; without an engine that answers, the command fails
    Required,
    /// They run if an engine answers
    Auto,
    /// They do not run
    Off,
}

impl Docker {
    /// The value of `LONGSHORE_TEST_DOCKER`, by which tests know whether to use the engine.
    const fn for_tests(self, engine_answers: bool) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Auto if engine_answers => "required",
            Self::Auto | Self::Off => "off",
        }
    }
}

pub(crate) async fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let started = Instant::now();
    let for_tests = prepare_engine(root, options.docker).await?;
    let browser = options
        .browser
        .for_tests("browser", &["chromium", "chromedriver"], "chromium chromium-driver")
        .await?;
    let prometheus =
        options.prometheus.for_tests("prometheus", &["prometheus", "promtool"], "prometheus").await?;

    step::run("fmt", step::program(root, &["cargo", "fmt", "--all", "--check"])).await?;
    let clippy =
        ["cargo", "clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
    step::run("clippy", step::program(root, &clippy)).await?;
    step::run("tidy", async { tidy::run(root) }).await?;
    step::run("tests", tests(root, for_tests, browser, prometheus)).await?;
    traces::run(root, options.traces).await?;
    python_worker::run(root, options.python).await?;
    openapi::run(root, options.openapi).await?;
    package_test::run(root, options.packages).await?;
    step::run("faults", step::program(root, &faults(for_tests))).await?;
    step::run("simulation", sim::for_a_change(root)).await?;
    let doc_tests = ["cargo", "test", "--workspace", "--doc", "--locked", "--quiet"];
    step::run("doc tests", step::program(root, &doc_tests)).await?;
    step::run("documentation", documentation(root)).await?;
    dependencies::run(root, options.dependencies).await?;

    println!("All checks passed in {}.", step::seconds(started.elapsed()));
    Ok(())
}

/// Finds out whether the engine answers, provides the image that the tests run, and says what the tests are to do.
async fn prepare_engine(root: &Path, wanted: Docker) -> anyhow::Result<&'static str> {
    if wanted == Docker::Off {
        println!("docker: off; tests against a real engine do not run");
        return Ok(wanted.for_tests(false));
    }
    match docker::version().await {
        Ok(version) => {
            println!("docker: engine {version} answers; tests against it run");
            if let Err(error) = images::provide_job_image(root).await {
                if wanted == Docker::Required {
                    return Err(error);
                }
                println!("docker: {error:#}; tests against the engine do not run");
                return Ok(wanted.for_tests(false));
            }
            Ok(wanted.for_tests(true))
        }
        Err(why) if wanted == Docker::Required => Err(why.context("--docker required")),
        Err(why) => {
            println!("docker: {why:#}; tests against a real engine do not run");
            Ok(wanted.for_tests(false))
        }
    }
}

async fn tests(root: &Path, docker: &str, browser: &str, prometheus: &str) -> anyhow::Result<()> {
    let nextest = step::is_installed(&["cargo", "nextest", "--version"]).await;
    // Every test runs, also after a failure: one run tells all that is broken.
    let words = if nextest {
        "cargo nextest run --workspace --locked --no-fail-fast --no-tests pass --status-level slow"
    } else {
        "cargo test --workspace --all-targets --locked --no-fail-fast"
    };
    let words: Vec<&str> = words.split(' ').collect();
    let mut tests = step::command(root, &words);
    tests.env("LONGSHORE_TEST_DOCKER", docker).env("LONGSHORE_TEST_BROWSER", browser);
    tests.env("LONGSHORE_TEST_PROMETHEUS", prometheus);
    step::succeed(tests).await
}

/// Real servers and workers, killed a hundred times.
fn faults(docker: &str) -> Vec<&'static str> {
    let mut words =
        vec!["cargo", "run", "--locked", "--quiet", "--package", "longshore-chaos", "--", "short"];
    words.extend((docker == "off").then_some("--no-docker"));
    words
}

async fn documentation(root: &Path) -> anyhow::Result<()> {
    let mut doc = step::command(root, &["cargo", "doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    step::succeed(doc).await
}
