//! Random walks of inputs to a worker, in any order.

use std::time::Duration;

use longshore_worker::Input;
use longshore_worker::input::{Exit, Found, Restored, RuntimeEvent, ShutdownMode, StartFailure, Stopping};
use longshore_worker::step::Launch;
use proptest::prelude::*;
use protocol::order::{
    Cancel, Configure, GoAway, Intervals, ReconcileVerdict, Reconciled, Refused, StopCause,
};
use protocol::report::{Availability, Foreign, OutputLengths, Phase, ReleaseCause};
use protocol::{Order, ReportNo, RuntimeKind, Token, Uptime, WorkerId};

use crate::world::{assignment, definition, token, welcome};

pub(crate) const NAMES: [&str; 3] = ["plain", "ask", "fenced"];

fn any_token() -> impl Strategy<Value = Token> {
    (1..6_u64).prop_map(|job| token(job, 1))
}

fn any_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMES[..])
}

fn any_order() -> impl Strategy<Value = Order> {
    prop_oneof![
        4 => (0..9_u64).prop_map(welcome),
        4 => prop::collection::vec((any_token(), prop::sample::select(vec![ReconcileVerdict::Keep, ReconcileVerdict::Stop, ReconcileVerdict::Forget])), 0..4)
            .prop_map(|attempts| Order::Reconciled(Reconciled { attempts, last: true })),
        8 => (prop::collection::vec(any_token(), 1..4), any_name(), any::<i8>()).prop_map(|(tokens, name, priority)| {
            let assignments = tokens.into_iter().map(|token| {
                let mut it = assignment(token, name);
                it.priority = priority;
                it.time_left = (priority > 0).then_some(Duration::from_secs(5));
                it
            });
            Order::Enqueue(assignments.collect())
        }),
        4 => any_name().prop_map(|name| Order::Definitions(vec![defined(name)])),
        3 => (any_token(), prop::sample::select(vec![StopCause::Cancel, StopCause::Superseded, StopCause::Pinning]), any::<bool>())
            .prop_map(|(token, cause, soon)| Order::Cancel(Cancel { token, grace: soon.then_some(Duration::ZERO), cause })),
        2 => prop::collection::vec(any_token(), 1..4).prop_map(Order::Recall),
        4 => (0..30_u64).prop_map(|last| Order::Acknowledge(ReportNo(last))),
        2 => (0..9_u64).prop_map(Order::Pulse),
        1 => (0..4_u32, prop::bool::weighted(0.05)).prop_map(|(slots, drain)| {
            Order::Configure(Configure { slots: Some(slots), drain, intervals: Some(Intervals::default()) })
        }),
        1 => Just(Order::GoAway(GoAway { reconnect_after: Duration::from_secs(1), elsewhere: None })),
        1 => Just(Order::Refused(Refused { code: "c".into(), text: "t".into(), retry_after: Duration::MAX })),
    ]
}

pub(crate) fn defined(name: &str) -> protocol::order::Definition {
    definition(name, |spec| {
        spec.image = name.into();
        spec.ask_before_start = name == "ask";
        spec.self_fence = (name == "fenced").then_some(Duration::from_secs(25));
    })
}

fn any_exit() -> impl Strategy<Value = Exit> {
    prop_oneof![
        (any::<i32>(), any::<bool>()).prop_map(|(code, oom)| Exit::Ran {
            code,
            oom,
            run_time: Duration::from_secs(1),
            result: Default::default(),
        }),
        Just(Exit::NotStarted { fault: StartFailure::Pull, code: None, message: "m".into() }),
        Just(Exit::Vanished),
    ]
}

fn any_event() -> impl Strategy<Value = RuntimeEvent> {
    prop_oneof![
        (any_token(), any::<u8>(), any::<u32>()).prop_map(|(token, percent, failures)| {
            RuntimeEvent::Progressed(token, Phase::Pulling { percent: Some(percent), failures })
        }),
        any_token().prop_map(RuntimeEvent::ImageMissing),
        any_token().prop_map(RuntimeEvent::Prepared),
        (any_token(), any::<u64>()).prop_map(|(token, at)| RuntimeEvent::Started {
            token,
            container: "c".into(),
            at: Uptime(at)
        }),
        (any_token(), any_exit(), any::<u64>(), 0..2_u64).prop_map(|(token, exit, at, stdout)| {
            RuntimeEvent::Ended {
                token,
                exit,
                output: OutputLengths { stdout, stderr: 0 },
                usage: Default::default(),
                at: protocol::Uptime(at),
            }
        }),
        any_token().prop_map(RuntimeEvent::Overdue),
        any_token().prop_map(|token| RuntimeEvent::Refused {
            token,
            cause: ReleaseCause::Policy,
            why: String::new()
        }),
        (any_token(), any_name(), any::<u64>()).prop_map(|(token, name, at)| RuntimeEvent::Surveyed {
            attempts: vec![found(token, name, at)],
            foreign: Vec::new(),
        }),
        prop::collection::vec(any_token(), 0..3).prop_map(|tokens| {
            let foreign = |token| Foreign { worker: WorkerId(9), token };
            RuntimeEvent::Foreign(tokens.into_iter().map(foreign).collect())
        }),
        any::<bool>().prop_map(|up| {
            let availability =
                if up { Availability::Available } else { Availability::Unavailable("down".into()) };
            RuntimeEvent::Availability(RuntimeKind::Docker, availability)
        }),
    ]
}

fn found(token: Token, name: &str, at: u64) -> Restored {
    let definition = defined(name);
    let launch = Launch {
        token,
        revision: definition.revision,
        name: name.into(),
        spec: definition.container.into(),
        overrides: None,
        time_left: None,
        secrets: Default::default(),
    };
    let found = match at % 3 {
        0 => Found::Unknown,
        1 => Found::Unstarted,
        _ => Found::Running { container: "c".into(), at: protocol::Uptime(at) },
    };
    let stopping =
        at.is_multiple_of(2).then_some(Stopping { cause: StopCause::Cancel, at: Uptime(at.rotate_left(1)) });
    Restored { launch, stopping, found }
}

pub(crate) fn any_input() -> impl Strategy<Value = Input> {
    prop_oneof![
        2 => Just(Input::Connected),
        1 => Just(Input::Disconnected),
        1 => Just(Input::MessageRefused),
        12 => any_order().prop_map(Input::Ordered),
        8 => any_event().prop_map(Input::Happened),
        2 => any_token().prop_map(Input::OutputDone),
        1 => any::<bool>().prop_map(Input::DiskIsLow),
        1 => any::<bool>().prop_map(|is_full| Input::StorageFault(is_full.then(|| "no space".into()))),
        1 => prop::sample::select(vec![ShutdownMode::Drain, ShutdownMode::Interrupt, ShutdownMode::Detach]).prop_map(Input::Shutdown),
        2 => Just(Input::Tick),
    ]
}
