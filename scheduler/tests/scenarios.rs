//! Stories about the scheduler: `scenarios/*.txt`. Each opens with what it shows; then a line is something that happens, and the
//! indented lines under it are all that the scheduler decides about it. `LONGSHORE_BLESS=1 cargo test` writes what it decides now:
//! read the difference before you commit it.

#![allow(clippy::unwrap_used, reason = "a story that cannot be read is a failed test")]
#![expect(clippy::disallowed_methods, reason = "stories are files; the fence is around the brain itself")]

#[path = "world/trace.rs"]
mod trace_of;
mod world;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use world::protocol::report::{Availability, Outcome, Phase, ReleaseCause};
use world::protocol::{JobId, Timestamp, Token, WorkerId};
use world::scheduler::definition::{OnLost, RetryOn};
use world::scheduler::input::{GroupNo, Key, NewJob, Operation};
use world::{World, definition};

#[test]
fn every_story_goes_as_it_is_told() {
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

fn play(story: &str) -> String {
    let mut world = World::new(1);
    let start = world.now.utc;
    let mut text = String::new();
    for line in story.lines().filter(|line| !line.starts_with(' ')) {
        text.push_str(line);
        text.push('\n');
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() || line.starts_with('#') {
            continue;
        }
        let before = world.steps.len();
        happen(&mut world, &words);
        tell(&world, start, before, &mut text);
    }
    text
}

fn tell(world: &World, start: Timestamp, before: usize, text: &mut String) {
    for (now, step) in &world.steps[before..] {
        for line in trace_of::lines(world, start, step) {
            writeln!(text, "    {:>6}ms  {line}", now.utc.0 - start.0).unwrap();
        }
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
        ["define", name, ..] => {
            let mut it = definition(name);
            it.retry.max = number("retry", 0);
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
            it.timeout = option("timeout").map(seconds);
            it.priority = number("priority", 0) as i8;
            world.define(it);
        }
        ["submit", name, ..] => {
            let new = NewJob {
                priority: option("priority").map(|value| value.parse().unwrap()),
                run_at: option("in").map(|value| world.now.utc + seconds(value)),
                ..NewJob::default()
            };
            let key = option("key").map(|key| Key {
                key: key.into(),
                digest: u128::from(number("digest", 1)),
                found: None,
                read_at: GroupNo(world.steps.len() as u64),
            });
            world.submit(name, number("x", 1) as usize, new, key, words.contains(&"require_worker"));
        }
        ["cancel", job] => world.cancel(JobId(job.trim_start_matches('j').parse().unwrap())),
        ["wait", time] => world.pass(seconds(time)),
        ["hello", name, ..] => {
            let secret = option("secret").map(|value| value.parse().unwrap());
            world.hello(name, number("slots", 1), number("backlog", 1), secret);
        }
        ["connect", name, ..] => {
            world.hello(name, number("slots", 1), number("backlog", 1), None);
            world.inventory(name, Vec::new(), Availability::Available);
        }
        ["mute", name] => world.workers.get_mut(name).unwrap().muted = true,
        ["disconnect", name] => world.disconnect(name),
        ["cordon", worker] => world.operate(WorkerId(worker.parse().unwrap()), Operation::Cordon),
        ["forget", worker] => world.operate(WorkerId(worker.parse().unwrap()), Operation::Forget),
        ["slots", worker, slots] => {
            world.operate(WorkerId(worker.parse().unwrap()), Operation::Slots(slots.parse().unwrap()));
        }
        ["uncordon", worker] => world.operate(WorkerId(worker.parse().unwrap()), Operation::Uncordon),
        [name, "inventory", ref rest @ ..] => {
            let silent = rest.contains(&"unavailable");
            let list = rest.iter().filter(|word| word.starts_with('j'));
            let attempts = list.map(|word| held(world, word)).collect();
            let answer =
                if silent { Availability::Unavailable("down".into()) } else { Availability::Available };
            world.inventory(name, attempts, answer);
        }
        [name, "running", token] => world.running(name, parse_token(world, token)),
        [name, "success", token] => world.success(name, parse_token(world, token)),
        [name, "failure", token, outcome, ..] => {
            let outcome = Outcome::ALL.into_iter().find(|it| it.name() == outcome).unwrap();
            world.failure(
                name,
                parse_token(world, token),
                outcome,
                option("exit").map(|code| code.parse().unwrap()),
            );
        }
        [name, "released", token, cause] => {
            let causes = [
                ReleaseCause::Recalled,
                ReleaseCause::Full,
                ReleaseCause::Draining,
                ReleaseCause::RuntimeUnavailable,
                ReleaseCause::Policy,
            ];
            let cause = causes.into_iter().find(|it| it.name() == cause).unwrap();
            world.released(name, parse_token(world, token), cause);
        }
        [name, "heartbeat"] => world.heartbeat(name),
        [name, "docker_down"] => world.condition(name, Availability::Unavailable("down".into())),
        [name, "docker_up"] => world.condition(name, Availability::Available),
        _ => panic!("nobody knows what this means: {words:?}"),
    }
}

fn seconds(text: &str) -> Duration {
    Duration::from_secs_f64(text.trim_end_matches('s').parse().unwrap())
}

/// `j3#2`: the attempt of job 3 with fence 2.
fn parse_token(world: &World, text: &str) -> Token {
    let (job, fence) = text.trim_start_matches('j').split_once('#').unwrap();
    world.token(job.parse().unwrap(), fence.parse().unwrap())
}

/// `j3#2:running`
fn held(world: &World, text: &str) -> (Token, Phase) {
    let (token, phase) = text.split_once(':').unwrap();
    let phase = match phase {
        "running" => Phase::Running,
        "ended" => Phase::Ended,
        _ => Phase::Backlog,
    };
    (parse_token(world, token), phase)
}
