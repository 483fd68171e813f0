//! `cargo xtask test`: the same checks at home and in CI, cheapest first. The first failure ends it and is named in the last line.

use std::num::NonZero;
use std::path::Path;
use std::time::Instant;

use anyhow::anyhow;
use clap::Args;
use tokio::process::Command;

use crate::when::When;
use crate::{
    build, dependencies, docker, images, openapi, package_test, python_worker, sim, step, tidy, traces,
};

#[derive(Args)]
pub(crate) struct Options {
    /// Run the tests against a real Docker engine?
    #[arg(long, value_enum, default_value_t = When::Auto)]
    docker: When,
    /// Run the check of examples/worker-python, and the tests of clients/python?
    #[arg(long, value_enum, default_value_t = When::Auto)]
    python: When,
    /// Compare the answers of a server with the description of the API?
    #[arg(long, value_enum, default_value_t = When::Auto)]
    openapi: When,
    /// Check the program with the feature `otel`, and export traces to a collector?
    #[arg(long, value_enum, default_value_t = When::Auto)]
    traces: When,
    /// Look at the dashboard in a real browser?
    #[arg(long, value_enum, default_value_t = When::Auto)]
    browser: When,
    /// Load the rules and the board of deploy/ into a real Prometheus?
    #[arg(long, value_enum, default_value_t = When::Auto)]
    prometheus: When,
    /// Install, upgrade and purge the Debian package in a container?
    #[arg(long, value_enum, default_value_t = When::Auto)]
    packages: When,
    /// Judge the libraries with cargo-deny: advisories, licences, bans, sources?
    #[arg(long, value_enum, default_value_t = When::Auto)]
    dependencies: When,
}

/// The value of the variable by which tests know whether to use these programs.
async fn with_programs(
    wanted: When,
    flag: &str,
    programs: &[&str],
    packages: &str,
) -> anyhow::Result<&'static str> {
    let left_out = "the tests with it do not run";
    if wanted.is_off(flag, left_out) {
        return Ok("off");
    }
    for program in programs {
        if !step::is_installed(&[program, "--version"]).await {
            let missing = anyhow!("there is no `{program}` (apt-get install {packages})");
            wanted.leave_out(flag, missing, left_out)?;
            return Ok("off");
        }
    }
    Ok("required")
}

pub(crate) async fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let started = Instant::now();
    let for_tests = prepare_engine(root, options.docker).await?;
    let chromium = ["chromium", "chromedriver"];
    let browser = with_programs(options.browser, "browser", &chromium, "chromium chromium-driver").await?;
    let prometheus =
        with_programs(options.prometheus, "prometheus", &["prometheus", "promtool"], "prometheus").await?;

    step::run("fmt", step::program(root, &["cargo", "fmt", "--all", "--check"])).await?;
    let clippy =
        ["cargo", "clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
    step::run("clippy", step::program(root, &clippy)).await?;
    step::run("tidy", async { tidy::run(root) }).await?;
    step::run("tests", tests(root, for_tests, browser, prometheus)).await?;
    traces::run(root, options.traces).await?;
    // They wait most of the time, so they run beside the steps that compute.
    let (faults, others) = tokio::join!(faults(root, for_tests), async {
        python_worker::run(root, options.python).await?;
        openapi::run(root, options.openapi).await?;
        package_test::run(root, options.packages).await
    });
    match (faults, others) {
        (Err(faults), Err(others)) => return Err(others.context(format!("besides, {faults:#}"))),
        (faults, others) => faults.and(others)?,
    }
    step::run("simulation", sim::for_a_change(root)).await?;
    let doc_tests = ["cargo", "test", "--workspace", "--doc", "--locked", "--quiet"];
    step::run("doc tests", step::program(root, &doc_tests)).await?;
    step::run("documentation", documentation(root)).await?;
    dependencies::run(root, options.dependencies).await?;

    println!("All checks passed in {}.", step::seconds(started.elapsed()));
    Ok(())
}

/// Finds out whether the engine answers, provides the image that the tests run, and returns the value of `LONGSHORE_TEST_DOCKER`, by which
/// tests know whether to use the engine.
async fn prepare_engine(root: &Path, wanted: When) -> anyhow::Result<&'static str> {
    let left_out = "tests against a real engine do not run";
    if wanted.is_off("docker", left_out) {
        return Ok("off");
    }
    let prepared = async {
        let version = docker::version().await?;
        println!("docker: engine {version} answers; tests against it run");
        images::provide_job_image(root).await
    };
    match prepared.await {
        Ok(_) => Ok("required"),
        Err(missing) => wanted.leave_out("docker", missing, left_out).map(|()| "off"),
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
    if nextest {
        tests.arg("--test-threads").arg(tests_at_once().to_string());
    }
    tests.env("LONGSHORE_TEST_DOCKER", docker).env("LONGSHORE_TEST_BROWSER", browser);
    tests.env("LONGSHORE_TEST_PROMETHEUS", prometheus);
    for name in SEEDS.into_iter().filter(|name| std::env::var_os(name).is_none()) {
        tests.env(name, SEED);
    }
    step::succeed(tests).await
}

/// Most tests wait for other programs and for timeouts, so twice as many as there are processors keep these busy. Those that compute count
/// for two (`.config/nextest.toml`).
fn tests_at_once() -> usize {
    2 * std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Variables with the seeds of tests that draw their cases at random.
const SEEDS: [&str; 2] = ["PROPTEST_RNG_SEED", "LONGSHORE_SEED"];

/// Their value. The same cases each time, so that a failure comes from the change and not from the draw. `cargo test` draws others.
const SEED: &str = "20261127";

/// Real servers and workers, killed a hundred times.
async fn faults(root: &Path, docker: &str) -> anyhow::Result<()> {
    let mut command = Command::new(build::as_for_tests(root, "longshore-chaos").await?);
    command.arg("short").arg("--longshore").arg(build::as_for_tests(root, "longshore").await?);
    command.args((docker == "off").then_some("--no-docker")).current_dir(root);
    step::run_beside("faults", command).await
}

async fn documentation(root: &Path) -> anyhow::Result<()> {
    let mut doc = step::command(root, &["cargo", "doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    step::succeed(doc).await
}
