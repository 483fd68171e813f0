//! Classifies failed pulls by Docker's message: the cause, and whether to try again. Pure.

use std::time::Duration;

use crate::runtime::docker::start_failure;

/// A pull that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::runtime::docker) struct PullFailure {
    pub(in crate::runtime::docker) fault: PullFault,
    /// Docker's message in one line.
    pub(in crate::runtime::docker) problem: String,
}

/// The cause of a failed pull.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::runtime::docker) enum PullFault {
    /// The definition: there is no such image, and cannot be.
    Definition,
    /// The registry has no such image for us. It may get it soon.
    Denied,
    /// The registry does not answer as it should. For a limited time that counts against neither the job nor the worker.
    #[default]
    Registry,
    /// This machine cannot store the image, or cannot run the helper that has the login.
    Host,
}

impl PullFailure {
    /// Classifies the message of a pull.
    pub(super) fn of(problem: String) -> Self {
        let lower = problem.to_lowercase();
        let says = |phrases: &[&str]| phrases.iter().any(|phrase| lower.contains(phrase));
        let fault = match () {
            () if says(&SENSELESS) => PullFault::Definition,
            () if says(&HELPER) || start_failure::is_about_disk(&problem) => PullFault::Host,
            () if says(&DENIED) && !says(&PASSING) => PullFault::Denied,
            () => PullFault::Registry,
        };
        Self { fault, problem }
    }

    /// The delay before the next try, after this many; `None` if there is no next try.
    pub(super) fn wait(&self, tries: usize, waits: &[Duration]) -> Option<Duration> {
        let is_over = match self.fault {
            PullFault::Definition | PullFault::Host | PullFault::Registry => true,
            PullFault::Denied => tries >= DENIED_TRIES,
        };
        waits.get(tries.saturating_sub(1)).filter(|_| !is_over).copied()
    }
}

/// Number of tries with a registry that denies the image (docs/design/failures.md, F16).
const DENIED_TRIES: usize = 3;

/// Messages about images that no registry can provide.
const SENSELESS: [&str; 3] =
    ["invalid reference format", "no matching manifest", "cannot parse platform specifier"];

/// Messages about a program of this machine that Docker asks for the login of a registry.
const HELPER: [&str; 1] = ["error getting credentials"];

/// Messages of a registry that wants a login, or another one, or does not have the image for it.
const DENIED: [&str; 9] = [
    "manifest unknown",
    "not found",
    "does not exist",
    "unauthorized",
    "denied",
    "no basic auth credentials",
    "no bearer token",
    "authentication required",
    "403 forbidden",
];

/// Messages about limits of the registry and about a proxy in between, which say nothing about the image.
const PASSING: [&str; 4] =
    ["toomanyrequests", "429 too many requests", "proxyconnect", "proxy authentication required"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_failed_pull_decides_the_number_of_tries() {
        let waits = [10, 60].map(Duration::from_secs);
        for (problem, fault, tries) in [
            ("manifest for app:9 not found: manifest unknown: manifest unknown", PullFault::Denied, 3),
            (
                "pull access denied for app, repository does not exist or may require 'docker login'",
                PullFault::Denied,
                3,
            ),
            ("Head \"https://registry/v2/app/manifests/1\": unauthorized: log in", PullFault::Denied, 3),
            (
                "Head \"https://1.dkr.ecr.eu-west-1.amazonaws.com/v2/app/manifests/1\": no basic auth credentials",
                PullFault::Denied,
                3,
            ),
            (
                "unexpected status from HEAD request to https://registry/v2/app/manifests/1: 403 Forbidden",
                PullFault::Denied,
                3,
            ),
            (
                "Error response from daemon: Get \"https://registry/v2/\": authentication required",
                PullFault::Denied,
                3,
            ),
            ("Get \"https://registry/v2/\": proxyconnect tcp: 403 Forbidden", PullFault::Registry, 1),
            ("Get \"https://registry/v2/\": Proxy Authentication Required", PullFault::Registry, 1),
            (
                "unexpected status from GET request to https://registry/v2/: 429 Too Many Requests: authentication required for more",
                PullFault::Registry,
                1,
            ),
            ("no matching manifest for linux/arm64 in the manifest list entries", PullFault::Definition, 1),
            ("invalid reference format", PullFault::Definition, 1),
            ("received unexpected HTTP status: 500 Internal Server Error", PullFault::Registry, 1),
            ("toomanyrequests: You have reached your pull rate limit", PullFault::Registry, 1),
            ("Get \"https://registry/v2/\": dial tcp: lookup registry: no such host", PullFault::Registry, 1),
            (
                "Get \"http://registry/v2/\": dial tcp 10.0.0.1:80: connect: connection refused",
                PullFault::Registry,
                1,
            ),
            (
                "net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
                PullFault::Registry,
                1,
            ),
            ("write /var/lib/docker/tmp/GetImageBlob1: no space left on device", PullFault::Host, 1),
            (
                "failed to register layer: Error processing tar file(exit status 1): write /x: no space left on device",
                PullFault::Host,
                1,
            ),
            (
                "error getting credentials - err: exec: \"docker-credential-x\": executable file not found in $PATH, out: ``",
                PullFault::Host,
                1,
            ),
            ("layer does not exist", PullFault::Host, 1),
            (
                "failed to register layer: lstat /var/lib/docker/overlay2/x: no such file or directory",
                PullFault::Host,
                1,
            ),
            ("open /var/lib/docker/tmp/GetImageBlob1: read-only file system", PullFault::Host, 1),
        ] {
            let failure = PullFailure::of(problem.into());
            let tried = 1 + (1..).take_while(|tries| failure.wait(*tries, &waits).is_some()).count();
            assert_eq!((failure.fault, tried), (fault, tries), "{problem}");
        }
    }
}
