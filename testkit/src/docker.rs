//! Helpers for tests that need a Docker engine, and a fake `docker` program for those that do not.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Returns true if `LONGSHORE_TEST_DOCKER=required` asks for the tests with a real engine. Otherwise prints that the test is skipped.
pub fn is_required() -> bool {
    let required = std::env::var("LONGSHORE_TEST_DOCKER").is_ok_and(|value| value == "required");
    if !required {
        eprintln!("skipped: this test needs a Docker engine (LONGSHORE_TEST_DOCKER is not `required`)");
    }
    required
}

/// The containers of one definition, in any state. They are removed on drop.
#[derive(Debug)]
pub struct DefinitionContainers {
    filter: String,
}

impl DefinitionContainers {
    /// Selects the containers of this definition by their label.
    #[must_use]
    pub fn new(definition: &str) -> Self {
        Self { filter: format!("label=longshore.definition={definition}") }
    }

    /// Lists the ids of all containers of the definition.
    #[must_use]
    pub fn ids(&self) -> Vec<String> {
        self.list(&[])
    }

    /// Lists the ids of the containers of one job.
    #[must_use]
    pub fn ids_for_job(&self, job: u64) -> Vec<String> {
        self.list(&["--filter", &format!("label=longshore.job={job}")])
    }

    /// Removes the containers of a job behind the worker's back.
    pub fn remove_for_job(&self, job: u64) {
        for id in self.ids_for_job(job) {
            docker(&["rm", "--force", "--volumes", &id]);
        }
    }

    /// Makes an empty file in the running container of a job. Returns false if there is no such container.
    #[must_use]
    pub fn touch(&self, job: u64, path: &str) -> bool {
        self.ids_for_job(job).iter().any(|id| docker(&["exec", id, "touch", path]).status.success())
    }

    fn list(&self, more: &[&str]) -> Vec<String> {
        let listed = docker(&[&["ps", "--all", "--quiet", "--filter", &self.filter], more].concat());
        String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect()
    }
}

impl Drop for DefinitionContainers {
    fn drop(&mut self) {
        for id in self.ids() {
            docker(&["rm", "--force", "--volumes", &id]);
        }
    }
}

/// Writes a shell script as `docker` into a directory, which the test puts into the worker's `PATH`. A child process writes it:
/// a file that this process holds open for writing, even in a child about to start, cannot be executed (ETXTBSY).
pub fn write_fake_docker(directory: &Path, script: &str) -> PathBuf {
    let write = "cat > docker.new && chmod 755 docker.new && mv docker.new docker";
    let mut writer =
        Command::new("sh").args(["-c", write]).current_dir(directory).stdin(Stdio::piped()).spawn().unwrap();
    write!(writer.stdin.take().unwrap(), "#!/bin/sh\n{script}\n").unwrap();
    assert!(writer.wait().unwrap().success());
    directory.join("docker")
}

fn docker(arguments: &[&str]) -> Output {
    Command::new("docker").args(arguments).output().unwrap()
}
