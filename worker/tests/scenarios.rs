//! Stories about the worker: `scenarios/*.txt`. Each opens with what it shows; then a line is something that happens (`;` between
//! things that happen in one batch), and the indented lines under it are all that the worker decides about it. Heartbeats are
//! answered and left out unless the story says that the server is silent. `LONGSHORE_BLESS=1 cargo test` writes what it decides now:
//! read the difference before you commit it.

#![allow(clippy::unwrap_used, reason = "a story that cannot be read is a failed test")]
#![expect(clippy::disallowed_methods, reason = "scenarios are files; only the crate itself must be pure")]

#[path = "world/tell.rs"]
mod tell;
mod world;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore_worker::input::{Exit, Found, Restored, RuntimeEvent, ShutdownMode, StartFailure, Stopping};
use longshore_worker::step::Launch;
use longshore_worker::{Effect, Input};
use protocol::order::{
    Cancel, Configure, Definition, GoAway, Intervals, ReconcileVerdict, Reconciled, Refused, StopCause,
};
use protocol::report::{Availability, Foreign, OutputLengths, Phase, ReleaseCause};
use protocol::{Order, Report, ReportNo, RuntimeKind, Token, WorkerId};
use world::{World, assignment, definition, token, welcome};

#[test]
fn scenario_files_match_recorded_output() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let bless = std::env::var_os("LONGSHORE_BLESS").is_some();
    let mut stories: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    stories.sort();
    assert!(stories.len() >= 10, "where have the stories gone?");
    for story in stories {
        let told = fs::read_to_string(&story).unwrap();
        let happened = Story::default().play(&told);
        if bless {
            fs::write(&story, happened).unwrap();
        } else {
            assert_eq!(told, happened, "{} goes otherwise now", story.display());
        }
    }
}

struct Story {
    world: World,
    definitions: BTreeMap<String, Definition>,
    text: String,
    silent: bool,
}

impl Default for Story {
    fn default() -> Self {
        Self { world: World::new(1, 2, 1), definitions: BTreeMap::new(), text: String::new(), silent: false }
    }
}

impl Story {
    fn play(mut self, story: &str) -> String {
        for line in story.lines().filter(|line| !line.starts_with(' ')) {
            writeln!(self.text, "{line}").unwrap();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["worker", ..] => {
                    let (slots, backlog) = (number(&words, "slots", 1), number(&words, "backlog", 2));
                    self.world = World::with_pull_slots(slots, backlog, number(&words, "pull_slots", 2), 1);
                }
                ["define", name, ..] => {
                    self.definitions.insert(name.to_owned(), define(name, &words));
                }
                ["silent"] => self.silent = true,
                ["wait", time] => self.wait(duration(time)),
                ["join", ..] => self.join(number(&words, "last", 0)),
                _ => {
                    let inputs: Vec<_> = line
                        .split(';')
                        .map(|part| self.input(&part.split_whitespace().collect::<Vec<_>>()))
                        .collect();
                    let effects = self.world.batch(inputs);
                    self.tell(&effects);
                }
            }
        }
        self.text
    }

    /// Lets time pass as the client does: until the state machine wants to be woken.
    fn wait(&mut self, time: Duration) {
        let end = self.world.now + time;
        while let Some(at) = self.world.worker.wake_at().filter(|at| *at <= end) {
            self.world.now = self.world.now.max(at);
            let effects = self.world.batch([Input::Tick]);
            self.tell(&effects);
        }
        self.world.now = end;
    }

    /// The whole handshake, with everything kept.
    fn join(&mut self, last: u64) {
        let mut effects = self.world.batch([Input::Connected]);
        effects.extend(self.world.ordered(welcome(last)));
        let known = effects
            .iter()
            .filter_map(|it| if let Effect::Send(Report::Inventory(it)) = it { Some(it) } else { None });
        let attempts =
            known.flat_map(|it| &it.attempts).map(|(token, _)| (*token, ReconcileVerdict::Keep)).collect();
        self.tell(&effects);
        let effects = self.world.ordered(Order::Reconciled(Reconciled { attempts, last: true }));
        self.tell(&effects);
    }

    fn tell(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Send(Report::Heartbeat(beat)) = effect
                && !self.silent
            {
                let effects = self.world.ordered(Order::Pulse(beat.number));
                self.tell(&effects);
                continue;
            }
            let elapsed = self.world.elapsed().as_millis();
            writeln!(self.text, "    {elapsed:>6}ms  {}", tell::effect(effect)).unwrap();
        }
    }

    fn input(&self, words: &[&str]) -> Input {
        match *words {
            ["connected"] => Input::Connected,
            ["disconnected"] => Input::Disconnected,
            ["disk", "full"] => Input::StorageFault(Some("no space left".into())),
            ["disk", "usable"] => Input::StorageFault(None),
            ["disk", room] => Input::DiskIsLow(room == "low"),
            ["output", "done", token] => Input::OutputDone(token_of(token)),
            ["shutdown", how] => Input::Shutdown(match how {
                "drain" => ShutdownMode::Drain,
                "interrupt" => ShutdownMode::Interrupt,
                "detach" => ShutdownMode::Detach,
                other => panic!("shutdown {other}?"),
            }),
            ["restored", ref attempts @ ..] => Input::Restored {
                attempts: attempts
                    .iter()
                    .filter(|it| !it.contains('='))
                    .map(|it| self.restored(it))
                    .collect(),
                foreign: option(words, "foreign").map(foreign).into_iter().collect(),
                contact: option(words, "contact").map(|it| self.world.now - duration(it)),
            },
            // `2#2:9`: worker 9 has left it.
            ["runtime", "foreign", ref list @ ..] => {
                Input::Happened(RuntimeEvent::Foreign(list.iter().map(|it| foreign(it)).collect()))
            }
            ["runtime", "surveyed", ref attempts @ ..] => Input::Happened(RuntimeEvent::Surveyed {
                attempts: attempts.iter().map(|it| self.restored(it)).collect(),
                foreign: Vec::new(),
            }),
            ["runtime", what, which, ..] => Input::Happened(self.event(what, which, words)),
            _ => Input::Ordered(self.order(words)),
        }
    }

    fn order(&self, words: &[&str]) -> Order {
        match *words {
            ["welcome", ..] => welcome(number(words, "last", 0)),
            ["reconciled", ref verdicts @ ..] => Order::Reconciled(Reconciled {
                attempts: verdicts.iter().map(|it| verdict(it)).collect(),
                last: true,
            }),
            ["definitions", ref names @ ..] => {
                Order::Definitions(names.iter().map(|name| self.definitions[*name].clone()).collect())
            }
            ["enqueue", name, ref tokens @ ..] => Order::Enqueue(
                tokens
                    .iter()
                    .filter(|it| !it.contains('='))
                    .map(|it| {
                        let mut assignment = assignment(token_of(it), name);
                        assignment.priority = number(words, "priority", 0);
                        assignment.waited = option(words, "waited").map_or(Duration::ZERO, duration);
                        assignment.time_left = option(words, "time_left").map(duration);
                        assignment.memory_bytes =
                            option(words, "memory").map(|mebibytes| mebibytes.parse::<u64>().unwrap() << 20);
                        assignment.gpus = option(words, "gpus").map(Into::into).into_iter().collect();
                        assignment
                    })
                    .collect(),
            ),
            ["recall", ref tokens @ ..] => Order::Recall(tokens.iter().map(|it| token_of(it)).collect()),
            ["cancel", token, ..] => Order::Cancel(Cancel {
                token: token_of(token),
                grace: option(words, "grace").map(duration),
                cause: cause(option(words, "cause").unwrap_or("cancel")),
            }),
            ["acknowledge", last] => Order::Acknowledge(ReportNo(last.parse().unwrap())),
            ["pulse", number] => Order::Pulse(number.parse().unwrap()),
            ["configure", ref what @ ..] => Order::Configure(Configure {
                slots: option(words, "slots").map(|it| it.parse().unwrap()),
                drain: what.contains(&"drain"),
                intervals: option(words, "heartbeat")
                    .map(|every| Intervals { heartbeat: duration(every), ..Intervals::default() }),
            }),
            ["refused", after] => Order::Refused(Refused {
                code: "name_taken".into(),
                text: "another worker is called w1".into(),
                retry_after: duration(after),
            }),
            ["goaway", after] => Order::GoAway(GoAway { reconnect_after: duration(after), elsewhere: None }),
            _ => panic!("{words:?}?"),
        }
    }

    fn event(&self, what: &str, which: &str, words: &[&str]) -> RuntimeEvent {
        let at = || self.world.now;
        match what {
            "pulling" => {
                let percent = words.get(3).and_then(|it| it.parse().ok());
                let failures = number(words, "failures", 0);
                RuntimeEvent::Progressed(token_of(which), Phase::Pulling { percent, failures })
            }
            "missing" => RuntimeEvent::ImageMissing(token_of(which)),
            "prepared" => RuntimeEvent::Prepared(token_of(which)),
            "started" => {
                RuntimeEvent::Started { token: token_of(which), container: "c0ffee".into(), at: at() }
            }
            "ended" => RuntimeEvent::Ended {
                token: token_of(which),
                exit: exit(words),
                output: output(words),
                usage: Default::default(),
                at: option(words, "at").map_or(at(), |it| {
                    let elapsed = self.world.elapsed();
                    protocol::Uptime(at().0 - (elapsed - duration(it)).as_nanos() as u64)
                }),
            },
            "overdue" => RuntimeEvent::Overdue(token_of(which)),
            "refused" => RuntimeEvent::Refused {
                token: token_of(which),
                cause: if words[3] == "policy" {
                    ReleaseCause::Policy
                } else {
                    ReleaseCause::RuntimeUnavailable
                },
                why: String::new(),
            },
            "up" => RuntimeEvent::Availability(RuntimeKind::Docker, Availability::Available),
            "down" => RuntimeEvent::Availability(
                RuntimeKind::Docker,
                Availability::Unavailable("is it running?".into()),
            ),
            other => panic!("runtime {other}?"),
        }
    }

    /// `1#1:resize:running`, `…:ended`, `…:unstarted`, `…:unknown`; `…:cancel` if it was being stopped, `…:cancel:late` if that was
    /// said a second after its end, `…:cancel:early` if two seconds ago.
    fn restored(&self, text: &str) -> Restored {
        let parts: Vec<&str> = text.split(':').collect();
        let definition = &self.definitions[parts[1]];
        let is_late = parts.get(4) == Some(&"late");
        let is_early = parts.get(4) == Some(&"early");
        let stopped = self.world.now - if is_early { Duration::from_secs(2) } else { Duration::ZERO };
        let ended = self.world.now - if is_late { Duration::from_secs(1) } else { Duration::ZERO };
        let found = match parts[2] {
            "running" => Found::Running { container: "c0ffee".into(), at: self.world.now },
            "ended" => Found::Ended {
                exit: exit(&["exit=0"]),
                output: OutputLengths::default(),
                usage: Default::default(),
                at: ended,
            },
            "unstarted" => Found::Unstarted,
            _ => Found::Unknown,
        };
        Restored {
            launch: Launch {
                token: token_of(parts[0]),
                revision: definition.revision,
                name: definition.name.as_str().into(),
                spec: Arc::new(definition.container.clone()),
                overrides: None,
                time_left: Some(Duration::from_secs(60)),
                secrets: Default::default(),
            },
            stopping: parts.get(3).map(|it| Stopping { cause: cause(it), at: stopped }),
            found,
        }
    }
}

fn foreign(text: &str) -> Foreign {
    let (token, worker) = text.split_once(':').unwrap();
    Foreign { worker: WorkerId(worker.parse().unwrap()), token: token_of(token) }
}

fn define(name: &str, words: &[&str]) -> Definition {
    definition(name, |spec| {
        spec.resources.memory_bytes =
            option(words, "memory").map(|mebibytes| mebibytes.parse::<u64>().unwrap() << 20);
        if let Some(image) = option(words, "image") {
            spec.image = image.into();
        }
        let gpus = option(words, "gpus_variable").map(|ids| ("LONGSHORE_GPUS".into(), ids.into()));
        spec.environment.extend(gpus);
        spec.network = option(words, "network").map(Into::into);
        spec.ask_before_start = words.contains(&"ask");
        spec.self_fence = option(words, "self_fence").map(duration);
        if words.contains(&"process") {
            spec.runtime = RuntimeKind::Process;
        }
    })
}

fn exit(words: &[&str]) -> Exit {
    let message = || "no such image".to_owned();
    match option(words, "exit").unwrap_or("0") {
        "vanished" => Exit::Vanished,
        "daemon_lost" => Exit::DaemonLost { message: "EOF".into(), run_time: None },
        "pull" => Exit::NotStarted { fault: StartFailure::Pull, code: Some(125), message: message() },
        "host" => {
            Exit::NotStarted { fault: StartFailure::Host, code: Some(125), message: "no space left".into() }
        }
        "stopped" => Exit::NotStarted { fault: StartFailure::Stopped, code: None, message: message() },
        code => Exit::Ran {
            code: code.parse().unwrap(),
            oom: words.contains(&"oom"),
            run_time: Duration::from_secs(1),
            result: Default::default(),
        },
    }
}

fn output(words: &[&str]) -> OutputLengths {
    OutputLengths { stdout: number(words, "stdout", 0), stderr: 0 }
}

fn verdict(text: &str) -> (Token, ReconcileVerdict) {
    let (token, verdict) = text.split_once(':').unwrap();
    let verdict = match verdict {
        "keep" => ReconcileVerdict::Keep,
        "stop" => ReconcileVerdict::Stop,
        _ => ReconcileVerdict::Forget,
    };
    (token_of(token), verdict)
}

fn cause(text: &str) -> StopCause {
    StopCause::ALL.into_iter().find(|it| it.name() == text).unwrap()
}

fn token_of(text: &str) -> Token {
    let (job, fence) = text.split_once('#').unwrap();
    token(job.parse().unwrap(), fence.parse().unwrap())
}

fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value))
}

fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(words: &[&str], name: &str, default: T) -> T {
    option(words, name).map_or(default, |value| value.parse().unwrap())
}

fn duration(text: &str) -> Duration {
    match text.strip_suffix("ms") {
        Some(millis) => Duration::from_millis(millis.parse().unwrap()),
        None => Duration::from_secs(text.strip_suffix('s').unwrap().parse().unwrap()),
    }
}
