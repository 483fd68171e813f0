//! The work of a world: definitions with every policy, and how the containers of each behave.

mod draw;

use std::sync::Arc;
use std::time::Duration;

use protocol::Revision;
use scheduler::definition::Definition;
use scheduler::limits::rules::LimitRules;
use scheduler::pauses::PauseTarget;
use scheduler::placement::rules::WorkerSelector;
use scheduler::schedule::{Schedule, Timetable};

use crate::dice::Dice;

/// How containers of a definition behave; nobody but the engine knows.
#[derive(Clone, Debug)]
pub(crate) struct Nature {
    /// How long they run if nobody stops them.
    pub(crate) runs: (Duration, Duration),
    /// How often in a thousand they fail.
    pub(crate) fails: u32,
    /// How often they are killed for their memory.
    pub(crate) ooms: u32,
    /// How often they ignore a request to stop.
    pub(crate) ignores_term: u32,
    /// How often they cannot be started, and that is the definition's fault.
    pub(crate) unstartable: u32,
    /// How often their image must be pulled.
    pub(crate) pulls: u32,
    /// How often such a pull fails.
    pub(crate) pull_fails: u32,
    /// How often they write something.
    pub(crate) writes: u32,
}

/// One dice for each aspect of a definition, so that a new aspect leaves the others as they were.
#[derive(Debug)]
pub(crate) struct AspectDice {
    /// Policies, and how the program of a definition behaves.
    pub(crate) nature: Dice,
    /// How long to wait after what nobody expected.
    pub(crate) delays: Dice,
    /// Schedules and their policies.
    pub(crate) timetables: Dice,
    /// How long jobs may wait.
    pub(crate) waits: Dice,
    /// Limits of concurrency, rate and queue.
    pub(crate) limits: Dice,
    /// Jobs that other jobs make.
    pub(crate) hooks: Dice,
    /// How many workers run a job.
    pub(crate) sets: Dice,
}

/// All definitions that there ever were.
#[derive(Debug)]
pub(crate) struct Workload {
    /// By revision, from 1.
    revisions: Vec<(Arc<Definition>, Nature)>,
    /// The revision of each name now.
    current: Vec<Revision>,
    dice: Dice,
    /// Draws how long to wait after what nobody expected, where the world is one in which definitions say so.
    delays: Option<Dice>,
    /// Draws the schedules of definitions; absent in worlds without schedules.
    timetables: Option<Dice>,
    /// Draws how long jobs may wait; absent in worlds in which they wait without limit.
    waits: Option<Dice>,
    /// Draws the hooks of definitions; absent in worlds without hooks.
    hooks: Option<Dice>,
    /// Draws how many workers run a job; absent in worlds in which one does.
    sets: Option<Dice>,
    /// Limits of each name; they stay the same with each version. Empty in worlds without limits.
    limits: Vec<LimitRules>,
    /// Schedules have left jobs.yaml, because the faults are over.
    is_unscheduled: bool,
}

impl Workload {
    pub(crate) fn new(names: usize, aspects: AspectDice) -> Self {
        let AspectDice { nature, mut delays, mut timetables, mut waits, mut limits, mut hooks, mut sets } =
            aspects;
        let has_limits = limits.permille(400);
        let limits =
            (0..if has_limits { names } else { 0 }).map(|_| draw::limit_rules(&mut limits)).collect();
        let delays = delays.permille(250).then_some(delays);
        let timetables = timetables.permille(300).then_some(timetables);
        let waits = waits.permille(300).then_some(waits);
        let hooks = hooks.permille(300).then_some(hooks);
        let sets = sets.permille(300).then_some(sets);
        let (revisions, current) = (Vec::new(), Vec::new());
        let mut it = Self {
            revisions,
            current,
            dice: nature,
            delays,
            timetables,
            waits,
            hooks,
            sets,
            limits,
            is_unscheduled: false,
        };
        for name in 0..names {
            let revision = it.draw(name, names);
            it.current.push(revision);
        }
        it
    }

    /// The definitions of jobs.yaml as it is now.
    pub(crate) fn current(&self) -> Vec<Arc<Definition>> {
        let unscheduled = |definition: &Arc<Definition>| {
            let definition = Definition::clone(definition);
            Arc::new(Definition { timetable: Timetable::default(), ..definition })
        };
        let definitions = self.current.iter().map(|revision| self.definition(*revision));
        if self.is_unscheduled {
            definitions.map(unscheduled).collect()
        } else {
            definitions.cloned().collect()
        }
    }

    /// The workers that jobs.yaml lists for the jobs of this name; empty if any worker may run them.
    pub(crate) fn listed_workers(&self, name: &str) -> &[WorkerSelector] {
        let mut current = self.current.iter().map(|revision| self.definition(*revision));
        current.find(|it| it.name == name).map_or(&[], |it| it.placement.workers.as_slice())
    }

    /// Removes all schedules from jobs.yaml, so that the world becomes quiet.
    pub(crate) const fn remove_schedules(&mut self) {
        self.is_unscheduled = true;
    }

    /// A target of a pause; it may not exist. Without a name it is more than one definition.
    pub(crate) fn pause_target(&self, name: Option<usize>, schedule: Option<usize>) -> PauseTarget {
        let Some(name) = name else {
            return match schedule {
                None => PauseTarget::Schedules,
                Some(0) => PauseTarget::Group(GROUP.into()),
                Some(_) => PauseTarget::Server,
            };
        };
        let definition = self.definition(self.revision(name));
        let target = definition.name.as_str().into();
        match schedule.and_then(|index| definition.timetable.schedules.get(index)) {
            Some(schedule) => PauseTarget::Schedule(target, schedule.id.clone()),
            None => PauseTarget::Definition(target),
        }
    }

    /// All pauses that can keep jobs from a start.
    pub(crate) fn paused_jobs(&self) -> Vec<PauseTarget> {
        let names = (0..self.current.len()).map(|name| self.pause_target(Some(name), None));
        [PauseTarget::Server, PauseTarget::Group(GROUP.into())].into_iter().chain(names).collect()
    }

    /// One of the schedules of a name, with the name.
    pub(crate) fn schedule(&self, name: usize, index: usize) -> Option<(Arc<str>, Schedule)> {
        let definition = self.definition(self.revision(name));
        let schedule = definition.timetable.schedules.get(index)?;
        Some((definition.name.as_str().into(), schedule.clone()))
    }

    /// The present revision of one of the names.
    pub(crate) fn revision(&self, name: usize) -> Revision {
        self.current[name % self.current.len()]
    }

    pub(crate) fn definition(&self, revision: Revision) -> &Arc<Definition> {
        &self.revisions[revision.0 as usize - 1].0
    }

    /// All revisions of this name.
    pub(crate) fn of_name<'w>(&'w self, name: &'w str) -> impl Iterator<Item = &'w Definition> + Clone {
        self.revisions.iter().map(|(definition, _)| &**definition).filter(move |it| it.name == name)
    }

    /// How its containers behave. What is started without a definition (its directory was lost) behaves like the first one's.
    pub(crate) fn nature(&self, revision: Revision) -> &Nature {
        &self.revisions[(revision.0 as usize).max(1) - 1].1
    }

    /// Writes one entry of jobs.yaml anew.
    pub(crate) fn redefine(&mut self, name: usize) {
        let name = name % self.current.len();
        self.current[name] = self.draw(name, self.current.len());
    }

    fn draw(&mut self, name: usize, names: usize) -> Revision {
        let dice = &mut self.dice;
        let revision = Revision(self.revisions.len() as u128 + 1);
        let nature = draw::nature(dice);
        let mut definition = draw::definition(dice, name, revision, &nature);
        definition.loss.delay = self.delays.as_mut().and_then(draw::delay);
        if let Some(dice) = &mut self.waits {
            definition.waits = draw::wait_limits(dice);
            definition.expect = draw::expect(dice);
        }
        if let Some(dice) = self.hooks.as_mut() {
            definition.hooks = draw::hooks(dice, name + 1..names);
        }
        definition.limits = self.limits.get(name).cloned().unwrap_or_default();
        if let Some(dice) = &mut self.sets {
            definition.placement.run_on = draw::run_on(dice, &definition.limits);
        }
        if let Some(dice) = &mut self.timetables {
            // A new version of a definition often has the schedules of the old one.
            let before = self.current.get(name).map(|revision| &self.revisions[revision.0 as usize - 1].0);
            definition.timetable = match before.filter(|_| dice.permille(400)) {
                Some(before) => before.timetable.clone(),
                None => draw::timetable(dice, &definition.name),
            };
        }
        self.revisions.push((Arc::new(definition), nature));
        revision
    }
}

/// The label of jobs by which limits count.
pub(crate) const LABEL: &str = "tenant";

/// The group that definitions share permits in.
const GROUP: &str = "group";

/// The memory limit of an attempt after this number of attempts that were killed for their memory. Each of them doubles it.
pub(crate) fn memory_after(revision: Revision, oom_kills: u32) -> Option<u64> {
    MEMORY_BYTES.checked_shl(oom_kills).filter(|_| has_memory_limit(revision))
}

/// Half of the definitions limit, and so reserve, their memory. The others may be prefetched.
fn has_memory_limit(revision: Revision) -> bool {
    revision.0.is_multiple_of(2)
}

const MEMORY_BYTES: u64 = 64 << 20;
