//! Stories about the scheduler: `scenarios/*.txt`. Each opens with what it shows; then a line is something that happens, and the
//! indented lines under it are all that the scheduler decides about it. `LONGSHORE_BLESS=1 cargo test` writes what it decides now:
//! read the difference before you commit it.

#![allow(clippy::unwrap_used, reason = "a story that cannot be read is a failed test")]
#![expect(clippy::disallowed_methods, reason = "scenarios are files; only the crate itself must be pure")]

#[path = "world/dependency_words.rs"]
mod dependency_words;
#[path = "world/keys.rs"]
mod keys;
#[path = "world/limit_words.rs"]
mod limit_words;
#[path = "world/settings.rs"]
mod settings;
#[path = "world/token_words.rs"]
mod token_words;
#[path = "world/trace.rs"]
mod trace_of;
#[path = "world/unique_words.rs"]
mod unique_words;
mod world;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use keys::{hooks, origin, placement, seconds, timetable};
use token_words::{held, job_id, parse_token};
use world::ends::takes_size;
use world::protocol::report::{Availability, Foreign, Outcome, Phase, ReleaseCause};
use world::protocol::resources::OfferedResources;
use world::protocol::{ClusterId, Fence, JobId, Revision, RuntimeKind, SessionId, Timestamp, WorkerId};
use world::scheduler::definition::{Expect, OnLost, RetryOn, WaitLimits};
use world::scheduler::explain::{Obstacle, PlacementVerdict};
use world::scheduler::ids::{GroupNo, JoinTokenId};
use world::scheduler::input::{CancelScope, IdempotencyKey, Input, JobUpdate, JoinPermit, Operation};
use world::scheduler::new_jobs::StartTime;
use world::scheduler::placement::exclusion::Excluded;
use world::scheduler::step::PendingReason;
use world::{Member, World, definition};

#[test]
fn scenario_files_match_recorded_output() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let bless = std::env::var_os("LONGSHORE_BLESS").is_some();
    let mut stories: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    stories.sort();
    assert!(stories.len() >= 10, "where have the stories gone?");
    for story in stories {
        let told = fs::read_to_string(&story).unwrap();
        let happened = play(&told);
        if bless {
            fs::write(&story, happened).unwrap();
        } else {
            assert_eq!(told, happened, "{} goes otherwise now", story.display());
        }
    }
}

/// When every story begins.
const START: Timestamp = Timestamp(1_000_000_000_000);

fn play(story: &str) -> String {
    let mut world = World::new(1, SLICE);
    let start = world.now.utc;
    let mut text = String::new();
    for line in story.lines().filter(|line| !line.starts_with(' ')) {
        text.push_str(line);
        text.push('\n');
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() || line.starts_with('#') {
            continue;
        }
        if ["limits", "waiting"].contains(&words[0]) {
            limit_words::tell(&mut world, start, &words, &mut text);
            continue;
        }
        if let ["explain", job] = words[..] {
            explain(&world, start, job, &mut text);
            continue;
        }
        let before = world.steps.len();
        happen(&mut world, &words);
        tell(&world, start, before, &mut text);
    }
    text
}

fn tell(world: &World, start: Timestamp, before: usize, text: &mut String) {
    for (index, (now, _)) in world.steps.iter().enumerate().skip(before) {
        for line in trace_of::lines(world, start, index) {
            writeln!(text, "    {:>6}ms  {line}", now.utc.0 - start.0).unwrap();
        }
    }
}

fn explain(world: &World, start: Timestamp, job: &str, text: &mut String) {
    let now = world.now.utc.0 - start.0;
    let mut line = |told: String| writeln!(text, "    {now:>6}ms  {told}").unwrap();
    let Some(why) = world.scheduler.explain(world.now, job_id(job)) else {
        return line("nothing to explain".into());
    };
    line(format!("{} {}", why.state.name(), why.pending.map_or("", PendingReason::name)).trim().into());
    for it in why.workers {
        line(match it.verdict {
            PlacementVerdict::Holding => format!("{} has it", it.name),
            PlacementVerdict::Able => format!("{} able", it.name),
            PlacementVerdict::LastResort => format!("{} able, as a last resort", it.name),
            PlacementVerdict::Unable(obstacles) => {
                let names: Vec<String> = obstacles.iter().map(|it| obstacle(world, *it)).collect();
                format!("{} {}", it.name, names.join(", "))
            }
        });
    }
}

fn obstacle(world: &World, obstacle: Obstacle) -> String {
    match obstacle {
        Obstacle::Excluded(of, None) => format!("excluded ({}) for good", kind(of)),
        Obstacle::Excluded(of, Some(until)) => {
            format!("excluded ({}) for {}ms", kind(of), until.since(world.now.up).as_millis())
        }
        Obstacle::TooLarge(kind) | Obstacle::Resources(kind) => format!("{} {kind:?}", obstacle.name()),
        Obstacle::Requirement(index) | Obstacle::Condition(index) => format!("{} {index}", obstacle.name()),
        Obstacle::PinnedElsewhere(worker) => format!("pinned_elsewhere (worker {worker})"),
        other => other.name().into(),
    }
}

const fn kind(of: Excluded) -> &'static str {
    match of {
        Excluded::Anything => "anything",
        Excluded::Suspect => "suspect",
        Excluded::Runtime(_) => "runtime",
        Excluded::Revision(_) => "revision",
    }
}

fn happen(world: &mut World, words: &[&str]) {
    let option = |name: &str| {
        words
            .iter()
            .find_map(|word| word.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value))
    };
    let number = |name: &str, default: u32| option(name).map_or(default, |value| value.parse().unwrap());
    match *words {
        // `edit` changes jobs.yaml, which is read at the next start.
        [read @ ("define" | "edit"), name, ..] => {
            let mut it = definition(name);
            it.retry.max = number("retry", 0);
            it.success_exit_codes =
                option("success").map_or_else(Vec::new, |code| vec![code.parse().unwrap()]);
            it.retry.memory_factor_milli = option("memory_factor").map(|factor| factor.parse().unwrap());
            it.container.resources = limit_words::resources(option);
            it.retry.on = match option("on") {
                Some("same") => RetryOn::Same,
                Some("other") => RetryOn::Other,
                _ => RetryOn::Any,
            };
            it.loss.limit = number("lost_limit", 3);
            it.loss.on_lost = match option("on_lost") {
                Some("fail") => OnLost::Fail,
                Some("wait") => OnLost::Wait,
                _ => OnLost::Retry,
            };
            it.loss.delay = option("loss_delay").map(seconds);
            it.loss.heartbeat = option("heartbeat").map(seconds);
            it.revision = option("revision").map_or(it.revision, |number| Revision(number.parse().unwrap()));
            it.container.ask_before_start = words.contains(&"ask");
            it.container.self_fence = option("self_fence").map(seconds);
            it.expect = Expect {
                success_within: option("success_within").map(seconds),
                max_duration: option("max_duration").map(seconds),
            };
            it.waits = WaitLimits {
                queue: option("queue_timeout").map(seconds),
                quarantine: option("quarantine_timeout").map(seconds),
                silent_worker: option("on_lost_timeout").map(seconds),
            };
            it.timeout = option("timeout").map(seconds);
            it.priority = number("priority", 0) as i8;
            it.enabled = !words.contains(&"disabled");
            it.timetable = timetable(name, words);
            it.hooks = hooks(words);
            it.submission = if words.contains(&"takes=size") { takes_size() } else { Default::default() };
            it.limits = limit_words::limits(words);
            it.placement = placement(words);
            it.container.image = option("image").unwrap_or_default().into();
            it.container.options.hostname = option("hostname").map(Into::into);
            let put = if read == "define" { World::define } else { World::edit };
            put(world, it);
        }
        ["edit-out", name] => drop(world.definitions.remove(name)),
        ["max-jobs" | "slice" | "server-limits" | "priority-ageing" | "set-aside-after", ..] => {
            *world = settings::world(words)
        }
        ["undefine", name] => world.undefine(name),
        // `backfill resize 10s 20s interval=5s behind=1`: slots by their time since the start of the story.
        ["backfill", target, ref rest @ ..] => {
            let slots = rest.iter().filter(|word| !word.contains('='));
            let slots = slots.map(|word| START + seconds(word)).collect();
            let interval = option("interval").map_or(Duration::ZERO, seconds);
            world.backfill(target, slots, interval, u64::from(number("behind", 0)));
        }
        [verb @ ("pause" | "resume"), target, ..] => {
            world.pause_with(target, verb == "pause", option("for").map(seconds), origin(option));
        }
        ["missing-secrets", ref names @ ..] => world.missing_secrets(&names.join(" ")),
        ["clock", "ahead", time] => world.now.utc = world.now.utc + seconds(time),
        ["clock", "behind", time] => world.now.utc = world.now.utc - seconds(time),
        ["submit", name, ..] => {
            let new = unique_words::new_job(world, words);
            let key = option("key").map(|key| IdempotencyKey {
                key: key.into(),
                digest: u128::from(number("digest", 1)),
                found: None,
                read_at: GroupNo(world.steps.len() as u64),
            });
            world.submit(name, number("x", 1) as usize, new, key, words.contains(&"require_worker"));
        }
        ["list", ..] => {
            let jobs = words.iter().skip(1).map(|entry| dependency_words::entry(world, entry)).collect();
            world.submit_all(jobs, None, false);
        }
        ["array", name, ..] => {
            world.submit_array(name, number("x", 1), unique_words::batch(option));
        }
        ["cancel", job] => world.cancel(job_id(job)),
        ["cancel-batch", batch, ref by @ ..] => world.cancel_batch(job_id(batch), by),
        ["change-batch", batch, ..] => world.change_batch(job_id(batch), option),
        ["cancel-waiting", job] => world.cancel_in(job_id(job), CancelScope::Waiting),
        ["release", job] => world.release(job_id(job)),
        ["update", job, ..] => {
            let run_at = option("delay").map(|value| StartTime::After(seconds(value)));
            let priority = option("priority").map(|value| value.parse().unwrap());
            world.update(job_id(job), JobUpdate { run_at, priority });
        }
        ["tick"] => world.step(Input::Tick),
        ["wait", time] => world.pass(seconds(time)),
        ["own_labels", name, ref labels @ ..] => {
            let label = |word: &&str| {
                let (name, value) = word.split_once('=').unwrap();
                (name.to_owned(), value.to_owned())
            };
            world.label(name, labels.iter().map(label).collect());
        }
        ["speaks", name, version] => world.member(name).protocol = version.parse().unwrap(),
        ["offer", name, ..] => {
            let list = |names: &str| names.split(',').map(Into::into).collect();
            world.member(name).offer = OfferedResources {
                cpus_milli: option("cpus").map(|milli| milli.parse().unwrap()),
                memory_bytes: option("memory").map(|mebibytes| mebibytes.parse::<u64>().unwrap() << 20),
                gpus: option("gpus").map_or_else(Vec::new, list),
                custom: option("custom").map_or_else(Vec::new, limit_words::amounts),
            };
        }
        ["hello", name, ..] => {
            let secret = option("secret").map(|value| value.parse().unwrap());
            // Decisions of this step reach `deaf` later than anything in this scenario.
            let deaf = words.iter().position(|word| *word == "deaf").map(|at| words[at + 1]);
            let session = deaf.map(|name| world.workers[name].session);
            world.hello(name, number("slots", 1), number("backlog", 1), secret);
            if let Some((name, session)) = deaf.zip(session) {
                world.workers.get_mut(name).unwrap().session = session;
            }
        }
        ["connect", name, ..] => {
            world.hello(name, number("slots", 1), number("backlog", 1), None);
            world.inventory(name, Vec::new(), Availability::Available);
        }
        ["restart_server", ..] => {
            let ahead = option("ahead").map_or(Duration::ZERO, seconds);
            let behind = option("behind").map_or(Duration::ZERO, seconds);
            world.restart_server(SLICE, ahead, behind, words.contains(&"restored"));
        }
        ["freeze", time] => world.stand_still(seconds(time)),
        ["store", "stalls"] => world.scheduler.commit_began(world.now.up),
        ["store", "goes_on"] => world.scheduler.commit_ended(world.now.up),
        ["mute", name] => world.workers.get_mut(name).unwrap().muted = true,
        ["move", name, "to", "cluster", number] => {
            world.workers.get_mut(name).unwrap().cluster = Some(ClusterId(number.parse().unwrap()));
        }
        ["call", name, alias] => world.workers.get_mut(name).unwrap().alias = Some(alias.into()),
        ["restart", name] => {
            let member = world.workers.get_mut(name).unwrap();
            (member.incarnation, member.process, member.next_report) =
                (member.incarnation + 1, member.process + 1, 1);
        }
        // A copy of its state directory is used elsewhere; or, with `back`, its machine as it was one start before.
        ["copy", name, "of", original, ..] => {
            let original = &world.workers[original];
            let copy = Member {
                session: None,
                incarnation: original.incarnation + u64::from(!words.contains(&"back")),
                process: original.process + 100,
                place: "there",
                next_report: 1,
                ..original.clone()
            };
            world.workers.insert(name.into(), copy);
        }
        ["disconnect", name] => world.disconnect(name),
        ["unsent", session, token] => {
            let token = parse_token(world, token);
            world.unsent(SessionId(session.parse().unwrap()), token);
        }
        [command @ ("cordon" | "drain"), worker, ..] => {
            let operation = match command {
                "cordon" => {
                    let until = option("for").map(|text| world.now.utc + seconds(text));
                    Operation::Cordon { until, origin: origin(option) }
                }
                _ => Operation::Drain(option("deadline").map(seconds), origin(option)),
            };
            world.operate(WorkerId(worker.parse().unwrap()), operation);
        }
        ["forget", worker] => world.operate(WorkerId(worker.parse().unwrap()), Operation::Forget),
        ["permit", name, ref what @ ..] => {
            let join = match *what {
                ["only", worker] => JoinPermit::OnlyAs(WorkerId(worker.parse().unwrap())),
                ["used_up"] => JoinPermit::UsedUp,
                ref labels => {
                    let label = |word: &&str| {
                        word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
                    };
                    let labels = labels.iter().filter_map(label).collect();
                    JoinPermit::Granted { token: Some(JoinTokenId(1)), labels }
                }
            };
            world.member(name).join = join;
        }
        ["revoke", worker] => world.operate(WorkerId(worker.parse().unwrap()), Operation::Revoke),
        ["reserve", ref names @ ..] => world.reserve_labels(names),
        ["slots", worker, slots] => {
            world.operate(WorkerId(worker.parse().unwrap()), Operation::Slots(slots.parse().unwrap()));
        }
        ["label", worker, ref labels @ ..] => {
            let label = |word: &&str| match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word.trim_end_matches('-').to_owned(), None),
            };
            let labels = labels.iter().map(label).collect();
            world.operate(WorkerId(worker.parse().unwrap()), Operation::Labels(labels));
        }
        ["stop_unmanaged", worker, ref which @ ..] => {
            let which = which.first().map(|word| {
                let (job, fence) = word.trim_start_matches('j').split_once('#').unwrap();
                (JobId(job.parse().unwrap()), Fence(fence.parse().unwrap()))
            });
            world.operate(WorkerId(worker.parse().unwrap()), Operation::StopUnmanaged(which));
        }
        ["reset", worker] => world.operate(WorkerId(worker.parse().unwrap()), Operation::Reset),
        ["uncordon", worker] => world.operate(WorkerId(worker.parse().unwrap()), Operation::Uncordon),
        [name, "inventory", ref rest @ ..] => {
            let silent = rest.contains(&"unavailable");
            let list = rest.iter().filter(|word| word.contains('#'));
            let attempts = list.map(|word| held(world, word)).collect();
            let answer =
                if silent { Availability::Unavailable("down".into()) } else { Availability::Available };
            if rest.contains(&"only_docker") {
                let runtimes = vec![
                    (RuntimeKind::Docker, Availability::Available),
                    (RuntimeKind::Fake, Availability::Unavailable("down".into())),
                ];
                world.inventory_of(name, runtimes, attempts);
            } else if rest.contains(&"nothing") {
                world.inventory_of(name, Vec::new(), attempts);
            } else {
                world.inventory(name, attempts, answer);
            }
        }
        [name, "wanted", ref definitions @ ..] => {
            let revisions = definitions.iter().map(|name| world.definitions[*name].revision).collect();
            world.report(name, protocol::Report::Wanted(revisions));
        }
        [kind @ ("unknown-attempts" | "unassigned-attempts"), name, ref tokens @ ..] => {
            let tokens = tokens.iter().map(|word| parse_token(world, word)).collect();
            world.announce(name, tokens, kind == "unassigned-attempts");
        }
        // `j1#1:2`: worker 2 has left it.
        [name, "foreign", ref list @ ..] => {
            let foreign = list.iter().map(|word| {
                let (token, worker) = word.split_once(':').unwrap();
                Foreign { worker: WorkerId(worker.parse().unwrap()), token: parse_token(world, token) }
            });
            let foreign = foreign.collect();
            world.foreign(name, foreign);
        }
        [name, "unknown", token] => world.unknown(name, parse_token(world, token)),
        [name, "running", token, ..] => {
            let ago = option("ago").map_or(Duration::ZERO, seconds);
            world.running_since(name, parse_token(world, token), ago);
        }
        [name, "pulling", token] => {
            let phase = Phase::Pulling { percent: None, failures: 0 };
            world.progress(name, parse_token(world, token), phase);
        }
        [name, "starting", token] => world.starting(name, parse_token(world, token)),
        [name, "success", token, ..] => world.success(name, parse_token(world, token), option("result")),
        [name, "failure", token, outcome, ..] => {
            let outcome = Outcome::ALL.into_iter().find(|it| it.name() == outcome).unwrap();
            world.failure(
                name,
                parse_token(world, token),
                outcome,
                option("exit").map(|code| code.parse().unwrap()),
                option("ago").map_or(Duration::ZERO, seconds),
            );
        }
        [name, "released", token, cause] => {
            use ReleaseCause::{Draining, Full, Policy, Recalled, RuntimeUnavailable, Secrets};
            let causes = [Recalled, Full, Draining, RuntimeUnavailable, Policy, Secrets];
            let cause = causes.into_iter().find(|it| it.name() == cause).unwrap();
            world.released(name, parse_token(world, token), cause);
        }
        [name, "leaves"] => world.condition(name, Availability::Available, true),
        [name, "stays"] => world.condition(name, Availability::Available, false),
        [name, "heartbeat"] => world.heartbeat(name),
        [name, "docker_down"] => world.condition(name, Availability::Unavailable("down".into()), false),
        [name, "docker_up"] => world.condition(name, Availability::Available, false),
        _ => panic!("nobody knows what this means: {words:?}"),
    }
}

/// Larger than any batch of a story that does not say otherwise.
const SLICE: usize = 1_000;
