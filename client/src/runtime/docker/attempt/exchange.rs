//! Input, result and secret files of a container. An engine that sees the attempt directory mounts its files; from any other one the result
//! is copied after the end, and an input cannot be given.

use std::num::ParseIntError;
use std::path::Path;
use std::time::Duration;

use protocol::ContainerSpec;
use protocol::container::Volume;
use protocol::report::ReleaseCause;
use protocol::wire::RESULT_BYTES_MAX;
use tokio::io::AsyncReadExt;
use tokio::time::{sleep, timeout};
use worker::input::{Exit, ResultFile};
use worker::step::Launch;

use super::{Attempt, AttemptOutcome, unavailable};
use crate::attempt_dir::{INPUT_VARIABLE, RESULT_VARIABLE, check_result};
use crate::error_chain::error_chain;
use crate::runtime::docker::cli::CallError;
use crate::runtime::docker::{DockerState, run_blocking};
use crate::secrets;

impl Attempt {
    /// The launch with all that depends on this moment, and whether the engine gives it GPUs. Nothing slow happens after the permit.
    pub(super) async fn complete_launch(
        &self,
        docker: &DockerState,
    ) -> Result<(Launch, bool), AttemptOutcome> {
        // A link may have changed since the first check.
        let volumes = docker.admit(&self.launch.spec).await;
        let volumes = volumes.map_err(|(cause, why)| AttemptOutcome::Refused { cause, why })?;
        let spec = ContainerSpec { volumes, ..(*self.launch.spec).clone() };
        let launch = Launch { spec: spec.into(), ..self.launch.clone() };
        let launch = self.add_exchange(docker, launch).await?;
        let gives_gpus = docker.engine.gives_gpus(&launch.spec).await;
        Ok((launch, gives_gpus.map_err(|error| unavailable(&error))?))
    }

    /// Resolves the mounts once more, because a job may have replaced a link or a directory while this one waited for its permit.
    ///
    /// # Errors
    /// A path leads elsewhere now, or that cannot be found out at once: a start must not come late.
    pub(super) async fn check_mounts_again(
        &self,
        docker: &DockerState,
        launch: &Launch,
    ) -> Result<(), AttemptOutcome> {
        if self.launch.spec.volumes.is_empty() {
            return Ok(());
        }
        let admitted = timeout(SECOND_LOOK_LIMIT, docker.admit(&self.launch.spec)).await.unwrap_or_else(|_| {
            let why = "the paths of its mounts cannot be looked up at once: a file system of this machine is slow";
            Err((ReleaseCause::RuntimeUnavailable, why.into()))
        });
        let volumes = admitted.map_err(|(cause, why)| AttemptOutcome::Refused { cause, why })?;
        if launch.spec.volumes.starts_with(&volumes) {
            return Ok(());
        }
        let why = "a path of its mounts leads elsewhere since the attempt was prepared".into();
        Err(AttemptOutcome::Refused { cause: ReleaseCause::Policy, why })
    }

    /// Adds the files for secrets, input and result to a launch that is about to be started. Definitions cannot name them: the policy of
    /// the worker was checked before.
    async fn add_exchange(&self, docker: &DockerState, launch: Launch) -> Result<Launch, AttemptOutcome> {
        let mut spec = (*launch.spec).clone();
        let input = self.launch.input().map(str::to_owned);
        let is_taken = is_directory_taken(&spec);
        let seen = match is_taken {
            true => None,
            false => docker.engine_path(self.dir.path()).await.map_err(|error| unavailable(&error))?,
        };
        if let Some(seen) = seen {
            let dir = self.dir.clone();
            let files =
                run_blocking(move || dir.prepare_exchange(input.as_deref())).await.ok_or_else(|| {
                    let why =
                        "the files for input and result cannot be written; the worker's log has the reason";
                    unavailable(&CallError::Unreachable(why.into()))
                })?;
            let volume = |path: &Path, target: &str, read_only| Volume {
                source: seen.join(path.file_name().unwrap_or_default()).to_string_lossy().into_owned(),
                target: target.to_owned(),
                read_only,
            };
            if let Some(path) = &files.input {
                spec.volumes.push(volume(path, INPUT_IN_CONTAINER, true));
                spec.environment.push((INPUT_VARIABLE.into(), INPUT_IN_CONTAINER.into()));
            }
            spec.volumes.push(volume(&files.result, RESULT_IN_CONTAINER, false));
        } else if input.is_some() {
            let why = match is_taken {
                true => "the job has an input, and the definition mounts something at /longshore",
                false => {
                    "the job has an input, and the engine of this worker does not see its state directory: a worker in a container needs a \
                     volume or a directory of the engine's machine there"
                }
            };
            return Err(AttemptOutcome::Refused { cause: ReleaseCause::Policy, why: why.into() });
        }
        if !is_taken {
            spec.environment.push((RESULT_VARIABLE.into(), RESULT_IN_CONTAINER.into()));
        }
        for (name, _) in &launch.secrets.files {
            // The attempt was admitted, so there is a place for them.
            let Some(dirs) = docker.store.secrets() else { break };
            let seen = docker.secrets_path(dirs, self.token()).await.map_err(|error| unavailable(&error))?;
            let Some(seen) = seen else { break };
            spec.volumes.push(Volume {
                source: secrets::file(&seen, name).to_string_lossy().into_owned(),
                target: format!("{SECRETS_IN_CONTAINER}/{name}"),
                read_only: true,
            });
        }
        Ok(Launch { spec: spec.into(), ..launch })
    }

    /// Adds the result of a program that succeeded.
    pub(super) async fn with_result(&self, docker: &DockerState, exit: Exit) -> Exit {
        let Exit::Ran { code: 0, oom, run_time, .. } = exit else { return exit };
        if is_directory_taken(&self.launch.spec) {
            // A file there may be of another job that has mounted the same.
            return Exit::Ran { code: 0, oom, run_time, result: ResultFile::Absent };
        }
        let dir = self.dir.clone();
        let result =
            match run_blocking(move || Ok(dir.has_result_file().then(|| dir.result()))).await.flatten() {
                Some(result) => result,
                // It was not mounted: the engine sees other file systems.
                None => self.copy_result(docker).await,
            };
        Exit::Ran { code: 0, oom, run_time, result }
    }

    /// Copies the result out of the ended container, again if the engine fails meanwhile.
    async fn copy_result(&self, docker: &DockerState) -> ResultFile {
        let mut why = String::new();
        for _ in 0..COPY_TRIES {
            docker.engine.health.wait_until_up().await;
            match self.copy_result_once(docker).await {
                Ok(result) => {
                    let dir = self.dir.clone();
                    let hidden = run_blocking(move || Ok(dir.hide_secrets(result))).await;
                    return hidden.unwrap_or_default();
                }
                Err(error) => {
                    tracing::warn!(attempt = %self.token(), error, "cannot copy the result of a job out of its container; trying again");
                    why = error;
                }
            }
            sleep(COPY_AGAIN).await;
        }
        ResultFile::Unusable(format!("the engine did not copy it: {why}"))
    }

    /// Only an engine that says so proves that there is no result. The archive is cut after the largest allowed result.
    async fn copy_result_once(&self, docker: &DockerState) -> Result<ResultFile, String> {
        let failed = |error: CallError| {
            if matches!(error, CallError::Unreachable(_)) {
                docker.engine.mark_unreachable(&error);
            }
            error_chain(&error)
        };
        let from = format!("{}:{RESULT_IN_CONTAINER}", self.name);
        let mut child = docker.engine.cli.spawn(["cp", &from, "-"]).map_err(failed)?;
        let mut archive = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            let mut part = stdout.take(ARCHIVE_BYTES_MAX);
            let read = tokio::time::timeout(COPY_LIMIT, part.read_to_end(&mut archive)).await;
            read.map_err(|_| failed(CallError::Slow(COPY_LIMIT)))?.map_err(|error| error_chain(&error))?;
            if part.limit() == 0 {
                // The child is killed when it is dropped: it may have more to say than is read.
                return Ok(first_file(&archive));
            }
        }
        let answer =
            docker.engine.cli.answer(child, std::future::ready(()), COPY_LIMIT).await.map_err(failed)?;
        match answer.ok {
            true => Ok(first_file(&archive)),
            false if says_no_result(&answer.stderr) => Ok(ResultFile::Absent),
            false => Err(answer.error()),
        }
    }
}

/// `true` if the engine says that the container has no such file, in the words of Docker, of Docker before 23 or of Podman.
fn says_no_result(stderr: &str) -> bool {
    let is_absence = |line: &str| {
        let phrases = ["could not find the file", "no such container:path", "could not be found"];
        phrases.iter().any(|it| line.to_lowercase().contains(it)) && line.contains(RESULT_IN_CONTAINER)
    };
    stderr.lines().any(is_absence)
}

/// `true` if the definition mounts something where its input and its result would be: it gets neither.
fn is_directory_taken(spec: &ContainerSpec) -> bool {
    spec.volumes.iter().any(is_in_directory)
}

/// `true` for mounts at `/longshore` or below it.
fn is_in_directory(volume: &Volume) -> bool {
    Path::new(&volume.target).starts_with(DIRECTORY)
}

/// The content of the first file of a tar archive that may be cut; absent if the archive is empty.
fn first_file(archive: &[u8]) -> ResultFile {
    let Some((header, content)) = archive.split_at_checked(BLOCK_BYTES) else { return ResultFile::Absent };
    if matches!(header[KIND_AT], b'x' | b'g') {
        // Attributes that the plain header has no room for, such as a large user id.
        let skipped =
            content_bytes(header).ok().and_then(|size| content.get(size.next_multiple_of(BLOCK_BYTES)..));
        return skipped.map_or_else(
            || ResultFile::Unusable("the engine's archive of it cannot be read".into()),
            first_file,
        );
    }
    if !matches!(header[KIND_AT], b'0' | 0) {
        return ResultFile::Unusable("it is no plain file".into());
    }
    match content_bytes(header) {
        Ok(size) if size > RESULT_BYTES_MAX => {
            ResultFile::Unusable(format!("it has {size} bytes, at most {RESULT_BYTES_MAX} are kept"))
        }
        Ok(size) => content
            .get(..size)
            .map_or_else(|| ResultFile::Unusable("the engine copied only a part of it".into()), check_result),
        Err(_) => ResultFile::Unusable("the engine's archive of it cannot be read".into()),
    }
}

/// The size of an entry by its header.
fn content_bytes(header: &[u8]) -> Result<usize, ParseIntError> {
    let digits: String = header[SIZE].iter().map(|byte| char::from(*byte)).collect();
    usize::from_str_radix(digits.trim_matches(['\0', ' ']), 8)
}

/// A local file system resolves a path in less than a millisecond.
const SECOND_LOOK_LIMIT: Duration = Duration::from_secs(1);

const DIRECTORY: &str = "/longshore";
const INPUT_IN_CONTAINER: &str = "/longshore/input.json";
const SECRETS_IN_CONTAINER: &str = "/run/secrets";
const RESULT_IN_CONTAINER: &str = "/longshore/result.json";

const BLOCK_BYTES: usize = 512;
/// Type and size of a file in the header of a tar archive.
const KIND_AT: usize = 156;
const SIZE: std::ops::Range<usize> = 124..136;

/// An archive of the largest allowed result and one byte, with two entries of attributes before it.
const ARCHIVE_BYTES_MAX: u64 = (RESULT_BYTES_MAX + 1 + 5 * BLOCK_BYTES) as u64;

/// Tries with an engine that answers. While it is unreachable, the copy waits for it.
const COPY_TRIES: u32 = 4;

/// Pause after a try that failed.
const COPY_AGAIN: Duration = Duration::from_millis(500);

/// A copy of 64 KiB takes some 30 ms.
const COPY_LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(kind: u8, size: &str, content: &[u8]) -> Vec<u8> {
        let mut header = [0; BLOCK_BYTES];
        header[KIND_AT] = kind;
        header[SIZE][..size.len()].copy_from_slice(size.as_bytes());
        [&header[..], content, &[0; 100]].concat()
    }

    #[test]
    fn only_mounts_at_the_directory_or_below_take_its_place() {
        for (target, takes) in [
            ("/longshore", true),
            ("/longshore/", true),
            ("//longshore/input.json", true),
            ("/longshore-cache", false),
            ("/longshore.d/x", false),
            ("/data/longshore", false),
        ] {
            let volume = Volume { source: "x".into(), target: target.into(), read_only: false };
            assert_eq!(is_in_directory(&volume), takes, "{target}");
        }
    }

    #[test]
    fn only_a_stated_absence_counts() {
        for (stderr, absent) in [
            (
                "Error response from daemon: Could not find the file /longshore/result.json in container x",
                true,
            ),
            ("Error: No such container:path: x:/longshore/result.json", true),
            (
                "Error: \"/longshore/result.json\" could not be found on container x: no such file or directory",
                true,
            ),
            ("Error response from daemon: No such container: x", false),
            (
                "error during connect: Get \"http://x/containers/x/archive?path=/longshore/result.json\": EOF",
                false,
            ),
            ("", false),
        ] {
            assert_eq!(says_no_result(stderr), absent, "{stderr}");
        }
    }

    #[test]
    fn the_first_file_of_an_archive_is_the_result() {
        assert_eq!(first_file(&archive(b'0', "00000000004", b"true")), ResultFile::Json("true".into()));
        assert_eq!(first_file(b""), ResultFile::Absent);
        let plain = archive(b'0', "00000000004", b"true");
        let block = [&b"30 uid=2097152\n"[..], &[0; BLOCK_BYTES - 15]].concat();
        let attributes = [&archive(b'x', "00000000017", &block)[..2 * BLOCK_BYTES], &plain].concat();
        assert_eq!(first_file(&attributes), ResultFile::Json("true".into()));
        for wrong in [
            archive(b'2', "00000000000", b""),
            archive(b'0', "00000000004", b"tru!"),
            archive(b'0', "77777777777", b"true"),
            archive(b'0', "x", b"true"),
        ] {
            assert!(matches!(first_file(&wrong), ResultFile::Unusable(_)));
        }
        let cut = &archive(b'0', "00000001000", b"true")[..];
        assert!(matches!(first_file(cut), ResultFile::Unusable(_)));
    }
}
