//! Pull slots: which attempt may have its image pulled, and what follows a pull.

use alloc::string::String;

use protocol::Token;
use protocol::report::{Phase, ReleaseCause};

use crate::attempt::{Attempt, Stage};
use crate::core::Worker;
use crate::pulls::Image;
use crate::step::Effect;

/// The image of a launched attempt is not here. Its slot goes to another one, and it waits for a pull slot. A worker that shuts down gives it back
/// if no pull slot is free.
pub(crate) fn on_image_missing(worker: &mut Worker, token: Token) {
    let Some(attempt) = worker.attempts.get_mut(&token) else {
        return;
    };
    if !matches!(attempt.stage, Stage::Launched) || attempt.stop.is_some() {
        return;
    }
    let Some(image) = attempt.image() else {
        return;
    };
    attempt.stage = Stage::WaitingForPullSlot;
    let position = attempt.position;
    worker.slots.release();
    worker.armed_self_fences.remove(&token);
    worker.pulls.wait(position, token, image);
    begin_pulls(worker);
    let waits = worker.attempts.get(&token).is_some_and(Attempt::is_unstarted);
    if waits && worker.shutdown_mode().is_some() {
        worker.release(token, ReleaseCause::Draining, String::new());
    }
}

/// Lets attempts pull while pull slots are free.
pub(crate) fn begin_pulls(worker: &mut Worker) {
    let attempts_per_image_max = worker.slots.count();
    while let Some(token) = worker.pulls.begin_next(attempts_per_image_max) {
        worker.arm_self_fence(token);
        if let Some(attempt) = worker.attempts.get_mut(&token) {
            attempt.stage = Stage::Pulling { percent: None, failures: 0 };
            let runtime = attempt.runtime();
            worker.effects.push(Effect::Pull { token, runtime });
            worker.notices.progress.insert(token);
        }
    }
}

/// A pull advances, or failed and is repeated.
pub(crate) fn on_progressed(worker: &mut Worker, token: Token, phase: Phase) {
    let Phase::Pulling { percent, failures } = phase else {
        return;
    };
    let percent = percent.map(|it| it.min(100));
    if let Some(attempt) = worker.attempts.get_mut(&token)
        && let Stage::Pulling { percent: known, failures: known_failures } = attempt.stage
        && (known, known_failures) != (percent, failures)
    {
        attempt.stage = Stage::Pulling { percent, failures };
        worker.notices.progress.insert(token);
    }
}

/// The image is here: the attempt waits for a slot, and its pull slot is free unless others wait for the same image.
pub(crate) fn record_pulled(worker: &mut Worker, token: Token) {
    let Some(attempt) = worker.attempts.get_mut(&token) else {
        return;
    };
    let (position, image) = (attempt.position, attempt.image());
    attempt.stage = Stage::Pulled;
    worker.pulls.set_ready(position, token);
    worker.notices.progress.insert(token);
    end_pull(worker, image);
}

/// Frees the slot or the pull slot of an attempt, or removes it from the queue in front of either.
pub(crate) fn release_slots(worker: &mut Worker, token: Token) {
    let Some(attempt) = worker.attempts.get(&token) else {
        return;
    };
    let (position, image) = (attempt.position, attempt.image());
    match attempt.stage {
        Stage::WaitingForPullSlot => worker.pulls.stop_waiting(position, token),
        Stage::Pulling { .. } => end_pull(worker, image),
        Stage::Pulled => worker.pulls.remove_ready(position, token),
        Stage::AwaitingStartAck { .. } | Stage::Launched | Stage::Prepared | Stage::Running { .. } => {
            worker.slots.release();
        }
        Stage::WaitingForDefinition { .. } | Stage::Waiting | Stage::Ended(_) => {}
    }
}

fn end_pull(worker: &mut Worker, image: Option<Image>) {
    if let Some(image) = image {
        worker.pulls.end(&image);
    }
    begin_pulls(worker);
}
