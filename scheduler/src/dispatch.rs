//! [`Scheduler::step`] calls the handler of each input, one line each, and then what follows in every step.

use core::mem;

use protocol::{JobId, Now};

use crate::core::Scheduler;
use crate::explain::pending;
use crate::handlers;
use crate::input::Input;
use crate::placement::{fill, recall, recall_for_slot, set_aside};
use crate::reconcile;
use crate::state::State;
use crate::step::{Answer, Change, Effect, Step};

impl Scheduler {
    /// Applies one input. The caller commits the changes and then performs the effects, in order.
    pub fn step(&mut self, now: Now, input: Input) -> Step {
        handlers::detect_suspension(self, now);
        handlers::pause::end_due(self, now);
        match input {
            Input::ReplaceDefinitions(definitions) => handlers::define(self, now, definitions),
            Input::AddDefinition(definition) => {
                self.add_definition(definition);
                self.changed = true;
            }
            Input::Submit(request) => handlers::submit(self, now, request),
            Input::Cancel(request) => handlers::cancel(self, now, request),
            Input::CancelBatch(request) => handlers::batch::cancel_batch(self, now, request),
            Input::ChangeBatch(request) => handlers::batch_update::change(self, now, request),
            Input::Release(request) => handlers::release(self, now, request),
            Input::Update(request) => handlers::update(self, now, request),
            Input::Connected(hello) => handlers::connect(self, now, hello),
            Input::Disconnected(session) => handlers::disconnect(self, now, session),
            Input::Reported(session, report) => handlers::report(self, now, session, report),
            Input::UnknownAttempts(session, tokens) => {
                reconcile::unknown_attempts::record_announced(self, session, &tokens)
            }
            Input::AttemptsNotOwned(session, tokens) => {
                reconcile::late_reports::record_not_owned(self, session, &tokens)
            }
            Input::SessionsActive(frames) => handlers::record_frames(self, &frames),
            Input::Unsent(session, tokens) => handlers::return_unsent(self, now, session, &tokens),
            Input::Operate(ticket, worker, operation) => {
                handlers::operate(self, now, ticket, worker, operation)
            }
            Input::ReserveLabels(ticket, names) => handlers::reserve_labels(self, ticket, &names),
            Input::Pause(request) => handlers::pause::pause(self, now, request),
            Input::MissingSecrets(revisions) => handlers::missing_secrets::replace(self, revisions),
            Input::Backfill(request) => handlers::backfill::backfill(self, now, request),
            Input::Tick => handlers::tick(self, now),
        }
        handlers::batch::cancel_stopped(self, now);
        handlers::run_on::proceed(self, now);
        handlers::dependency::pass_on(self, now);
        handlers::hook::make_pending(self, now);
        set_aside::open_again(self, now);
        fill::fill_slots(self, now);
        if !self.pending_hooks.is_empty() {
            // Members of stopped batches have ended in their lanes. Their hooks belong to this step, so that they are committed with the ends;
            // the jobs are placed in the next one.
            handlers::hook::make_pending(self, now);
            self.has_more_to_place = true;
        }
        set_aside::review(self, now);
        recall::recall_for_higher(self, now);
        recall_for_slot::recall_for_slot(self, now);
        recall::recall_idle(self, now);
        self.flush_replies();
        mem::take(&mut self.out)
    }

    /// The state of a parent that has ended in the step in which it was made: there is no worker for it.
    fn end_of_new_parent(&self, job: JobId) -> Option<State> {
        if self.jobs.contains_key(&job) {
            return None;
        }
        let changes = &self.out.changes;
        let is_parent = changes.iter().any(|change| matches!(change, Change::Parent(row) if row.job == job));
        let mut ended = changes.iter().rev().filter(|_| is_parent);
        ended.find_map(|change| match change {
            Change::Ended(ended) if ended.job == job => Some(ended.state),
            _ => None,
        })
    }

    /// Sends grants and answers that had to wait for the end of the step.
    fn flush_replies(&mut self) {
        let grants = mem::take(&mut self.grants).into_iter().filter(|(_, grants)| !grants.is_empty());
        for (session, grants) in grants {
            self.effect(Effect::Enqueue(session, grants));
        }
        if !self.accepted.is_empty() {
            self.fleet.regroup();
        }
        for (ticket, mut accepted) in mem::take(&mut self.accepted) {
            (accepted.state, accepted.pending) =
                pending::state_and_reason(self, accepted.first, pending::why_waiting);
            if let Some(state) = self.end_of_new_parent(accepted.first) {
                accepted.state = state;
            }
            self.reply(ticket, Answer::Accepted(accepted));
        }
    }
}
