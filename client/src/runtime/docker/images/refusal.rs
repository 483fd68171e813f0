//! Why an image could not be pulled, by Docker's own words: who is to blame, and whether to try again. Pure.

use std::time::Duration;

use crate::runtime::docker::blame;

/// A pull that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::runtime::docker) struct Refusal {
    pub(in crate::runtime::docker) blame: Blame,
    /// Docker's words, in one line.
    pub(in crate::runtime::docker) problem: String,
}

/// Who is to blame for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::runtime::docker) enum Blame {
    /// The definition: there is no such image, nor can there be.
    Definition,
    /// The registry has none of that name, or not for us: so it says now, and it may be about to get it.
    Denied,
    /// The registry does not answer as it should. Nobody's fault, as long as it lasts no longer than such things do.
    #[default]
    Registry,
    /// This machine cannot keep it.
    Host,
}

impl Refusal {
    /// What the words of a pull mean.
    pub(super) fn of(problem: String) -> Self {
        let lower = problem.to_lowercase();
        let says = |phrases: &[&str]| phrases.iter().any(|phrase| lower.contains(phrase));
        let blame = match () {
            () if says(&SENSELESS) => Blame::Definition,
            () if blame::tells_of_the_disk(&problem) => Blame::Host,
            () if says(&DENIED) => Blame::Denied,
            () => Blame::Registry,
        };
        Self { blame, problem }
    }

    /// How long to wait before the next try, after so many.
    pub(super) fn wait(&self, tries: usize, waits: &[Duration]) -> Option<Duration> {
        let is_over = match self.blame {
            Blame::Definition | Blame::Host => true,
            Blame::Denied => tries >= DENIED_TRIES,
            Blame::Registry => false,
        };
        waits.get(tries.saturating_sub(1)).filter(|_| !is_over).copied()
    }
}

/// How often a registry is asked that says no (FAULTS.md F16).
const DENIED_TRIES: usize = 3;

/// What no registry can mend.
const SENSELESS: [&str; 3] =
    ["invalid reference format", "no matching manifest", "cannot parse platform specifier"];

const DENIED: [&str; 5] = ["manifest unknown", "not found", "does not exist", "unauthorized", "denied"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_to_blame_decides_how_often_it_is_tried() {
        let waits = [10, 60, 300].map(Duration::from_secs);
        for (problem, blame, tries) in [
            ("manifest for app:9 not found: manifest unknown: manifest unknown", Blame::Denied, 3),
            (
                "pull access denied for app, repository does not exist or may require 'docker login'",
                Blame::Denied,
                3,
            ),
            ("Head \"https://registry/v2/app/manifests/1\": unauthorized: log in", Blame::Denied, 3),
            ("no matching manifest for linux/arm64 in the manifest list entries", Blame::Definition, 1),
            ("invalid reference format", Blame::Definition, 1),
            ("received unexpected HTTP status: 500 Internal Server Error", Blame::Registry, 4),
            ("toomanyrequests: You have reached your pull rate limit", Blame::Registry, 4),
            ("Get \"https://registry/v2/\": dial tcp: lookup registry: no such host", Blame::Registry, 4),
            (
                "Get \"http://registry/v2/\": dial tcp 10.0.0.1:80: connect: connection refused",
                Blame::Registry,
                4,
            ),
            (
                "net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
                Blame::Registry,
                4,
            ),
            ("write /var/lib/docker/tmp/GetImageBlob1: no space left on device", Blame::Host, 1),
            (
                "failed to register layer: Error processing tar file(exit status 1): write /x: no space left on device",
                Blame::Host,
                1,
            ),
            ("open /var/lib/docker/tmp/GetImageBlob1: read-only file system", Blame::Host, 1),
        ] {
            let refusal = Refusal::of(problem.into());
            let tried = 1 + (1..).take_while(|tries| refusal.wait(*tries, &waits).is_some()).count();
            assert_eq!((refusal.blame, tried), (blame, tries), "{problem}");
        }
    }
}
