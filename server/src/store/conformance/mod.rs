//! One suite, run against every store. A backend passes by giving the same answers as this file expects, before and after a restart.

mod desk;
mod groups;
mod lives;
mod reads;

pub(super) use groups::*;
pub(super) use lives::*;
pub(super) use reads::*;

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
            a_restart_gives_back_exactly_what_lives,
            whatever_contradicts_the_rows_is_refused_and_changes_nothing,
            the_same_end_twice_changes_nothing,
            keys_are_read_with_the_commit_that_was_seen,
            late_notes_are_kept,
            a_late_report_of_what_is_known_is_no_note,
            workers_are_kept_until_forgotten,
            bodies_and_labels_come_back,
            lists_obey_every_filter,
            pages_follow_one_another,
            the_last_end_of_a_definition_is_found,
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
