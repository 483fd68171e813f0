//! A flow of jobs through a model, and its cost at different sizes.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use scheduler::input::Input;
use scheduler::new_jobs::NewJob;

use crate::decisions::model::Model;
use crate::record::Record;

/// A model in a steady state, and the jobs that flow through it.
pub(super) struct Scene {
    /// The scheduler with its workers and what waits.
    pub(super) model: Model,
    /// The order of the two steps of a cycle.
    pub(super) order: CycleOrder,
    /// The n-th job of the flow.
    pub(super) job: Box<dyn Fn(u64) -> NewJob>,
}

/// Steps of a cycle: a job is accepted, and a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CycleOrder {
    /// The new job starts at once on a free worker and then ends.
    SubmitFirst,
    /// A job ends, so that one that waits starts; then another one is accepted and waits.
    FinishFirst,
}

/// How flows are compared.
#[derive(Debug)]
pub(super) struct Comparison<'a> {
    /// Cycles in each window, of two decisions each.
    pub(super) cycles: u64,
    /// The only question that is answered, for a profile of it; otherwise all are.
    pub(super) only: Option<&'a str>,
    /// Some question was answered.
    pub(super) was_asked: Cell<bool>,
}

impl Comparison<'_> {
    /// Measures the same flow at each size, in turns, and prints the cost at each as a ratio to that at the first.
    pub(super) fn compare(
        &self,
        question: &str,
        sizes: &[u64],
        scene: impl Fn(u64) -> anyhow::Result<Scene>,
    ) -> anyhow::Result<()> {
        if self.only.is_some_and(|only| only != question) {
            return Ok(());
        }
        self.was_asked.set(true);
        measure(question, sizes, self.cycles, scene)
    }
}

fn measure(
    question: &str,
    sizes: &[u64],
    cycles: u64,
    scene: impl Fn(u64) -> anyhow::Result<Scene>,
) -> anyhow::Result<()> {
    let mut scenes = sizes.iter().map(|size| scene(*size)).collect::<anyhow::Result<Vec<Scene>>>()?;
    let mut least = vec![f64::INFINITY; sizes.len()];
    let mut submitted = 0;
    for round in 0..=WINDOWS {
        for (scene, least) in scenes.iter_mut().zip(&mut least) {
            let us = scene.window(submitted, cycles)?;
            // The first round fills caches.
            if round > 0 {
                *least = us.min(*least);
            }
        }
        submitted += cycles;
    }
    let mut record = Record::new("decisions");
    record.set("question", question);
    record.set("cycles", cycles);
    record.set("windows", WINDOWS);
    for (size, us) in sizes.iter().zip(&least) {
        record.figure(&format!("cpu_us_at_{size}"), *us);
    }
    for (size, us) in sizes.iter().zip(&least).skip(1) {
        record.figure(&format!("ratio_at_{size}"), us / least[0]);
    }
    record.print();
    Ok(())
}

impl Scene {
    /// Processor time of a cycle in microseconds, over this number of cycles.
    fn window(&mut self, from: u64, cycles: u64) -> anyhow::Result<f64> {
        let requests: Vec<Input> =
            (from..from + cycles).map(|n| self.model.request(vec![(self.job)(n)])).collect();
        let live = self.model.live();
        let began = thread_cpu();
        for request in requests {
            if self.order == CycleOrder::FinishFirst {
                self.model.finish_oldest()?;
            }
            self.model.step(request)?;
            if self.order == CycleOrder::SubmitFirst {
                self.model.finish_oldest()?;
            }
        }
        let used = thread_cpu().saturating_sub(began);
        anyhow::ensure!(self.model.live() == live, "{} live jobs instead of {live}", self.model.live());
        Ok(used.as_secs_f64() * 1e6 / cycles as f64)
    }
}

/// Processor time of this thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The clock counts up from zero, and nanoseconds are below a billion.
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

const WINDOWS: u32 = 9;
