//! The thread that takes the samples. It sleeps in `epoll` until a sample is due, a command comes, or a watched process ends.

mod inbox;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};

use protocol::{Token, Usage, UsageSample};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::OwnedFd;
use tokio::sync::mpsc;

use super::cgroup::{ContainerGroup, Layout};
use super::process::ProcessTree;
use super::record::UsageRecorder;
use super::{SamplerState, Source};
use crate::attempt_dir::AttemptDir;
use inbox::Inbox;

/// The way to the thread, which starts with the first command.
pub(super) struct SamplerThread {
    inbox: Arc<Inbox>,
    started: Once,
    state: Weak<SamplerState>,
    live: mpsc::Sender<Vec<UsageSample>>,
}

/// Messages to the thread.
pub(super) enum Command {
    /// Sample this attempt.
    Watch { token: Token, dir: AttemptDir, gauge: Box<Gauge> },
    /// Send and record this sample of an attempt that the engine measures.
    Live(UsageSample),
    /// The attempt has ended.
    Forget(Token),
}

/// The open source of one attempt's figures.
#[derive(Debug)]
pub(super) enum Gauge {
    Container(ContainerGroup),
    Process(ProcessTree),
    Elsewhere,
}

impl SamplerThread {
    pub(super) fn new(state: Weak<SamplerState>, live: mpsc::Sender<Vec<UsageSample>>) -> Self {
        Self { inbox: Arc::default(), started: Once::new(), state, live }
    }

    /// Opens a source. It reads files of the kernel.
    pub(super) fn open(&self, source: &Source) -> Option<Gauge> {
        match source {
            Source::Container { id, has_network } => {
                let (hierarchies, layouts) = self.inbox.cgroup_layouts();
                hierarchies.open(id, &layouts, *has_network).map(Gauge::Container)
            }
            Source::Process(pid) => ProcessTree::open(*pid).map(Gauge::Process),
            Source::Elsewhere => Some(Gauge::Elsewhere),
        }
    }

    pub(super) fn learn(&self, layout: Layout) {
        let mut state = self.inbox.state();
        if !state.layouts.contains(&layout) && state.layouts.len() < LAYOUTS_MAX {
            state.layouts.push(layout);
        }
    }

    /// Returns false if the thread does not run.
    pub(super) fn send(&self, command: Command) -> bool {
        self.started.call_once(|| self.start());
        self.inbox.send(command)
    }

    fn start(&self) {
        let sampler = match Sampler::new(Arc::clone(&self.inbox), self.state.clone(), self.live.clone()) {
            Ok(sampler) => sampler,
            Err(error) => {
                self.inbox.state().is_closed = true;
                return tracing::warn!(%error, "the use of resources is not measured: no epoll");
            }
        };
        let thread = std::thread::Builder::new().name("usage".into());
        if let Err(error) = thread.spawn(move || sampler.run()) {
            self.inbox.state().is_closed = true;
            tracing::warn!(%error, "the use of resources is not measured: no thread");
        }
    }
}

impl Drop for SamplerThread {
    fn drop(&mut self) {
        self.inbox.state().is_closed = true;
        self.inbox.wake();
    }
}

/// The state of the thread.
struct Sampler {
    inbox: Arc<Inbox>,
    state: Weak<SamplerState>,
    live: mpsc::Sender<Vec<UsageSample>>,
    recorder: UsageRecorder,
    epoll: OwnedFd,
    wakeup: Arc<OwnedFd>,
    watched: HashMap<Token, Watched>,
    /// The attempts by the time of their next sample.
    due: BTreeSet<(Instant, Token)>,
    /// The attempts by the key of their process in `epoll`.
    processes: HashMap<u64, Token>,
    next_key: u64,
    /// The latest samples that were not sent yet.
    unsent: HashMap<Token, UsageSample>,
    sent_at: Instant,
}

struct Watched {
    dir: AttemptDir,
    gauge: Gauge,
    interval: Duration,
    due: Instant,
    key: u64,
    record_at: Instant,
}

impl Sampler {
    fn new(
        inbox: Arc<Inbox>,
        state: Weak<SamplerState>,
        live: mpsc::Sender<Vec<UsageSample>>,
    ) -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wakeup = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&epoll, &*wakeup, epoll::EventData::new_u64(WAKEUP), epoll::EventFlags::IN)?;
        inbox.state().wakeup = Some(Arc::clone(&wakeup));
        Ok(Self {
            inbox,
            state,
            live,
            recorder: UsageRecorder::start(),
            epoll,
            wakeup,
            watched: HashMap::new(),
            due: BTreeSet::new(),
            processes: HashMap::new(),
            next_key: WAKEUP + 1,
            unsent: HashMap::new(),
            sent_at: Instant::now(),
        })
    }

    fn run(mut self) {
        let mut ended = Vec::new();
        loop {
            let (commands, is_closed) = {
                let mut state = self.inbox.state();
                (mem::take(&mut state.commands), state.is_closed)
            };
            if is_closed {
                return;
            }
            for command in commands {
                self.obey(command);
            }
            // Ends come first: a group does not outlive its container for long.
            for key in ended.drain(..) {
                self.process_ended(key);
            }
            self.take_due();
            self.send_live();
            self.wait(&mut ended);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Watch { token, dir, gauge } => self.begin(token, dir, *gauge),
            Command::Live(sample) => self.pass_on(sample),
            Command::Forget(token) => self.forget(token),
        }
    }

    fn begin(&mut self, token: Token, dir: AttemptDir, gauge: Gauge) {
        let is_elsewhere = |gauge: &Gauge| matches!(gauge, Gauge::Elsewhere);
        if is_elsewhere(&gauge) && self.watched.get(&token).is_some_and(|it| is_elsewhere(&it.gauge)) {
            return;
        }
        self.forget(token);
        let now = Instant::now();
        let key = self.next_key;
        self.next_key += 1;
        if let Some(process) = gauge.init_process() {
            let data = epoll::EventData::new_u64(key);
            // Without a notice of its end, the last sample is the one before.
            if epoll::add(&self.epoll, process, data, epoll::EventFlags::IN).is_ok() {
                self.processes.insert(key, token);
            }
        }
        let watched =
            Watched { dir, gauge, interval: FIRST_INTERVAL, due: now, key, record_at: now + RECORD_FIRST };
        if !matches!(watched.gauge, Gauge::Elsewhere) {
            self.due.insert((now, token));
        }
        self.watched.insert(token, watched);
    }

    /// Sends and records a sample of the engine.
    fn pass_on(&mut self, sample: UsageSample) {
        if let Some(watched) = self.watched.get_mut(&sample.token) {
            watched.record(&self.recorder, Instant::now(), sample.usage);
            self.unsent.insert(sample.token, sample);
        }
    }

    fn forget(&mut self, token: Token) {
        self.unsent.remove(&token);
        if let Some(watched) = self.watched.remove(&token) {
            self.due.remove(&(watched.due, token));
            self.drop_process(&watched);
        }
    }

    fn drop_process(&mut self, watched: &Watched) {
        if self.processes.remove(&watched.key).is_some()
            && let Some(process) = watched.gauge.init_process()
        {
            // The kernel drops closed files by itself.
            let _ = epoll::delete(&self.epoll, process);
        }
    }

    /// Takes the last sample of an attempt. There is nothing more to be seen of it.
    fn process_ended(&mut self, key: u64) {
        let Some(token) = self.processes.get(&key).copied() else { return };
        // First what decides: the group is removed soon.
        if let Some(Watched { gauge: Gauge::Container(group), .. }) = self.watched.get(&token)
            && group.was_oom_killed()
        {
            self.state.upgrade().inspect(|it| it.mark_oom_killed(token));
        }
        self.sample(token);
        if let Some(watched) = self.watched.remove(&token) {
            self.due.remove(&(watched.due, token));
            self.drop_process(&watched);
        }
    }

    fn take_due(&mut self) {
        let now = Instant::now();
        while let Some((at, token)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, token));
            let total = self.sample(token);
            let Some(watched) = self.watched.get_mut(&token) else { continue };
            watched.due = now + watched.interval;
            watched.interval = (watched.interval * 2).min(LONGEST_INTERVAL);
            self.due.insert((watched.due, token));
            if let Some(total) = total {
                watched.record(&self.recorder, now, total);
            }
        }
    }

    /// Reads the figures of an attempt, and returns its totals.
    fn sample(&mut self, token: Token) -> Option<Usage> {
        let (usage, memory_bytes) = self.watched.get(&token)?.gauge.sample();
        let sample = UsageSample { token, usage: usage.clamped(), memory_bytes };
        let total = self.state.upgrade()?.add(&sample)?;
        if !usage.is_unknown() {
            self.unsent.insert(token, UsageSample { usage: total, ..sample });
        }
        Some(total)
    }

    fn send_live(&mut self) {
        let now = Instant::now();
        if self.unsent.is_empty() || now.duration_since(self.sent_at) < SEND_EVERY {
            return;
        }
        // If the last list is not taken yet, these wait, and later samples replace them.
        if let Ok(place) = self.live.try_reserve() {
            place.send(mem::take(&mut self.unsent).into_values().collect());
        } else if self.live.is_closed() {
            self.unsent.clear();
        }
        self.sent_at = now;
    }

    /// Sleeps until there is something to do, and collects the processes that have ended.
    fn wait(&mut self, ended: &mut Vec<u64>) {
        let now = Instant::now();
        let send = (!self.unsent.is_empty()).then(|| self.sent_at + SEND_EVERY);
        let next = self.due.first().map(|(at, _)| *at).into_iter().chain(send).min();
        let limit = next.map(|at| at.saturating_duration_since(now) + ROUNDING);
        let limit = limit.and_then(|it| Timespec::try_from(it).ok());
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(WAKEUP) };
                EVENTS];
        let Ok(count) = epoll::wait(&self.epoll, &mut events, limit.as_ref()) else { return };
        for event in events.iter().take(count) {
            match event.data.u64() {
                WAKEUP => drop(rustix::io::read(&*self.wakeup, &mut [0_u8; 8])),
                key => ended.push(key),
            }
        }
    }
}

impl Gauge {
    fn sample(&self) -> (Usage, Option<u64>) {
        match self {
            Self::Container(group) => group.sample(),
            Self::Process(tree) => tree.sample(),
            Self::Elsewhere => (Usage::default(), None),
        }
    }

    fn init_process(&self) -> Option<&OwnedFd> {
        match self {
            Self::Container(group) => group.init_process.as_ref(),
            Self::Process(tree) => tree.init_process.as_ref(),
            Self::Elsewhere => None,
        }
    }
}

impl Watched {
    fn record(&mut self, recorder: &UsageRecorder, now: Instant, total: Usage) {
        if now >= self.record_at {
            self.record_at = now + RECORD_EVERY;
            recorder.record(&self.dir, total);
        }
    }
}

/// The epoll key of `wakeup`.
const WAKEUP: u64 = 0;
/// Events that are taken at once.
const EVENTS: usize = 32;
/// Most containers are at a usual place; a worker meets few others.
const LAYOUTS_MAX: usize = 16;
/// The first interval is short, because many jobs are; each one is twice as long as the one before.
const FIRST_INTERVAL: Duration = Duration::from_millis(50);
/// A sample of a container costs 0.3 ms of CPU in an unoptimised build, so this takes 0.02 % of a core. A tenth of a percent is allowed.
const LONGEST_INTERVAL: Duration = Duration::from_secs(2);
/// Samples are sent this often at most.
const SEND_EVERY: Duration = Duration::from_secs(1);
/// The totals are first recorded at this age of an attempt, and then this often.
const RECORD_FIRST: Duration = Duration::from_secs(5);
const RECORD_EVERY: Duration = Duration::from_secs(30);
/// The kernel's timer may end a little early.
const ROUNDING: Duration = Duration::from_millis(1);
