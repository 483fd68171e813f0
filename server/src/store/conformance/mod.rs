//! One suite, run against every store. A backend passes by giving the same answers as this file expects, before and after a restart.

mod batches;
mod definition_removal;
mod dependencies;
mod failures;
mod groups;
pub(super) mod harness;
mod hooks;
mod last_end;
mod limits;
mod live_batches;
mod lives;
mod narrowings;
mod origins;
mod pending_batch;
mod reads;
mod removal;
mod run_on;
mod schedules;
mod unique;
mod unique_batches;
mod usage;

pub(super) use batches::*;
pub(super) use definition_removal::*;
pub(super) use dependencies::*;
pub(super) use failures::*;
pub(super) use groups::*;
pub(super) use hooks::*;
pub(super) use last_end::*;
pub(super) use limits::*;
pub(super) use live_batches::*;
pub(super) use lives::*;
pub(super) use narrowings::*;
pub(super) use origins::*;
pub(super) use pending_batch::*;
pub(super) use reads::*;
pub(super) use removal::*;
pub(super) use run_on::*;
pub(super) use schedules::*;
pub(super) use unique::*;
pub(super) use unique_batches::*;
pub(super) use usage::*;

use super::{Archive, Store};

/// Something that has a store which can be closed and opened again.
pub(super) trait Backend {
    fn open(&mut self) -> (Box<dyn Store>, Box<dyn Archive>);
}

/// Makes one test per story.
macro_rules! conforms {
    ($backend:expr) => {
        crate::store::conformance::conforms! {$backend;
            a_fresh_store_is_empty_and_keeps_its_installation,
            a_group_that_was_committed_is_left_alone,
            an_older_epoch_is_fenced,
            a_job_lives_from_change_to_change,
            a_whole_life_in_one_group_is_the_same,
            budgets_are_counted_by_outcome,
            a_successor_keeps_the_attempt_before_it,
            each_attempt_keeps_what_it_has_used,
            a_cancel_is_recorded_whatever_stops_the_job_already,
            a_freed_job_is_queued_with_a_fresh_budget,
            a_waiting_job_keeps_its_new_start_and_priority,
            a_deadline_is_kept_until_it_is_lifted,
            a_restart_gives_back_exactly_what_lives,
            a_restart_knows_the_first_requester_of_a_cancel,
            where_a_job_was_last_is_not_where_it_is_or_was_given_back,
            whatever_contradicts_the_rows_is_refused_and_changes_nothing,
            the_same_end_twice_changes_nothing,
            a_batch_is_hidden_until_its_last_member_is_made,
            what_was_made_of_a_batch_is_gone_after_a_restart,
            members_are_made_once_and_where_numbers_were_set_aside,
            a_member_lives_like_any_other_job,
            a_batch_counts_its_members_whatever_becomes_of_them,
            neighbours_of_a_batch_are_not_counted_with_it,
            failures_of_a_batch_are_counted_by_their_last_outcome,
            a_batch_ends_with_its_last_member_only,
            a_cancelled_batch_is_known_after_a_start,
            a_batch_has_its_unique_key_until_it_ends_or_is_replaced,
            changed_limits_of_a_batch_are_known_after_a_start,
            the_first_waiting_members_of_a_batch_are_found,
            a_batch_is_kept_as_long_as_its_last_member,
            batches_are_listed_by_name_and_state,
            a_batch_names_the_definitions_at_its_ends,
            batches_are_found_by_their_requester_and_by_labels,
            a_batch_and_its_retry_name_each_other,
            a_hidden_batch_is_not_shown_and_goes_with_its_members,
            a_cancel_is_confirmed_once_by_its_own_worker,
            every_lost_attempt_is_in_doubt_until_its_worker_says_that_it_is_gone,
            keys_are_read_with_the_commit_that_was_seen,
            late_notes_are_kept,
            a_late_report_of_a_known_state_adds_no_note,
            workers_are_kept_until_forgotten,
            an_attempt_is_known_by_its_worker,
            bodies_and_labels_come_back,
            parameters_come_back,
            lists_obey_every_filter,
            pages_follow_one_another,
            live_jobs_are_found_by_label_among_many_ended_ones,
            the_last_end_of_a_definition_is_found,
            revisions_of_a_name_are_found_newest_first,
            unknown_attempts_differ_from_assigned_ones,
            what_ended_long_ago_goes_with_all_that_belongs_to_it,
            what_has_not_ended_is_never_removed,
            of_too_many_ended_jobs_the_earliest_ends_go_first,
            a_numbers_end_is_not_its_beginning_again,
            removal_goes_in_steps_and_says_when_it_is_done,
            keys_and_late_reports_have_an_age_of_their_own,
            the_time_that_retention_goes_by_is_kept,
            an_older_epoch_removes_nothing,
            lists_go_on_where_jobs_were_removed,
            keys_of_limits_live_as_long_as_their_job,
            the_workers_that_a_job_asks_for_are_kept_with_it,
            a_job_names_its_requester_as_long_as_it_is_kept,
            a_batch_has_the_requester_of_its_members,
            a_name_is_forgotten_with_the_last_block_that_has_it,
            a_retry_and_the_jobs_of_hooks_are_told_the_slot,
            rates_are_kept_until_they_have_recovered,
            unique_keys_are_kept_until_they_are_freed,
            an_ended_job_is_not_removed_while_it_keeps_its_key,
            parents_come_back_with_their_members,
            a_parent_ends_without_an_attempt_and_keeps_its_counts,
            members_of_a_parent_that_lives_are_kept_and_go_with_it,
            a_definition_keeps_its_newest_jobs_only,
            a_definition_keeps_its_jobs_for_its_own_time,
            bad_ends_have_an_age_of_their_own,
            the_newest_jobs_are_those_that_ended_last_in_all_blocks,
            removal_by_definition_goes_in_steps_and_outlives_restarts,
            jobs_that_something_refers_to_are_held,
            a_parent_with_its_members_counts_once,
            output_has_an_age_of_its_own,
            dependencies_outlive_a_restart_until_they_are_decided,
            a_start_knows_which_predecessors_were_skipped,
            a_job_is_told_how_its_predecessors_ended,
            a_job_keeps_the_parameters_that_it_took_from_results,
            a_pipeline_is_found_from_each_of_its_jobs,
            a_job_waits_for_a_whole_batch_over_restarts,
            dependencies_go_with_the_job_that_waited,
            a_batch_whose_other_members_were_skipped_succeeds,
            schedules_and_pauses_outlive_a_restart,
            jobs_of_schedules_are_known_until_they_have_ended,
            expectations_outlive_a_restart,
            a_slot_is_decided_once,
            a_slot_becomes_one_job_by_a_backfill,
            a_hook_is_decided_once_and_shown_on_both_of_its_jobs,
            a_restart_knows_the_depth_of_hooks_and_the_first_start,
            a_hook_is_kept_as_long_as_one_of_its_jobs,
            a_removed_schedule_is_forgotten_with_the_last_row_of_its_ledger,
            the_ledger_goes_by_age_and_keeps_rows_of_kept_jobs,
            of_very_many_late_reports_the_first_and_the_last_are_kept,
            a_failure_is_unresolved_until_it_is_retried,
            a_failure_is_unresolved_until_it_is_acknowledged,
            failures_are_forgotten_with_their_jobs,
            jobs_in_backoff_are_told_from_delayed_ones,
            a_parent_stands_for_its_failed_members,
            a_retry_resolves_nothing_before_its_batch_is_made,
        }
    };
    ($backend:expr; $($story:ident,)*) => {$(
        #[test]
        fn $story() {
            crate::store::conformance::$story(&mut $backend);
        }
    )*};
}
pub(super) use conforms;
