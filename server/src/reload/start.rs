//! The definitions of a start: those of the jobs file, or of its last accepted text.

use super::accepted::AcceptedFile;
use super::{Refusal, log_faults};
use crate::clock;
use crate::config::jobs_file::{self, Environment, Faults, LoadedFile};
use crate::config::{Config, FaultyJobsFile};

/// The definitions of a start.
#[derive(Debug)]
pub(crate) struct StartDefinitions {
    /// The file that was loaded, or the copy.
    pub(crate) loaded: LoadedFile,
    /// Present if it is the copy, because the file was refused.
    pub(crate) refusal: Option<Refusal>,
}

impl StartDefinitions {
    const fn of_file(loaded: LoadedFile) -> Self {
        Self { loaded, refusal: None }
    }
}

/// Loads the jobs file. If it has faults, or no jobs although the accepted one had some, the copy is loaded, unless the configuration
/// forbids that. Blocks on the disk.
///
/// # Errors
/// The faults of the jobs file: there is no copy of it, or the copy cannot or must not be used. A file without jobs has none if there is no
/// copy: it may be the first start.
pub(crate) fn load(config: &Config, environment: &Environment) -> Result<StartDefinitions, Faults> {
    let loaded = jobs_file::load(&config.jobs_file, environment);
    if loaded.as_ref().is_ok_and(|loaded| !loaded.definitions.is_empty()) {
        return loaded.map(StartDefinitions::of_file);
    }
    let Some(copy) = read_copy(config) else { return loaded.map(StartDefinitions::of_file) };
    let faults = match loaded.and_then(LoadedFile::require_jobs) {
        Ok(loaded) => return Ok(StartDefinitions::of_file(loaded)),
        Err(faults) => faults,
    };
    if config.faulty_jobs_file == FaultyJobsFile::Refuse {
        return Err(faults);
    }
    match copy.load(environment) {
        Ok(loaded) => {
            tracing::error!(
                file = %config.jobs_file.display(),
                faults = faults.count(),
                accepted_at = %copy.accepted_at,
                "the jobs file was refused; starting with the definitions that were accepted last: correct the file, then 'longshore reload'"
            );
            log_faults(&faults);
            let refusal = Refusal { at: clock::now().utc, blocks_start: false };
            Ok(StartDefinitions { loaded, refusal: Some(refusal) })
        }
        Err(of_copy) => {
            tracing::error!(
                accepted_at = %copy.accepted_at,
                "the jobs file that was accepted last has faults now, too"
            );
            log_faults(&of_copy);
            Err(faults)
        }
    }
}

fn read_copy(config: &Config) -> Option<AcceptedFile<'static>> {
    AcceptedFile::read(&config.data_dir, &config.jobs_file).unwrap_or_else(|error| {
        tracing::warn!(%error, directory = %config.data_dir.display(), "cannot read the copy of the accepted jobs file");
        None
    })
}
