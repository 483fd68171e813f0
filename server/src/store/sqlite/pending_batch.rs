//! Large batches whose members are still being made: ranges of numbers in which nobody may look.

use rusqlite::{Connection, TransactionBehavior};

use crate::clock;

/// The numbers of a batch's members: the first and the last.
pub(super) type Range = (i64, i64);

/// The batches that are being made, in the order of their numbers.
pub(super) fn ranges(connection: &Connection) -> rusqlite::Result<Vec<Range>> {
    let mut statement = connection.prepare_cached("SELECT first, last FROM forming ORDER BY first")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// True if one of the ranges has this number.
pub(super) fn contain(ranges: &[Range], job: i64) -> bool {
    ranges.iter().any(|(first, last)| (*first..=*last).contains(&job))
}

/// Subtracts the hidden ranges, which are in order, from a range. The highest part comes first.
pub(super) fn without(hidden: &[Range], (lowest, mut highest): Range) -> Vec<Range> {
    let mut left = Vec::with_capacity(1 + hidden.len());
    for (first, last) in hidden.iter().rev() {
        left.push((lowest.max(last + 1), highest));
        highest = highest.min(first - 1);
    }
    left.push((lowest, highest));
    left.retain(|(lowest, highest)| lowest <= highest);
    left
}

/// Removes what a crash has left of batches that were never made, and returns how many members that were. Numbers that were
/// reserved for them are not given again, and are written down as left out.
pub(super) fn remove_unfinished(connection: &mut Connection) -> rusqlite::Result<usize> {
    let mut removed = 0;
    for (first, last) in ranges(connection)? {
        let mut from = first;
        while from <= last {
            let to = last.min(from + MEMBERS_PER_STEP - 1);
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute(include_str!("queries/unlabel.sql"), (from, to))?;
            transaction.execute("DELETE FROM details WHERE job BETWEEN ?1 AND ?2", (from, to))?;
            transaction.execute("DELETE FROM carried_slots WHERE job BETWEEN ?1 AND ?2", (from, to))?;
            transaction.execute("DELETE FROM told_positions WHERE job BETWEEN ?1 AND ?2", (from, to))?;
            transaction.execute("DELETE FROM expiries WHERE job BETWEEN ?1 AND ?2", (from, to))?;
            transaction.execute("DELETE FROM dependencies WHERE job BETWEEN ?1 AND ?2", (from, to))?;
            transaction.execute("DELETE FROM parents WHERE job BETWEEN ?1 AND ?2", (from, to))?;
            removed += transaction.execute("DELETE FROM jobs WHERE id BETWEEN ?1 AND ?2", (from, to))?;
            transaction.commit()?;
            from = to + 1;
        }
        // Last of all: whatever stops us before it, the next start goes on.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute("DELETE FROM forming WHERE first = ?1", [first])?;
        transaction.execute("DELETE FROM batches WHERE id = ?1", [first])?;
        transaction.execute(
            "INSERT INTO gaps (after, until, at, epoch) SELECT ?1, ?2, ?3, epoch FROM installation",
            (first - 1, last, clock::now().utc.0),
        )?;
        transaction.commit()?;
    }
    Ok(removed)
}

/// The most members that are removed in one transaction. It bounds the log: some ten megabytes, if each is as large as it may be on average.
const MEMBERS_PER_STEP: i64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_ranges_are_subtracted_from_the_top() {
        let hidden = [(10, 19), (30, 39)];
        assert_eq!(without(&[], (1, 50)), [(1, 50)]);
        assert_eq!(without(&hidden, (1, i64::MAX)), [(40, i64::MAX), (20, 29), (1, 9)]);
        assert_eq!(without(&hidden, (15, 35)), [(20, 29)]);
        assert_eq!(without(&hidden, (12, 18)), []);
        assert_eq!(without(&hidden, (21, 22)), [(21, 22)]);
        assert_eq!(without(&hidden, (1, 5)), [(1, 5)]);
        assert_eq!(without(&hidden, (40, 41)), [(40, 41)]);
        assert_eq!(without(&[(10, 19), (20, 29)], (1, 40)), [(30, 40), (1, 9)]);
    }
}
