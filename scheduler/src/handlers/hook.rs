//! Makes the jobs of hooks. Events are collected during a step and their jobs are made at its end: making a job can end others
//! (`on_full: cancel_oldest`), which can have hooks of their own.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::container::Overrides;
use protocol::{AttemptNo, JobId, Now, Timestamp};

use crate::core::Scheduler;
use crate::definition::Definition;
use crate::details::JobDetails;
use crate::handlers::{admission, run_on, submit, unique};
use crate::hooks::{DEPTH_MAX, HookEvent, HookRefusal, HookResult, HookRow, PendingHook, TriggeringJob};
use crate::new_jobs::NewJob;
use crate::params::{JobParams, ParamDefaults, SubmissionRules};
use crate::results::{self, RESULT_VARIABLE_BYTES_MAX, ResultParams};
use crate::run_on::RunOnRole;
use crate::state::State;
use crate::step::{Change, Ended, Note, Rejection};

/// A container of this job has started. Only the first one counts: a retry is no start of the job. The start of a `run_on` member is that of
/// its parent.
pub(crate) fn started(scheduler: &mut Scheduler, id: JobId, attempt: AttemptNo, at: Timestamp) {
    if let Some(parent) = scheduler.parent_of(id) {
        return run_on::member_started(scheduler, parent, at);
    }
    let Some(definition) = scheduler.jobs.get(&id).and_then(|job| scheduler.definition(job)) else { return };
    if definition.hooks.on_start.is_empty() {
        return;
    }
    let Some(job) = scheduler.jobs.get_mut(&id) else { return };
    let extras = job.extras_mut();
    if core::mem::replace(&mut extras.has_started, true) {
        return;
    }
    let depth = extras.hook_depth;
    let triggered_by = TriggeringJob {
        job: id,
        name: definition.name.clone(),
        state: State::Running,
        attempt,
        outcome: None,
        exit_code: None,
        reason: Default::default(),
        started_at: Some(at),
        ended_at: None,
        result: None,
    };
    collect(scheduler, &definition, Arc::new(triggered_by), depth, &[HookEvent::Start]);
}

/// This job ends; it is still known. `attempt` is its last one, zero if it had none.
pub(crate) fn ends(scheduler: &mut Scheduler, ended: &Ended, attempt: AttemptNo) {
    let Some(job) = scheduler.jobs.get(&ended.job) else { return };
    // The hooks are those of its `run_on` parent.
    if matches!(job.role(), RunOnRole::Member(_)) {
        return;
    }
    let Some(definition) = scheduler.definition(job).filter(|definition| !definition.hooks.is_empty()) else {
        return;
    };
    let depth = job.extras.as_ref().map_or(0, |extras| extras.hook_depth);
    let closed = ended.closed.as_ref();
    let triggered_by = TriggeringJob {
        job: ended.job,
        name: definition.name.clone(),
        state: ended.state,
        attempt,
        outcome: closed.map(|closed| closed.outcome.name()),
        exit_code: closed.and_then(|closed| closed.exit_code),
        reason: ended.reason.clone(),
        started_at: closed.and_then(|closed| closed.started_at),
        ended_at: Some(ended.at),
        result: closed.and_then(|closed| closed.result.clone()),
    };
    let events: Vec<HookEvent> = HookEvent::of_end(ended.state).into_iter().chain([HookEvent::End]).collect();
    collect(scheduler, &definition, Arc::new(triggered_by), depth, &events);
}

fn collect(
    scheduler: &mut Scheduler,
    definition: &Definition,
    triggered_by: Arc<TriggeringJob>,
    depth: u8,
    events: &[HookEvent],
) {
    for event in events {
        for target in definition.hooks.of(*event) {
            let (target, triggered_by, depth) =
                (target.clone(), triggered_by.clone(), depth.saturating_add(1));
            scheduler.pending_hooks.push_back(PendingHook { event: *event, target, depth, triggered_by });
        }
    }
}

/// Makes the jobs of all events of this step. It ends, because a job that is made is deeper in its chain than the one that ended.
pub(crate) fn make_pending(scheduler: &mut Scheduler, now: Now) {
    while let Some(hook) = scheduler.pending_hooks.pop_front() {
        let result = match make(scheduler, now, &hook) {
            Ok(job) => HookResult::Made { job, depth: hook.depth },
            Err(refusal) => HookResult::LeftOut(refusal),
        };
        let (parent, event, target) = (hook.triggered_by.job, hook.event, hook.target);
        scheduler.change(Change::Hook(HookRow { parent, event, target, at: now.utc, result }));
    }
}

fn make(scheduler: &mut Scheduler, now: Now, hook: &PendingHook) -> Result<JobId, HookRefusal> {
    let target = scheduler.hook_targets.find(&hook.target).cloned().ok_or(HookRefusal::Removed)?;
    let number = scheduler.definitions.find(target.revision).ok_or(HookRefusal::Removed)?;
    if scheduler.definitions.at(number).is_none_or(|definition| !definition.enabled) {
        return Err(HookRefusal::Disabled);
    }
    if hook.depth > DEPTH_MAX {
        return Err(HookRefusal::TooDeep);
    }
    let ResultParams { params, left_out } = params_of_result(scheduler, hook, &target.submission);
    let params = match (params, &target.submission.defaults) {
        (Some(params), _) => params,
        (None, ParamDefaults::None) => JobParams::default(),
        (None, ParamDefaults::All(params)) => (**params).clone(),
        (None, ParamDefaults::Missing) => return Err(HookRefusal::MissingParam),
    };
    let overrides =
        Overrides { environment: hook.triggered_by.environment(hook.event), ..Overrides::default() };
    let details = JobDetails { overrides, params, ..JobDetails::default() };
    let new = NewJob {
        revision: target.revision,
        hook_depth: hook.depth,
        details: Some(Box::new(details)),
        ..NewJob::default()
    };
    if unique::duplicate_of(scheduler, &new).is_some() {
        return Err(HookRefusal::Duplicate);
    }
    if !submit::has_room(scheduler, 1) {
        return Err(HookRefusal::TooManyJobs);
    }
    admission::check(scheduler, now.utc, core::iter::once(&new)).map_err(|rejection| match rejection {
        Rejection::LimitFull { .. } => HookRefusal::LimitFull,
        _ => HookRefusal::QueueFull,
    })?;
    let job = submit::create(scheduler, now, new, number, None);
    if !left_out.is_empty() {
        let note = Note::ResultLeftOut { why: left_out.join("; ") };
        scheduler.change(Change::Noted { job, at: now.utc, note });
    }
    Ok(job)
}

/// The parameters that the result of the triggering job gives to the job of a hook, and what of the result does not reach it.
fn params_of_result(scheduler: &Scheduler, hook: &PendingHook, rules: &SubmissionRules) -> ResultParams {
    let Some(result) = &hook.triggered_by.result else { return ResultParams::default() };
    let mut found = match results::takes_params(rules) {
        true => (scheduler.config.params_of_result)(rules, result),
        false => ResultParams::default(),
    };
    if result.len() > RESULT_VARIABLE_BYTES_MAX {
        let (bytes, max) = (result.len(), RESULT_VARIABLE_BYTES_MAX);
        found.left_out.push(format!("LONGSHORE_PARENT_RESULT would have {bytes} bytes (max {max})"));
    }
    found
}
