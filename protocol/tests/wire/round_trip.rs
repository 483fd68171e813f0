//! `decode(encode(m)) == m`, for one frame and for lists that need several.

use longshore_protocol::report::{Numbered, Report};
use longshore_protocol::{Order, wire};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use crate::strategies;

proptest! {
    #[test]
    fn every_order_comes_back_as_it_was(order in strategies::order()) {
        let frame = wire::encode_order(&order).unwrap();
        prop_assert_eq!(wire::decode_order(&frame), Ok(Some(order)));
    }

    #[test]
    fn every_report_comes_back_as_it_was(report in strategies::report()) {
        let frame = wire::encode_report(&report).unwrap();
        prop_assert_eq!(wire::decode_report(&frame), Ok(Some(report)));
    }

    #[test]
    fn what_is_cut_short_is_an_error_and_no_other_message(report in strategies::report(), cut in 0.0..1.0_f64) {
        let frame = wire::encode_report(&report).unwrap();
        let kept = (frame.len() as f64 * cut) as usize;
        prop_assert!(wire::decode_report(&frame[..kept]).is_err());
    }
}

#[test]
fn lists_of_any_length_are_packed_into_frames_that_the_peer_takes() {
    let order = strategies::order()
        .prop_filter("a list", |it| matches!(it, Order::Enqueue(list) if !list.is_empty()));
    let report = strategies::report()
        .prop_filter("a list", |it| matches!(it, Report::Success(it) if !it.list.is_empty()));
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let Order::Enqueue(assignments) = drawn(&order, &mut runner) else { unreachable!() };
    let Report::Success(successes) = drawn(&report, &mut runner) else { unreachable!() };

    for count in
        [0, 1, wire::ENTRIES_MAX - 1, wire::ENTRIES_MAX, wire::ENTRIES_MAX + 1, 3 * wire::ENTRIES_MAX]
    {
        let list: Vec<_> = assignments.iter().cycle().take(count).cloned().collect();
        let mut frames = Vec::new();
        wire::pack_order(&Order::Enqueue(list.clone()), &mut frames).unwrap();
        let unpacked = frames.iter().flat_map(|frame| match wire::decode_order(frame) {
            Ok(Some(Order::Enqueue(part))) => part,
            other => panic!("{other:?}"),
        });
        assert!(unpacked.eq(list));

        let list: Vec<_> = successes.list.iter().cycle().take(count).cloned().collect();
        let mut frames = Vec::new();
        let whole = Report::Success(Numbered { first: successes.first, list: list.clone() });
        wire::pack_report(&whole, &mut frames).unwrap();
        let mut next = successes.first;
        for frame in &frames {
            let Ok(Some(Report::Success(part))) = wire::decode_report(frame) else { panic!("{frame:?}") };
            assert_eq!(part.first, next);
            let from = usize::try_from(next.0 - successes.first.0).unwrap();
            assert_eq!(part.list, list[from..from + part.list.len()]);
            next = part.last().next();
        }
        assert_eq!(next.0 - successes.first.0, count as u64);
    }
}

fn drawn<S: Strategy>(strategy: &S, runner: &mut proptest::test_runner::TestRunner) -> S::Value {
    strategy.new_tree(runner).unwrap().current()
}
