//! The upgrade of pauses that an older schema has.

use scheduler::pauses::PauseTarget;
use scheduler::schedule::ScheduleId;

use super::*;

/// Before that schema a pause of a definition held back its schedules only.
#[test]
fn a_definition_that_was_paused_has_its_schedules_paused_after_an_upgrade() {
    let data_dir = TestDataDir::new();
    let mut shell = data_dir.sql();
    migrate::migrate_to(&mut shell, &data_dir.file(), migrate::before("pauses"));
    shell
        .execute_batch(
            "INSERT INTO schedules (definition, schedule, cursor, fingerprint)
                 VALUES ('a', 'day', 1, 1), ('a', 'night', 1, 1), ('b', 'main', 1, 1);
             INSERT INTO pauses (definition, schedule, since) VALUES ('', '', 1), ('a', '', 2), ('a', 'night', 3), ('b', 'main', 4);",
        )
        .unwrap();
    drop(shell);

    let (mut store, _archive) = data_dir.open();
    let loaded = store.load(&mut live_jobs(|_| {})).unwrap();
    let schedule = |name: &str, id| PauseTarget::Schedule(name.into(), ScheduleId::named(id));
    let expected = [
        (PauseTarget::Schedules, Timestamp(1).into()),
        (schedule("a", "day"), Timestamp(2).into()),
        (schedule("a", "night"), Timestamp(3).into()),
        (schedule("b", "main"), Timestamp(4).into()),
    ];
    assert_eq!(loaded.schedules.paused, expected);
}
