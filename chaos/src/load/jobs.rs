//! The definitions of a round. Their names tell the runtime and the policy.

use std::path::Path;

/// The runtime of a definition's jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// A container.
    Docker,
    /// A plain process.
    Process,
}

/// Paths and names that the definitions contain.
#[derive(Debug)]
pub struct JobsFileParams<'a> {
    /// The test job program on this machine.
    pub test_job: &'a Path,
    /// The image with the test job program; `None` without an engine, which leaves out the Docker definitions.
    pub image: Option<&'a str>,
    /// The directory of the file with the jobs' marks.
    pub marks_dir: &'a Path,
    /// Distinguishes the containers of this round from all others.
    pub suffix: &'a str,
}

/// Writes the jobs file of a round.
#[must_use]
pub fn jobs_file(params: &JobsFileParams<'_>) -> String {
    let mut text = DEFAULTS.to_owned();
    for (kind, policy) in KINDS {
        let process = format!(
            "runtime: process, command: ['{}'], environment: {{ MARKS_FILE: '{}/marks.jsonl' }}",
            params.test_job.display(),
            params.marks_dir.display()
        );
        let docker = params.image.map(|image| {
            format!(
                "image: '{image}', command: [/longshore-test-job], pull_policy: never, network: none, volumes: ['{}:/marks']",
                params.marks_dir.display()
            )
        });
        let bodies = [(Runtime::Process, Some(process)), (Runtime::Docker, docker)];
        for (runtime, body) in bodies.into_iter().filter_map(|(runtime, body)| Some((runtime, body?))) {
            let name = named(runtime, kind, params.suffix);
            text.push_str(&format!("  {name}: {{ {body}, priority: 10{policy} }}\n"));
        }
    }
    text
}

/// The names of all definitions of a runtime.
#[must_use]
pub fn names(runtime: Runtime, suffix: &str) -> Vec<String> {
    KINDS.iter().map(|(kind, _)| named(runtime, kind, suffix)).collect()
}

/// Returns true if jobs of this definition write marks.
#[must_use]
pub fn leaves_marks(name: &str) -> bool {
    !name.starts_with("fake")
}

/// Returns true if a job has `self_fence`: its attempts must not overlap as long as workers and engine work.
#[must_use]
pub fn is_self_fenced(name: &str) -> bool {
    name.contains("-fenced-")
}

/// Returns true if attempts of a job must never overlap.
#[must_use]
pub fn is_exclusive(name: &str) -> bool {
    name.contains("-once-")
}

/// The runtime in a definition's name.
#[must_use]
pub fn runtime_in(name: &str) -> &str {
    name.split('-').next().unwrap_or(name)
}

fn named(runtime: Runtime, kind: &str, suffix: &str) -> String {
    let runtime = match runtime {
        Runtime::Docker => "docker",
        Runtime::Process => "process",
    };
    format!("{runtime}-{kind}-{suffix}")
}

/// The four policies. Jobs without `retry` fail at their first exit code other than 0.
const KINDS: [(&str, &str); 4] = [
    ("plain", ""),
    ("once", ", on_lost: wait"),
    ("fenced", ", self_fence: true"),
    ("again", ", retry: { max: 2, backoff: { initial: 1s, max: 1s } }"),
];

/// `lost_limit` is high because a job can be lost many times in one round.
const DEFAULTS: &str = "\
version: 1
defaults: { lost_after: 6s, stop_grace_period: 1s, lost_limit: 100 }
jobs:
  fake-quick: { runtime: fake }
  fake-talk: { runtime: fake, environment: { FAKE_STDOUT: I was here } }
  fake-slow: { runtime: fake, environment: { FAKE_SLEEP: 50ms } }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_definitions_need_an_engine() {
        let path = Path::new("/x");
        let names =
            |image| jobs_file(&JobsFileParams { test_job: path, image, marks_dir: path, suffix: "1" });
        assert!(names(Some("test-job:1")).contains("docker-once-1: { image: 'test-job:1'"));
        let without = names(None);
        assert!(without.contains("process-once-1: {") && !without.contains("docker-"), "{without}");
    }
}
