//! The decisions of a worker as text.

use std::fmt::Write as _;

use longshore_worker::Effect;
use longshore_worker::step::StopStep;
use protocol::order::phase_name;
use protocol::report::{Foreign, Numbered, Phase};
use protocol::{Report, Token};

use crate::world::START;

pub(crate) fn effect(effect: &Effect) -> String {
    match effect {
        Effect::Send(it) => format!("say {}", report(it)),
        Effect::Contact(at) => format!("keep the last contact of {:?}", at.since(START)),
        Effect::Start(launch) => {
            let memory = launch.spec.resources.memory_bytes;
            let memory = memory.map(|bytes| format!(" memory={}m", bytes >> 20)).unwrap_or_default();
            let gpus = launch.spec.environment.iter().filter(|(name, _)| name == "LONGSHORE_GPUS");
            let gpus: String = gpus.map(|(_, ids)| format!(" gpus={ids}")).collect();
            format!("start {} {}{memory}{gpus}", launch.token, launch.name)
        }
        Effect::Pull { token, .. } => format!("pull for {token}"),
        Effect::Run { token, .. } => format!("run {token}"),
        Effect::Stop { token, cause, step, .. } => match step {
            StopStep::Ask { grace } => format!("ask {token} to stop ({}), grace {grace:?}", cause.name()),
            StopStep::Kill => format!("kill {token}"),
            StopStep::Remove => format!("remove {token} by force"),
        },
        Effect::Forget { token, give_up_output, .. } => {
            format!("forget {token}{}", if *give_up_output { ", giving up its output" } else { "" })
        }
        Effect::RemoveForeign(token) => format!("remove foreign {token}"),
        Effect::Probe { like, why } => format!("probe {} like {}: {why}", like.runtime, like.image),
        Effect::Joined { cluster, worker } => format!("joined {cluster} as {worker}"),
        Effect::Reconnect { after, reason, .. } => format!("reconnect after {after:?}: {reason}"),
        Effect::Exit => "exit".into(),
    }
}

fn report(report: &Report) -> String {
    match report {
        Report::Hello(hello) => format!("hello {} slots {}", hello.name, hello.slots),
        Report::Running(list) => numbered("running", list, |it| format!("{} {:?} ago", it.token, it.ago)),
        Report::Success(list) => numbered("success", list, |it| {
            let note = it.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
            format!("{} {:?} ago{note}", it.token, it.timing.ended_ago)
        }),
        Report::Failure(list) => numbered("failure", list, |it| {
            format!("{} {} ({}) {:?} ago", it.token, it.outcome.name(), it.message, it.timing.ended_ago)
        }),
        Report::Released(list) => numbered("released", list, |it| {
            let why = if it.why.is_empty() { String::new() } else { format!(" ({})", it.why) };
            format!("{} {}{why}", it.token, it.cause.name())
        }),
        Report::Starting(list) => numbered("starting", list, ToString::to_string),
        Report::Inventory(it) => {
            let silent = it.runtimes.iter().filter(|(_, it)| !it.is_available());
            let silent: String = silent.map(|(it, _)| format!(", {} is silent", it.name())).collect();
            let foreign = if it.foreign.is_empty() {
                String::new()
            } else {
                format!(", foreign [{}]", foreign(&it.foreign))
            };
            format!("inventory [{}]{silent}{foreign}", phases(&it.attempts))
        }
        Report::Heartbeat(it) => format!("heartbeat {} busy {} queued {}", it.number, it.busy, it.queued),
        Report::Progress(list) => format!("progress [{}]", phases(list)),
        Report::Status(list) => format!("status [{}]", phases(list)),
        Report::Condition(it) => {
            let up: Vec<_> =
                it.runtimes.iter().filter(|(_, it)| it.is_available()).map(|(it, _)| it.name()).collect();
            format!("condition slots {} draining {} up {up:?}", it.slots, it.draining)
        }
        Report::Wanted(list) => format!("wanted {}", list.len()),
        Report::Usage(list) => format!("usage [{}]", list.len()),
        Report::Foreign(list) => format!("foreign [{}]", foreign(list)),
        Report::Output(_) => "output".into(),
    }
}

fn numbered<T>(name: &str, list: &Numbered<T>, one: impl Fn(&T) -> String) -> String {
    let mut text = format!("{name} from {}:", list.first);
    for (index, entry) in list.list.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(text, "{comma} {}", one(entry));
    }
    text
}

fn foreign(list: &[Foreign]) -> String {
    list.iter().map(|it| format!("{} of {}", it.token, it.worker)).collect::<Vec<_>>().join(" ")
}

fn phases(list: &[(Token, Phase)]) -> String {
    list.iter().map(|(token, it)| format!("{token}:{}", phase(*it))).collect::<Vec<_>>().join(" ")
}

fn phase(phase: Phase) -> String {
    let name = phase_name(phase);
    match phase {
        Phase::Pulling { percent, failures } => {
            let percent = percent.map_or(String::new(), |it| format!(" {it}%"));
            let failures = if failures > 0 { format!(" failures={failures}") } else { String::new() };
            format!("{name}{percent}{failures}")
        }
        _ => name.into(),
    }
}
