//! The definitions of a round, and what their names say about them.

use std::path::Path;

/// What runs the jobs of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// A container.
    Docker,
    /// A plain process.
    Process,
}

/// Where jobs find what they need.
#[derive(Debug)]
pub struct Props<'a> {
    /// The witness as a program of this machine.
    pub witness: &'a Path,
    /// The image that holds nothing but the witness; absent where there is no engine, and no definition of a container.
    pub image: Option<&'a str>,
    /// The directory in which witnesses leave their marks.
    pub truth: &'a Path,
    /// Tells the containers of this round from all others.
    pub suffix: &'a str,
}

/// The jobs file of a round.
#[must_use]
pub fn file(props: &Props<'_>) -> String {
    let mut text = DEFAULTS.to_owned();
    for (kind, policy) in KINDS {
        let process = format!(
            "runtime: process, command: ['{}'], environment: {{ TRUTH: '{}/marks' }}",
            props.witness.display(),
            props.truth.display()
        );
        let docker = props.image.map(|image| {
            format!(
                "image: '{image}', command: [/longshore-witness], pull_policy: never, network: none, volumes: ['{}:/truth']",
                props.truth.display()
            )
        });
        let bodies = [(Runtime::Process, Some(process)), (Runtime::Docker, docker)];
        for (runtime, body) in bodies.into_iter().filter_map(|(runtime, body)| Some((runtime, body?))) {
            let name = named(runtime, kind, props.suffix);
            text.push_str(&format!("  {name}: {{ {body}, priority: 10{policy} }}\n"));
        }
    }
    text
}

/// The names of all definitions that a runtime runs.
#[must_use]
pub fn names(runtime: Runtime, suffix: &str) -> Vec<String> {
    KINDS.iter().map(|(kind, _)| named(runtime, kind, suffix)).collect()
}

/// Whether jobs of this definition leave marks.
#[must_use]
pub fn is_witnessed(name: &str) -> bool {
    !name.starts_with("fake")
}

/// Whether two attempts of a job of this definition must not run at once as long as workers and engines are well.
#[must_use]
pub fn is_fenced(name: &str) -> bool {
    name.contains("-fenced-")
}

/// Whether two attempts of a job of this definition must never run at once.
#[must_use]
pub fn is_exclusive(name: &str) -> bool {
    name.contains("-once-")
}

/// The runtime in a name, for figures.
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

/// An exit code is the job's own here, so most have failed for good when they end; some try again, and some never run beside
/// themselves.
const KINDS: [(&str, &str); 4] = [
    ("plain", ""),
    ("once", ", on_lost: wait"),
    ("fenced", ", self_fence: true"),
    ("again", ", retry: { max: 2, backoff: { initial: 1s, max: 1s } }"),
];

/// Nothing is given up for being lost often: faults come by the hundred here.
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
    fn there_are_containers_only_where_there_is_an_engine() {
        let path = Path::new("/x");
        let names = |image| file(&Props { witness: path, image, truth: path, suffix: "1" });
        assert!(names(Some("witness:1")).contains("docker-once-1: { image: 'witness:1'"));
        let without = names(None);
        assert!(without.contains("process-once-1: {") && !without.contains("docker-"), "{without}");
    }
}
