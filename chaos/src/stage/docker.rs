//! A real engine, for those tests that need one.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Whether the tests against a real engine are wanted. If not, one line says so.
pub fn is_wanted() -> bool {
    let wanted = std::env::var("LONGSHORE_TEST_DOCKER").is_ok_and(|it| it == "required");
    if !wanted {
        eprintln!("not run: it needs a Docker engine (LONGSHORE_TEST_DOCKER is not `required`)");
    }
    wanted
}

/// The containers of a definition, in whatever state; removed in the end.
#[derive(Debug)]
pub struct Containers {
    filter: String,
}

impl Containers {
    /// Those of this definition.
    #[must_use]
    pub fn of(definition: &str) -> Self {
        Self { filter: format!("label=longshore.definition={definition}") }
    }

    /// The ids of all that there are.
    #[must_use]
    pub fn ids(&self) -> Vec<String> {
        self.list(&[])
    }

    /// The ids of those of a job.
    #[must_use]
    pub fn of_job(&self, job: u64) -> Vec<String> {
        self.list(&["--filter", &format!("label=longshore.job={job}")])
    }

    /// Removes those of a job, as somebody does who knows nothing of Longshore.
    pub fn remove_job(&self, job: u64) {
        for id in self.of_job(job) {
            docker(&["rm", "--force", "--volumes", &id]);
        }
    }

    fn list(&self, more: &[&str]) -> Vec<String> {
        let listed = docker(&[&["ps", "--all", "--quiet", "--filter", &self.filter], more].concat());
        String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect()
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        for id in self.ids() {
            docker(&["rm", "--force", "--volumes", &id]);
        }
    }
}

/// Puts a script where a worker looks for `docker`, all at once. A program of its own writes it: a file that
/// this process holds open, be it only in a child that it is about to start, cannot be executed (ETXTBSY).
pub fn stand_in(directory: &Path, script: &str) -> PathBuf {
    let write = "cat > docker.new && chmod 755 docker.new && mv docker.new docker";
    let mut writer =
        Command::new("sh").args(["-c", write]).current_dir(directory).stdin(Stdio::piped()).spawn().unwrap();
    write!(writer.stdin.take().unwrap(), "#!/bin/sh\n{script}\n").unwrap();
    assert!(writer.wait().unwrap().success());
    directory.join("docker")
}

fn docker(words: &[&str]) -> Output {
    Command::new("docker").args(words).output().unwrap()
}
