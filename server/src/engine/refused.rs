//! Inputs that the store refused, remembered over the end of the process, so that a client or a worker that repeats one cannot end every
//! next process, too (DESIGN.md section 2).
//!
//! A group is refused as a whole: any of its inputs may be the cause. After the restart each of them is *suspected*: if it comes again it
//! gets a group to itself. If that is committed it was innocent, and is forgotten; if that is refused as well the input is the cause, and
//! is turned away from then on, until another version of the program starts or somebody removes the file.
//!
//! An input is known by its mark, a hash of what is asked for: the same again, whoever asks.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::{Report, Token};
use scheduler::input::{Connected, Operation};

use super::handle::Command;

/// What an input is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark(u64);

/// What the inputs of a group are known by.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Those that came into it.
    pub(super) own: Vec<Mark>,
    /// Those that came earlier, and are not answered yet: it may be theirs in part.
    pub(super) carried: Vec<Mark>,
}

/// How an input stands that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing is held against it.
    Good,
    /// It was in a group that was refused: it gets one to itself.
    Suspected,
    /// It was refused again, by itself.
    Guilty,
}

/// The inputs that are held against, and the file in which they outlive the process.
#[derive(Debug)]
pub(super) struct Refused {
    file: PathBuf,
    /// How often each was refused in a row.
    counts: Mutex<BTreeMap<Mark, u32>>,
    /// Whether there are any: nearly always not.
    any: AtomicBool,
}

impl Refused {
    /// Reads what earlier processes of this version left in this directory. What cannot be read is left out: it must not keep the server
    /// from starting.
    pub(super) fn open(directory: &Path) -> Self {
        let file = directory.join(FILE);
        let counts = match fs::read_to_string(&file) {
            Ok(text) => read(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => {
                tracing::warn!(%error, file = %file.display(), "cannot read which inputs were refused");
                BTreeMap::new()
            }
        };
        if !counts.is_empty() {
            let guilty = counts.values().filter(|count| **count >= GUILTY).count();
            tracing::warn!(
                suspected = counts.len() - guilty,
                guilty,
                file = %file.display(),
                "the store refused what these inputs led to: the guilty ones are turned away"
            );
        }
        Self { file, any: AtomicBool::new(!counts.is_empty()), counts: Mutex::new(counts) }
    }

    /// How an input with these marks stands: as the worst of them.
    pub(super) fn standing(&self, marks: &[Mark]) -> Standing {
        if !self.any.load(Ordering::Relaxed) {
            return Standing::Good;
        }
        let counts = self.counts();
        match marks.iter().filter_map(|mark| counts.get(mark)).max() {
            None => Standing::Good,
            Some(count) if *count < GUILTY => Standing::Suspected,
            Some(_) => Standing::Guilty,
        }
    }

    /// A group was committed: its inputs are innocent.
    pub(super) fn pardon(&self, marks: &[Mark]) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut counts = self.counts();
        let before = counts.len();
        for mark in marks {
            counts.remove(mark);
        }
        if counts.len() < before {
            self.any.store(!counts.is_empty(), Ordering::Relaxed);
            self.write(&counts);
        }
    }

    /// A group was refused, and the process is about to end.
    pub(super) fn remember(&self, marks: &Marks) {
        let mut counts = self.counts();
        // More are no client's doing: nobody could tell which of them it was before people have given up.
        for mark in marks.carried.iter().chain(&marks.own).take(MARKS_MAX.saturating_sub(counts.len())) {
            *counts.entry(*mark).or_default() += 1;
        }
        self.any.store(!counts.is_empty(), Ordering::Relaxed);
        self.write(&counts);
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Mark, u32>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, counts: &BTreeMap<Mark, u32>) {
        if let Err(error) = replace(&self.file, counts) {
            tracing::error!(%error, file = %self.file.display(), "cannot write down which inputs were refused");
        }
    }
}

/// All of it or nothing, synced; no file if there is nothing to say.
fn replace(file: &Path, counts: &BTreeMap<Mark, u32>) -> std::io::Result<()> {
    if counts.is_empty() {
        return fs::remove_file(file);
    }
    let draft = file.with_extension("draft");
    let mut text = format!("{HEAD}\n");
    for (mark, count) in counts {
        text.push_str(&format!("{:016x} {count}\n", mark.0));
    }
    let mut written = File::create(&draft)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()?;
    fs::rename(draft, file)
}

/// What was held against inputs by another version counts no more: the mistake may have been put right.
fn read(text: &str) -> BTreeMap<Mark, u32> {
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return BTreeMap::new();
    }
    let entry = |line: &str| {
        let (mark, count) = line.split_once(' ')?;
        Some((Mark(u64::from_str_radix(mark, 16).ok()?), count.parse().ok()?))
    };
    lines.filter_map(entry).take(MARKS_MAX).collect()
}

/// What a command is known by; nothing for those that change nothing.
pub(super) fn mark_of_command(command: &Command) -> Option<Mark> {
    let mark = match command {
        Command::Submit { key: Some(key), .. } => mark("keyed", &(&key.key, key.digest)),
        Command::Submit { jobs, batch, .. } => {
            let mut hasher = hasher("submit");
            (jobs.len(), batch).hash(&mut hasher);
            for (index, job) in jobs.iter().enumerate() {
                (job.revision, job.priority, job.timeout, job.retry_of).hash(&mut hasher);
                if let Some(details) = job.details.as_ref().filter(|_| index < DETAILS_HASHED) {
                    let body = &details.body;
                    (&body.environment, &body.args, &body.input, &details.labels).hash(&mut hasher);
                }
            }
            Mark(hasher.finish())
        }
        Command::Cancel { job, .. } => mark("cancel", job),
        Command::Release { job, .. } => mark("release", job),
        Command::Operate { worker, operation, .. } => match operation {
            Operation::Cordon => mark("cordon", worker),
            Operation::Uncordon => mark("uncordon", worker),
            Operation::Drain(patience) => mark("drain", &(worker, patience)),
            Operation::Slots(slots) => mark("slots", &(worker, slots)),
            Operation::Labels(labels) => mark("labels", &(worker, labels)),
            Operation::Forget => mark("forget", worker),
            Operation::StopUnmanaged(_) => return None,
        },
        Command::Define { .. }
        | Command::Learn { .. }
        | Command::Explain { .. }
        | Command::AwaitEnd { .. } => {
            return None;
        }
    };
    Some(mark)
}

/// What a worker that says Hello is known by.
pub(super) fn mark_of_hello(hello: &Connected) -> Mark {
    mark("hello", &hello.secret_hash)
}

/// What a report is known by: each of its entries, which may come in other company next time. Nothing for those that only tell of the
/// moment: they are not repeated.
pub(super) fn marks_of_report(report: &Report, marks: &mut Vec<Mark>) {
    let mut each = |kind: &'static str, tokens: &mut dyn Iterator<Item = Token>| {
        marks.extend(tokens.map(|token| mark(kind, &token)));
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
        | Report::Condition(_)
        | Report::Wanted(_) => {}
    }
}

fn mark(kind: &'static str, what: &impl Hash) -> Mark {
    let mut hasher = hasher(kind);
    what.hash(&mut hasher);
    Mark(hasher.finish())
}

/// The same in each process that this program was built for: the keys of this hasher are fixed.
fn hasher(kind: &'static str) -> DefaultHasher {
    let mut hasher = DefaultHasher::new();
    kind.hash(&mut hasher);
    hasher
}

/// In the data directory.
const FILE: &str = "refused-inputs.txt";
const HEAD: &str = concat!("longshore ", env!("CARGO_PKG_VERSION"));

/// An input that was refused so often in a row is turned away.
const GUILTY: u32 = 2;

/// So many are remembered: what a crowd of clients and workers can have in one group.
pub(super) const MARKS_MAX: usize = 20_000;

/// Of a large batch, what so many members add to their definitions makes the difference: all of it may be 64 MiB.
const DETAILS_HASHED: usize = 1_000;
