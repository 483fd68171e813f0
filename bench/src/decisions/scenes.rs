//! The models whose sizes are compared.

use scheduler::definition::Definition;
use scheduler::details::JobDetails;
use scheduler::limits::rules::{Concurrency, KeySource, OnFull};
use scheduler::new_jobs::NewJob;
use scheduler::placement::rules::{Condition, LabelRule};

use crate::decisions::flow::{CycleOrder, Scene};
use crate::decisions::model::{Model, definition, job};

/// Jobs of a definition without limits, while this number of keys of another one has no permit left and jobs that wait for it.
pub(super) fn beside_blocked_keys(keys: u64) -> anyhow::Result<Scene> {
    let mut model = blocked_keys(keys)?;
    // Those that hold the permits run on.
    model.forget_held();
    Ok(Scene { model, order: CycleOrder::SubmitFirst, job: Box::new(|_| job(PLAIN)) })
}

/// Jobs of the blocked keys themselves, one key after the other.
pub(super) fn among_blocked_keys(keys: u64) -> anyhow::Result<Scene> {
    let model = blocked_keys(keys)?;
    Ok(Scene { model, order: CycleOrder::FinishFirst, job: Box::new(move |n| keyed_job(KEYED, n % keys)) })
}

/// One job of each key runs and one waits.
fn blocked_keys(keys: u64) -> anyhow::Result<Model> {
    let mut model = Model::new(vec![definition(PLAIN), limited(definition(KEYED), 1)])?;
    for _ in 0..KEY_WORKERS {
        model.connect(u32::try_from(keys / KEY_WORKERS)? + 2, 0, Vec::new())?;
    }
    for _ in 0..2 {
        model.submit((0..keys).map(|key| keyed_job(KEYED, key)))?;
    }
    anyhow::ensure!(model.held() as u64 == keys, "{} of {keys} keys have a permit", model.held());
    Ok(model)
}

/// All slots and backlogs are taken, and each class has jobs that wait.
pub(super) fn saturated_workers(workers: u64) -> anyhow::Result<Scene> {
    let (mut model, classes) = fleet(workers)?;
    let room = workers * u64::from(SLOTS + BACKLOG);
    model.submit((0..room + classes * WAITING).map(|n| job(n % classes)))?;
    Ok(Scene { model, order: CycleOrder::FinishFirst, job: Box::new(move |n| job(n % classes)) })
}

/// All slots are free.
pub(super) fn idle_workers(workers: u64) -> anyhow::Result<Scene> {
    let (model, classes) = fleet(workers)?;
    Ok(Scene { model, order: CycleOrder::SubmitFirst, job: Box::new(move |n| job(n % classes)) })
}

/// Workers of twenty classes, and a definition for each class.
fn fleet(workers: u64) -> anyhow::Result<(Model, u64)> {
    let classes = workers.min(CLASSES);
    let mut model = Model::new((0..classes).map(|class| requiring(definition(class), class)).collect())?;
    for number in 0..workers {
        model.connect(SLOTS, BACKLOG, class_label(number % classes))?;
    }
    Ok((model, classes))
}

/// The cause for which other definitions wait.
#[derive(Clone, Copy, Debug)]
pub(super) enum Beside {
    /// No worker has the label that they require.
    AbsentWorker,
    /// Likewise, and their jobs have a higher priority than those in the backlogs.
    AbsentWorkerFirst,
    /// The only workers that may run them are busy with other jobs, while a worker of another class is idle.
    BusyClass,
    /// The workers are busy with jobs of a higher priority.
    BusyWorkers,
    /// Likewise, and each has a limit of its own.
    BusyWorkersLimited,
    /// Likewise without limits or priorities: the oldest job goes first, of whichever definition it is.
    BusyWorkersInTurn,
}

impl Beside {
    /// All causes, with the names of their questions.
    pub(super) const ALL: [(&'static str, Self); 6] = [
        ("waiting_definitions_busy_class", Self::BusyClass),
        ("waiting_definitions_absent_worker", Self::AbsentWorker),
        ("waiting_definitions_absent_worker_first", Self::AbsentWorkerFirst),
        ("waiting_definitions_busy_workers", Self::BusyWorkers),
        ("waiting_definitions_limited", Self::BusyWorkersLimited),
        ("waiting_definitions_in_turn", Self::BusyWorkersInTurn),
    ];
}

/// Jobs of one definition flow while this number of others has jobs that wait.
pub(super) fn waiting_definitions(waiting: u64, beside: Beside) -> anyhow::Result<Scene> {
    let plain = match beside {
        Beside::BusyClass => requiring(definition(PLAIN), 0),
        _ => definition(PLAIN),
    };
    let mut definitions = vec![plain];
    definitions.extend((1..=waiting).map(|number| match beside {
        Beside::AbsentWorker => requiring(definition(number), 1),
        Beside::BusyClass => requiring(Definition { priority: -1, ..definition(number) }, 0),
        Beside::AbsentWorkerFirst => requiring(Definition { priority: 1, ..definition(number) }, 1),
        Beside::BusyWorkers => Definition { priority: -1, ..definition(number) },
        Beside::BusyWorkersLimited => limited(Definition { priority: -1, ..definition(number) }, 10),
        Beside::BusyWorkersInTurn => definition(number),
    }));
    let mut model = Model::new(definitions)?;
    for _ in 0..FLOW_WORKERS {
        model.connect(SLOTS, BACKLOG, class_label(0))?;
    }
    if matches!(beside, Beside::BusyClass) {
        model.connect(SLOTS, 0, class_label(2))?;
    }
    let room = FLOW_WORKERS * u64::from(SLOTS + BACKLOG);
    model.submit((0..room + WAITING).map(|_| job(PLAIN)))?;
    for _ in 0..WAITING_EACH {
        model.submit((1..=waiting).map(job))?;
    }
    let next_job: Box<dyn Fn(u64) -> NewJob> = match beside {
        Beside::BusyWorkersInTurn => Box::new(move |n| job(n % (waiting + 1))),
        _ => Box::new(|_| job(PLAIN)),
    };
    Ok(Scene { model, order: CycleOrder::FinishFirst, job: next_job })
}

/// Jobs of one definition flow while this number of large batches of the same definition waits.
pub(super) fn waiting_batches(batches: u64) -> anyhow::Result<Scene> {
    let mut model = Model::with_slice(vec![definition(PLAIN)], MEMBERS / 2)?;
    for _ in 0..FLOW_WORKERS {
        model.connect(SLOTS, BACKLOG, Vec::new())?;
    }
    let room = FLOW_WORKERS * u64::from(SLOTS + BACKLOG);
    model.submit((0..room + WAITING).map(|_| job(PLAIN)))?;
    for _ in 0..batches {
        model.submit((0..MEMBERS).map(|_| job(PLAIN)))?;
    }
    Ok(Scene { model, order: CycleOrder::FinishFirst, job: Box::new(|_| job(PLAIN)) })
}

/// One definition without rules, or this number with limits by key, required labels and priorities. The limits are looked at and never reached.
pub(super) fn rules(definitions: u64) -> anyhow::Result<Scene> {
    let classes = CLASSES;
    let entries = match definitions {
        0 => vec![definition(PLAIN)],
        some => (0..some).map(|number| ruled(number, classes)).collect(),
    };
    let mut model = Model::new(entries)?;
    for number in 0..RULE_WORKERS {
        model.connect(SLOTS, BACKLOG, class_label(number % classes))?;
    }
    let next_job = move |n: u64| match definitions {
        0 => job(PLAIN),
        some => keyed_job(n % some, (n / some) % RULE_KEYS),
    };
    let room = RULE_WORKERS * u64::from(SLOTS + BACKLOG);
    model.submit((0..room + classes * WAITING).map(next_job))?;
    Ok(Scene { model, order: CycleOrder::FinishFirst, job: Box::new(next_job) })
}

fn ruled(number: u64, classes: u64) -> Definition {
    // Each class has definitions of all priorities.
    let priority = i8::try_from((number / classes) % 5).unwrap_or(0);
    limited(requiring(Definition { priority, ..definition(number) }, number % classes), 10)
}

/// At most `limit` of its jobs with the same value of the label `key` run at once.
pub(super) fn limited(mut definition: Definition, limit: u32) -> Definition {
    let key = Some(KeySource::Label(KEY.to_owned()));
    definition.limits.concurrency = Some(Concurrency { limit, key, group: None, on_full: OnFull::Queue });
    definition
}

/// Its jobs run on workers of this class only.
fn requiring(mut definition: Definition, class: u64) -> Definition {
    let condition = Condition::In(vec![class_name(class)]);
    definition.placement.requires = vec![LabelRule { label: CLASS.to_owned(), condition }];
    definition
}

fn class_label(class: u64) -> Vec<(String, String)> {
    vec![(CLASS.to_owned(), class_name(class))]
}

fn class_name(class: u64) -> String {
    format!("c{class}")
}

/// A job with this value of the label `key`.
pub(super) fn keyed_job(definition: u64, key: u64) -> NewJob {
    let labels = vec![(KEY.to_owned(), format!("customer-{key}"))];
    let details = JobDetails { labels, ..JobDetails::default() };
    NewJob { details: Some(Box::new(details)), ..job(definition) }
}

const KEY: &str = "key";
const CLASS: &str = "class";
/// Numbers of the definitions without and with keys.
const PLAIN: u64 = 0;
const KEYED: u64 = 1;
/// The same at all sizes; their slots differ.
const KEY_WORKERS: u64 = 100;
const CLASSES: u64 = 20;
/// The defaults of a worker.
const SLOTS: u32 = 2;
const BACKLOG: u32 = 2;
/// Waiting jobs of each class, enough that none runs out.
const WAITING: u64 = 200;
/// Members of a large batch; half of them make a slice.
const MEMBERS: usize = 20;
/// Waiting jobs of each definition that waits.
const WAITING_EACH: u64 = 4;
const FLOW_WORKERS: u64 = 10;
const RULE_WORKERS: u64 = 100;
const RULE_KEYS: u64 = 50;
