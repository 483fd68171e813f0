//! The key `hooks`, and the check of all hooks of a file: the jobs that they name are there, no chain of them is a loop, and none is too long.
//!
//! A hostile file can have a chain of 40,000 jobs, so the check walks without recursion.

use std::collections::BTreeSet;

use scheduler::hooks::{DEPTH_MAX, HookEvent, Hooks};

use super::fault::FaultCode;
use super::grammar;
use super::hook_graph::{Chains, HookGraph, HookRef};
use super::keys;
use super::reader::Reader;
use super::scope::Scope;
use super::sources::SourceKind;

/// How many jobs one event may have: each end of a job makes as many, in one step.
const TARGETS_MAX: usize = 8;

/// Reads the hooks of the job `name`.
pub(super) fn read(name: &str, scope: Scope<'_>, is_job: bool, reader: &mut Reader<'_>) -> Hooks {
    let part = scope.part("hooks", keys::HOOKS, reader);
    let mut targets = |event: HookEvent| {
        let Some(node) = part.find(event.name()) else { return Vec::new() };
        let mut targets: Vec<String> = Vec::new();
        for (at, target) in reader.texts(node) {
            if reader.accept(at, grammar::job_name(&target)).is_none() {
                continue;
            }
            if targets.contains(&target) {
                let text = format!("{} is named twice for {}", reader.shown(at, &target), event.name());
                reader.fault(at, FaultCode::DuplicateKey, text);
                continue;
            }
            if is_job {
                reader.hooks.add_hook(name, &target, at);
            }
            targets.push(target);
        }
        if targets.len() > TARGETS_MAX {
            let text =
                format!("{} jobs for {} are too many (max {TARGETS_MAX})", targets.len(), event.name());
            reader.fault(node.at, FaultCode::TooLong, text);
        }
        targets.into_iter().map(Into::into).collect()
    };
    Hooks {
        on_start: targets(HookEvent::Start),
        on_success: targets(HookEvent::Success),
        on_failure: targets(HookEvent::Failure),
        on_end: targets(HookEvent::End),
    }
}

/// Checks the hooks of all jobs, after the last one was read.
pub(super) fn check(reader: &mut Reader<'_>) {
    let graph = std::mem::take(&mut reader.hooks);
    // A file that is too long was not read to its end.
    if reader.resolved_bytes > reader.resolved_bytes_max || reader.misses_jobs {
        return;
    }
    for hook in graph.hooks.values().flatten() {
        if !graph.names.contains(&hook.target) {
            let near = grammar::nearest(&hook.target, graph.names.iter().map(String::as_str));
            let near = near.filter(|_| !reader.has_variable(hook.at));
            let hint =
                near.map(|near| format!(": did you mean {}?", reader.shown_job(near))).unwrap_or_default();
            let none_has_it = match reader.collector.kind() {
                SourceKind::File => "the file has no job",
                SourceKind::Directory => "none of the files has a job",
            };
            let text = format!("{none_has_it} {}{hint}", reader.shown(hook.at, &hook.target));
            reader.fault(hook.at, FaultCode::UnknownJob, text);
        } else if graph.needy.contains(&hook.target) {
            let text = format!(
                "a hook gives no parameters, and {} has one that is required; give it a default",
                reader.shown(hook.at, &hook.target)
            );
            reader.fault(hook.at, FaultCode::InvalidParam, text);
        }
    }
    let chains = Chains::of(&graph);
    for (job, length) in &chains.lengths {
        // The job at the head of a chain that is too long says so, and no job after it.
        if *length == usize::from(DEPTH_MAX) + 1
            && let Some(hook) = graph.known(job).find(|hook| chains.lengths[&*hook.target] + 1 == *length)
        {
            let text =
                format!("{length} hooks follow one another from {} (max {DEPTH_MAX})", reader.shown_job(job));
            reader.fault(hook.at, FaultCode::OutOfRange, text);
        }
    }
    report_loops(&graph, &chains.looping, reader);
}

/// Reports each loop once, at the hook with which it begins.
fn report_loops(graph: &HookGraph, looping: &BTreeSet<&str>, reader: &mut Reader<'_>) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for start in looping {
        let mut path: Vec<&HookRef> = Vec::new();
        let mut job = *start;
        // Each of these jobs has a hook that leads on to one of them.
        while seen.insert(job) {
            let Some(hook) = graph.known(job).find(|hook| looping.contains(hook.target.as_str())) else {
                break;
            };
            path.push(hook);
            job = &hook.target;
        }
        // A loop of earlier definitions that the walk met was reported before.
        let from = path.iter().position(|hook| hook.target == job).filter(|last| *last + 1 < path.len());
        let members = match from {
            Some(before) => &path[before + 1..],
            None if job == *start => &path[..],
            None => continue,
        };
        let Some(first) = members.first() else { continue };
        let mut names = vec![reader.as_written_job(job)];
        names.extend(members.iter().map(|hook| match reader.has_variable(hook.at) {
            true => reader.as_written(hook.at, &hook.target),
            false => reader.as_written_job(&hook.target),
        }));
        if names.len() > NAMES_SHOWN {
            names.splice(NAMES_SHOWN / 2..names.len() - NAMES_SHOWN / 2, ["…".to_owned()]);
        }
        let text = format!("the hooks lead back to where they began: {}", names.join(" → "));
        reader.fault(first.at, FaultCode::HookLoop, text);
    }
}

/// Names of a loop that its fault shows.
const NAMES_SHOWN: usize = 10;
