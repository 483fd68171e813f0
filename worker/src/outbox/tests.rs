//! Frames and report numbers.

use alloc::string::ToString;

use protocol::wire::{decode_report, pack_report};

use super::*;

fn token(job: u64) -> Token {
    Token { job: protocol::JobId(job), ..Token::default() }
}

fn frames(outbox: &mut Outbox) -> Vec<Report> {
    let mut frames = Vec::new();
    outbox.send_unsent(Uptime(0), |report| frames.push(report));
    frames
}

#[test]
fn what_is_not_acknowledged_counts_packed_or_not() {
    let mut outbox = Outbox::default();
    let success = ExitVerdict::Success { run_time: Duration::ZERO, result: None, note: None };
    let failure = crate::classify::unstarted(protocol::order::StopCause::Cancel);
    outbox.starting(token(1));
    outbox.released(token(2), ReleaseCause::Full, String::new());
    outbox.ended(token(3), failure, EndFacts::default());
    outbox.ended(token(4), success, EndFacts::default());
    assert_eq!(outbox.len(), 4);
    outbox.pack(core::iter::empty());
    outbox.starting(token(5));
    assert_eq!(outbox.len(), 5);
}

#[test]
fn a_batch_is_one_frame_per_kind_with_consecutive_numbers() {
    let mut outbox = Outbox::default();
    for job in 1..=3 {
        outbox.released(token(job), ReleaseCause::Full, String::new());
        outbox.starting(token(job + 10));
    }
    outbox.pack(core::iter::empty());

    let said = frames(&mut outbox);

    assert!(matches!(&said[..], [Report::Released(a), Report::Starting(b)]
        if a.first == ReportNo(1) && a.list.len() == 3 && b.first == ReportNo(4) && b.list.len() == 3));
    assert!(frames(&mut outbox).is_empty(), "nothing is said twice in a connection");
}

#[test]
fn unacknowledged_reports_keep_their_numbers_on_reconnect() {
    let mut outbox = Outbox::default();
    (1..=4).for_each(|job| outbox.starting(token(job)));
    outbox.pack(core::iter::empty());
    frames(&mut outbox);
    outbox.acknowledge(ReportNo(1), |_| ());

    outbox.resume(ReportNo(2), |_| ());

    assert!(
        matches!(&frames(&mut outbox)[..], [Report::Starting(it)] if it.first == ReportNo(3) && it.list == [token(3), token(4)])
    );
}

#[test]
fn a_restored_worker_renumbers_reports_above_the_servers_position() {
    let mut outbox = Outbox::default();
    (1..=3).for_each(|job| outbox.starting(token(job)));
    outbox.pack(core::iter::empty());
    frames(&mut outbox);
    outbox.acknowledge(ReportNo(2), |_| ());
    outbox.starting(token(4));
    outbox.pack(core::iter::empty());

    outbox.resume(ReportNo(9), |_| panic!("the server cannot know it"));

    assert!(
        matches!(&frames(&mut outbox)[..], [Report::Starting(it)] if it.first == ReportNo(10) && it.list == [token(3), token(4)])
    );
    let mut known = 0;
    outbox.acknowledge(ReportNo(11), |_| known += 1);
    assert_eq!((known, outbox.len()), (2, 0));
}

#[test]
fn acknowledgement_of_an_unsent_report_is_ignored() {
    let mut outbox = Outbox::default();
    outbox.starting(token(1));
    outbox.pack(core::iter::empty());

    outbox.acknowledge(ReportNo(5), |_| panic!("it was not said"));
    outbox.resume(ReportNo(u64::MAX), |_| panic!("it was not said"));

    assert!(matches!(&frames(&mut outbox)[..], [Report::Starting(it)] if it.first == ReportNo(1)));
}

#[test]
fn a_position_that_no_report_can_have_acknowledges_nothing() {
    let mut outbox = Outbox::default();
    outbox.starting(token(1));
    outbox.pack(core::iter::empty());
    frames(&mut outbox);

    outbox.resume(ReportNo(u64::MAX), |_| panic!("the server cannot know it"));

    assert!(matches!(&frames(&mut outbox)[..], [Report::Starting(it)] if it.first == ReportNo(1)));
}

#[test]
fn an_acknowledgement_beyond_the_last_number_does_no_harm() {
    let mut outbox = Outbox::default();
    outbox.starting(token(1));
    outbox.pack(core::iter::empty());
    frames(&mut outbox);
    outbox.acknowledge(ReportNo(u64::MAX), |_| ());
    outbox.starting(token(2));
    outbox.pack(core::iter::empty());

    assert!(matches!(&frames(&mut outbox)[..], [Report::Starting(it)] if it.first == ReportNo(2)));
}

#[test]
fn runtime_values_are_clamped_to_wire_limits() {
    let mut outbox = Outbox::default();
    let output = OutputLengths { stdout: u64::MAX, stderr: u64::MAX };
    let usage = Usage { cpu_ms: Some(u64::MAX), disk_read_bytes: Some(u64::MAX), ..Usage::default() };
    let facts = EndFacts { output, usage, at: Uptime(0) };
    let run_time = Duration::MAX;
    let success = ExitVerdict::Success { run_time, result: None, note: Some("x".repeat(10_000)) };
    outbox.ended(token(1), success, facts);
    let failure = ExitVerdict::Failure {
        outcome: Outcome::Failed,
        exit_code: Some(1),
        message: "why".to_string(),
        run_time: Some(run_time),
    };
    outbox.ended(token(2), failure, facts);
    let container = "x".repeat(2 << 20);
    outbox.pack(core::iter::once(Entry::Running { token: token(3), container, at: Uptime(0) }));

    let (mut reports, mut frames) = (Vec::new(), Vec::new());
    outbox.send_unsent(Uptime(u64::MAX), |report| reports.push(report));
    for report in &reports {
        pack_report(report, &mut frames).expect("it fits");
    }

    assert_eq!(frames.len(), 3);
    assert!(frames.iter().all(|frame| matches!(decode_report(frame), Ok(Some(_)))));
}

#[test]
fn long_lists_and_long_results_are_split() {
    let mut outbox = Outbox::default();
    (0..2_500).for_each(|job| outbox.starting(token(job)));
    outbox.pack(core::iter::empty());
    assert_eq!(frames(&mut outbox).len(), 3);

    for job in 0..4 {
        let verdict =
            ExitVerdict::Success { run_time: Duration::ZERO, result: Some("x".repeat(60_000)), note: None };
        outbox.ended(token(job), verdict, EndFacts::default());
    }
    outbox.pack(core::iter::empty());
    assert_eq!(frames(&mut outbox).len(), 2);
}

/// Returns the reports that are sent on a new connection to a server that has taken those up to `taken`.
fn reconnected(outbox: &mut Outbox, taken: u64) -> Vec<Report> {
    outbox.resume(ReportNo(taken), |_| ());
    frames(outbox)
}

fn ended(outbox: &mut Outbox, job: u64) {
    let (result, note) = (Some("{".to_string()), None);
    let facts = EndFacts { output: LENGTHS, ..EndFacts::default() };
    outbox.ended(token(job), ExitVerdict::Success { run_time: Duration::ZERO, result, note }, facts);
}

const LENGTHS: OutputLengths = OutputLengths { stdout: 7, stderr: 0 };

#[test]
fn a_report_that_is_refused_three_times_is_said_in_its_minimal_form() {
    let mut outbox = Outbox::default();
    ended(&mut outbox, 1);
    outbox.pack(core::iter::empty());
    let whole = frames(&mut outbox);
    for _ in 0..2 {
        outbox.message_refused();
        assert_eq!(reconnected(&mut outbox, 0), whole);
    }
    outbox.message_refused();
    let said = reconnected(&mut outbox, 0);
    let [Report::Success(reduced)] = &said[..] else { panic!("{said:?}") };
    let entry = &reduced.list[0];
    assert_eq!((reduced.first, entry.token, entry.result.as_deref()), (ReportNo(1), token(1), None));
    assert_eq!(entry.output, OutputLengths::default());
    assert!(entry.note.as_ref().is_some_and(|note| note.contains("refused")), "{entry:?}");
}

#[test]
fn only_the_refused_one_of_many_reports_loses_its_details() {
    let mut outbox = Outbox::default();
    (1..=3).for_each(|job| ended(&mut outbox, job));
    outbox.pack(core::iter::empty());
    // One frame with all three, of which the server can take none.
    assert_eq!(frames(&mut outbox).len(), 1);
    outbox.message_refused();
    // Alone, the first is taken; the second is refused three times.
    assert_eq!(reconnected(&mut outbox, 0).len(), 3);
    outbox.acknowledge(ReportNo(1), |_| ());
    for _ in 0..3 {
        outbox.message_refused();
        reconnected(&mut outbox, 1);
    }
    let details: Vec<bool> = reconnected(&mut outbox, 1)
        .iter()
        .map(|report| matches!(report, Report::Success(it) if it.list[0].result.is_some()))
        .collect();
    assert_eq!(details, [false, true]);
    outbox.acknowledge(ReportNo(3), |_| ());
    assert!(outbox.is_empty());
}

#[test]
fn a_refusal_before_anything_was_said_is_no_fault_of_the_reports() {
    let mut outbox = Outbox::default();
    ended(&mut outbox, 1);
    outbox.pack(core::iter::empty());
    (0..5).for_each(|_| outbox.message_refused());
    let said = frames(&mut outbox);
    assert!(matches!(&said[..], [Report::Success(it)] if it.list[0].result.is_some()), "{said:?}");
}

#[test]
fn an_end_tells_what_was_used_and_its_minimal_form_does_not() {
    let usage = Usage { cpu_ms: Some(7), ..Usage::default() };
    let facts = EndFacts { usage, ..EndFacts::default() };
    let mut outbox = Outbox::default();
    outbox.ended(
        token(1),
        ExitVerdict::Success { run_time: Duration::ZERO, result: None, note: None },
        facts,
    );
    outbox.ended(token(2), crate::classify::unstarted(protocol::order::StopCause::Cancel), facts);
    outbox.pack(core::iter::empty());
    let told = |frames: &[Report]| match frames {
        [Report::Success(good), Report::Failure(bad)] => [good.list[0].usage, bad.list[0].usage],
        other => panic!("{other:?}"),
    };
    assert_eq!(told(&frames(&mut outbox)), [usage, usage]);
    outbox.kept.iter_mut().for_each(Entry::reduce);
    assert_eq!(told(&reconnected(&mut outbox, 0)), [Usage::default(); 2]);
}
