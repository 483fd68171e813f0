//! Fingerprints of the inputs of refused groups, kept in a file, so that a client or worker that repeats a bad input cannot end every
//! next process as well (docs/design/storage.md, S6).
//!
//! The store refuses a group as a whole, so any of its inputs may be the cause. After the restart each of them is *suspected*: if it comes
//! again, it gets a group of its own. A commit of that group clears the input; a second refusal *blocks* it until another version of the
//! program starts or an operator deletes the file.
//!
//! A fingerprint is a hash of the request without its sender.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::{Report, Token};
use scheduler::input::{Connected, Operation};

use super::command::Command;
use super::health::Health;
use crate::file_replacement;

/// A hash that identifies an input across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fingerprint(u64);

/// The fingerprints of the inputs of a group.
#[derive(Debug, Default)]
pub(super) struct GroupFingerprints {
    /// Inputs that the group was made of.
    pub(super) own: Vec<Fingerprint>,
    /// Earlier batches that are still being added: some changes of the group may come from them.
    pub(super) unanswered: Vec<Fingerprint>,
}

/// The status of an input that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputStatus {
    /// It was in no refused group.
    Clear,
    /// It was in a refused group: it gets a group of its own.
    Suspected,
    /// Its own group was refused, too: it is rejected.
    Blocked,
}

/// Fingerprints of refused inputs, and the file that keeps them over restarts.
#[derive(Debug)]
pub(super) struct Refused {
    file: PathBuf,
    /// Refusals of each in a row.
    counts: Mutex<BTreeMap<Fingerprint, u32>>,
    health: Arc<Health>,
    /// True if `counts` is not empty; checked without the lock, because it nearly always is.
    any: AtomicBool,
}

impl Refused {
    /// Reads the file of earlier processes of this version. A file that cannot be read is ignored: it must not keep the server from starting.
    pub(super) fn open(directory: &Path, health: Arc<Health>) -> Self {
        let file = directory.join(FILE);
        let counts = match fs::read_to_string(&file) {
            Ok(text) => read(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                tracing::warn!(%error, file = %file.display(), "cannot read the file of refused inputs; inputs in it are accepted again");
                BTreeMap::new()
            }
        };
        if !counts.is_empty() {
            let RefusedCounts { suspected, blocked } = RefusedCounts::of(&counts);
            tracing::warn!(
                suspected,
                blocked,
                file = %file.display(),
                "the store refused groups of these inputs: suspected ones get a group of their own, blocked ones are rejected"
            );
        }
        note(&health, &counts);
        Self { file, health, any: AtomicBool::new(!counts.is_empty()), counts: Mutex::new(counts) }
    }

    /// The status of an input with these fingerprints: the worst of them.
    pub(super) fn status(&self, fingerprints: &[Fingerprint]) -> InputStatus {
        if !self.any.load(Ordering::Relaxed) {
            return InputStatus::Clear;
        }
        let counts = self.counts();
        match fingerprints.iter().filter_map(|fingerprint| counts.get(fingerprint)).max() {
            None => InputStatus::Clear,
            Some(count) if *count < BLOCKED_AFTER => InputStatus::Suspected,
            Some(_) => InputStatus::Blocked,
        }
    }

    /// Clears the inputs of a committed group.
    pub(super) fn clear(&self, fingerprints: &[Fingerprint]) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut counts = self.counts();
        let before = counts.len();
        for fingerprint in fingerprints {
            counts.remove(fingerprint);
        }
        if counts.len() < before {
            self.any.store(!counts.is_empty(), Ordering::Relaxed);
            self.write(&counts);
        }
    }

    /// Counts one refusal for each input, however often the group had it. The process is about to end.
    pub(super) fn record_refusal(&self, fingerprints: &GroupFingerprints) {
        let mut counts = self.counts();
        let distinct: BTreeSet<_> = fingerprints.unanswered.iter().chain(&fingerprints.own).collect();
        for fingerprint in distinct {
            // More suspects than this cannot be told apart in a useful time.
            let has_room = counts.len() < FINGERPRINTS_MAX;
            match counts.get_mut(fingerprint) {
                Some(count) => *count += 1,
                None if has_room => drop(counts.insert(*fingerprint, 1)),
                None => {}
            }
        }
        self.any.store(!counts.is_empty(), Ordering::Relaxed);
        self.write(&counts);
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Fingerprint, u32>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, counts: &BTreeMap<Fingerprint, u32>) {
        note(&self.health, counts);
        if let Err(error) = replace(&self.file, counts) {
            tracing::error!(%error, file = %self.file.display(), "cannot write the file of refused inputs; a repeated input can end the next process, too");
        }
    }
}

/// How many inputs are recorded in the file of a data directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RefusedCounts {
    pub(crate) suspected: usize,
    pub(crate) blocked: usize,
}

impl RefusedCounts {
    fn of(counts: &BTreeMap<Fingerprint, u32>) -> Self {
        let blocked = counts.values().filter(|count| **count >= BLOCKED_AFTER).count();
        Self { suspected: counts.len() - blocked, blocked }
    }
}

/// Counts the inputs in the file of this data directory; zero if there is none, or if another version wrote it.
pub(crate) fn counts_in(directory: &Path) -> RefusedCounts {
    let text = fs::read_to_string(directory.join(FILE)).unwrap_or_default();
    RefusedCounts::of(&read(&text))
}

fn note(health: &Health, counts: &BTreeMap<Fingerprint, u32>) {
    let RefusedCounts { suspected, blocked } = RefusedCounts::of(counts);
    health.note_refused(suspected, blocked);
}

/// Replaces the file in one step, synced; deletes it if there are no entries.
fn replace(file: &Path, counts: &BTreeMap<Fingerprint, u32>) -> std::io::Result<()> {
    if counts.is_empty() {
        return match fs::remove_file(file) {
            // An operator may have deleted it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
    }
    let mut text = format!("{HEAD}\n");
    for (fingerprint, count) in counts {
        text.push_str(&format!("{:016x} {count}\n", fingerprint.0));
    }
    file_replacement::replace(file, text.as_bytes())
}

/// Reads the file. Entries of another version are dropped: that version's bug may be fixed.
fn read(text: &str) -> BTreeMap<Fingerprint, u32> {
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return BTreeMap::new();
    }
    let entry = |line: &str| {
        let (fingerprint, count) = line.split_once(' ')?;
        Some((Fingerprint(u64::from_str_radix(fingerprint, 16).ok()?), count.parse().ok()?))
    };
    lines.filter_map(entry).take(FINGERPRINTS_MAX).collect()
}

/// The fingerprint of a command; none for commands that change nothing in the store, or that no client can repeat.
pub(super) fn fingerprint_command(command: &Command) -> Option<Fingerprint> {
    let fingerprint = match command {
        Command::Submit { key: Some(key), .. } => fingerprint("keyed", &(&key.key, key.digest)),
        Command::Submit { jobs, batch, .. } => {
            let mut hasher = hasher("submit");
            (jobs.len(), batch).hash(&mut hasher);
            for (index, job) in jobs.iter().enumerate() {
                (job.revision, job.priority, job.timeout, job.retry_of).hash(&mut hasher);
                if let Some(details) = job.details.as_ref().filter(|_| index < DETAILS_HASHED) {
                    let overrides = &details.overrides;
                    (&overrides.environment, &overrides.args, &overrides.input, &details.labels)
                        .hash(&mut hasher);
                    let params = &details.params;
                    (&params.environment, &params.variables, &params.args).hash(&mut hasher);
                }
            }
            Fingerprint(hasher.finish())
        }
        Command::Cancel { job, .. } => fingerprint("cancel", job),
        Command::CancelBatch { batch, .. } => fingerprint("cancel batch", batch),
        Command::ChangeBatch { batch, update, .. } => fingerprint("change batch", &(batch, update)),
        Command::Release { job, .. } => fingerprint("release", job),
        // A repeated request may come at another time, and that decides what it leads to.
        Command::Update { job, .. } => fingerprint("update", job),
        Command::Operate { worker, operation, .. } => match operation {
            Operation::Revoke => fingerprint("revoke", worker),
            // The end of a cordon `for` an hour differs each time.
            Operation::Cordon { origin, .. } => fingerprint("cordon", &(worker, &origin.reason)),
            Operation::Uncordon => fingerprint("uncordon", worker),
            Operation::Drain(deadline, origin) => fingerprint("drain", &(worker, deadline, &origin.reason)),
            Operation::Slots(slots) => fingerprint("slots", &(worker, slots)),
            Operation::Labels(labels) => fingerprint("labels", &(worker, labels)),
            Operation::Forget => fingerprint("forget", worker),
            Operation::Reset => fingerprint("reset", worker),
            Operation::StopUnmanaged(_) => return None,
        },
        // The end of a pause `for` an hour differs each time.
        Command::Pause { target, paused, origin, .. } => {
            fingerprint("pause", &(target.to_string(), paused, &origin.reason))
        }
        Command::Backfill { definition, schedule, slots, .. } => {
            fingerprint("backfill", &(definition, schedule.as_str(), slots))
        }
        Command::ReplaceDefinitions { .. }
        | Command::ReserveLabels { .. }
        | Command::AddDefinition { .. }
        | Command::MissingSecrets(_)
        | Command::Explain { .. }
        | Command::PendingReasons { .. }
        | Command::Limits { .. }
        | Command::AwaitEnd { .. } => {
            return None;
        }
    };
    Some(fingerprint)
}

/// The fingerprint of a worker's Hello.
pub(super) fn fingerprint_hello(hello: &Connected) -> Fingerprint {
    fingerprint("hello", &hello.secret_hash)
}

/// The fingerprints of a report's entries, each for itself, because a worker may combine them differently next time. Reports that
/// describe only the moment have none: they are not repeated.
pub(super) fn fingerprint_report(report: &Report, fingerprints: &mut Vec<Fingerprint>) {
    let mut each = |kind: &'static str, tokens: &mut dyn Iterator<Item = Token>| {
        fingerprints.extend(tokens.map(|token| fingerprint(kind, &token)));
    };
    match report {
        Report::Running(list) => each("running", &mut list.list.iter().map(|it| it.token)),
        Report::Success(list) => each("success", &mut list.list.iter().map(|it| it.token)),
        Report::Failure(list) => each("failure", &mut list.list.iter().map(|it| it.token)),
        Report::Released(list) => each("released", &mut list.list.iter().map(|it| it.token)),
        Report::Starting(list) => each("starting", &mut list.list.iter().copied()),
        Report::Inventory(it) => each("inventory", &mut it.attempts.iter().map(|(token, _)| *token)),
        Report::Progress(list) | Report::Status(list) => {
            each("phase", &mut list.iter().map(|(token, _)| *token))
        }
        Report::Foreign(list) => each("foreign", &mut list.iter().map(|it| it.token)),
        Report::Hello(_)
        | Report::Heartbeat(_)
        | Report::Output(_)
        | Report::Usage(_)
        | Report::Condition(_)
        | Report::Wanted(_) => {}
    }
}

fn fingerprint(kind: &'static str, what: &impl Hash) -> Fingerprint {
    let mut hasher = hasher(kind);
    what.hash(&mut hasher);
    Fingerprint(hasher.finish())
}

/// A hasher with fixed keys: it gives the same values in every process of this build.
fn hasher(kind: &'static str) -> DefaultHasher {
    let mut hasher = DefaultHasher::new();
    kind.hash(&mut hasher);
    hasher
}

/// In the data directory.
const FILE: &str = "refused-inputs.txt";
const HEAD: &str = concat!("longshore ", env!("CARGO_PKG_VERSION"));

/// Refusals in a row after which an input is rejected.
const BLOCKED_AFTER: u32 = 2;

/// Fingerprints kept at most: as many inputs as one group can have.
pub(super) const FINGERPRINTS_MAX: usize = 20_000;

/// Number of members of a large batch whose overrides are hashed: all of them may be 64 MiB.
const DETAILS_HASHED: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(directory: &Path) -> Refused {
        Refused::open(directory, Arc::default())
    }

    fn group(own: impl IntoIterator<Item = u64>) -> GroupFingerprints {
        GroupFingerprints { own: own.into_iter().map(Fingerprint).collect(), unanswered: Vec::new() }
    }

    #[test]
    fn equal_inputs_of_one_refused_group_are_suspected_and_not_blocked() {
        let directory = tempfile::tempdir().unwrap();
        let refused = refused(directory.path());
        refused.record_refusal(&GroupFingerprints { unanswered: vec![Fingerprint(1)], ..group([1, 1, 2]) });
        assert_eq!(refused.status(&[Fingerprint(1)]), InputStatus::Suspected);
        refused.record_refusal(&group([1]));
        assert_eq!(refused.status(&[Fingerprint(1)]), InputStatus::Blocked);
        assert_eq!(refused.status(&[Fingerprint(2)]), InputStatus::Suspected);
    }

    #[test]
    fn a_suspected_input_is_counted_when_there_is_no_room_for_more() {
        let directory = tempfile::tempdir().unwrap();
        let refused = refused(directory.path());
        let full = FINGERPRINTS_MAX as u64;
        refused.record_refusal(&group(0..full + 1));
        assert_eq!(refused.status(&[Fingerprint(full)]), InputStatus::Clear, "no room for it");
        refused.record_refusal(&group([full, 7]));
        assert_eq!(refused.status(&[Fingerprint(7)]), InputStatus::Blocked);
    }

    #[test]
    fn a_deleted_file_does_not_keep_inputs_from_being_cleared() {
        let directory = tempfile::tempdir().unwrap();
        let refused = refused(directory.path());
        refused.record_refusal(&group([1, 2]));
        fs::remove_file(directory.path().join(FILE)).unwrap();
        replace(&directory.path().join(FILE), &BTreeMap::new()).unwrap();
        refused.clear(&[Fingerprint(1)]);
        assert_eq!(counts_in(directory.path()), RefusedCounts { suspected: 1, blocked: 0 });
    }
}
