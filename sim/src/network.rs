//! Connections: in each direction parcels arrive in the order of their sending, after a while, until something happens to the way.
//!
//! A direction can be *held up* (a partition, a clog: what was sent waits, as TCP would send it again) or *silent* (its sender is frozen,
//! or gone without a word). An end that hears nothing for long enough gives up; until then it believes in the connection, so that
//! half-open ones come about by themselves.

use std::collections::VecDeque;
use std::time::Duration;

use protocol::{Order, Report, SessionId};

use crate::agenda::{Agenda, Event};
use crate::clock::Moment;
use crate::connection::{ConnectionNo, End};
use crate::dice::Dice;

/// A message under way.
#[derive(Debug)]
pub(crate) enum Parcel {
    Report(Report),
    Order(Order),
    /// The socket was closed after all that was said.
    Goodbye,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) machine: u16,
    /// The worker's process.
    pub(crate) worker_generation: u32,
    /// The server's process.
    pub(crate) server_generation: u32,
    /// Set when the server has received Hello.
    pub(crate) session: Option<SessionId>,
    /// The server has sent Welcome.
    pub(crate) was_welcomed: bool,
    opened: Moment,
    /// Nothing that is sent arrives any more.
    broken: bool,
    /// By the end at which it arrives.
    ways: [Way; 2],
}

#[derive(Debug, Default)]
struct Way {
    parcels: VecDeque<(Moment, Parcel)>,
    /// True if its receiver has given it up.
    closed: bool,
    /// True if its sender has said goodbye.
    parted: bool,
    held: u16,
    /// Reasons why nothing is sent on it.
    mute: u16,
    silent_since: Option<Moment>,
    /// Counts silences, so that a timer of an earlier one is known.
    spell: u32,
    arrival: Option<Moment>,
}

/// All connections, and what is wrong with the ways.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) connections: Vec<Connection>,
    /// By machine and receiving end: how many faults hold this direction up.
    held: Vec<[u16; 2]>,
    delay: Duration,
    dice: Dice,
}

impl Network {
    /// `delay` is the longest time that a parcel is under way where nothing is wrong.
    pub(crate) fn new(machines: usize, delay: Duration, dice: Dice) -> Self {
        Self { connections: Vec::new(), held: vec![[0; 2]; machines], delay, dice }
    }

    pub(crate) fn delay(&mut self) -> Duration {
        self.dice.skewed(self.delay)
    }

    /// True if a call from this machine gets through.
    pub(crate) fn is_open(&self, machine: u16) -> bool {
        self.held[usize::from(machine)] == [0, 0]
    }

    pub(crate) fn connect(
        &mut self,
        now: Moment,
        machine: u16,
        worker_generation: u32,
        server_generation: u32,
    ) -> ConnectionNo {
        let number = ConnectionNo(self.connections.len() as u32);
        self.connections.push(Connection {
            machine,
            worker_generation,
            server_generation,
            session: None,
            was_welcomed: false,
            opened: now,
            broken: false,
            ways: [Way::default(), Way::default()],
        });
        number
    }

    pub(crate) fn at(&self, number: ConnectionNo) -> &Connection {
        &self.connections[number.0 as usize]
    }

    pub(crate) fn at_mut(&mut self, number: ConnectionNo) -> &mut Connection {
        &mut self.connections[number.0 as usize]
    }

    /// True if this end still believes in the connection.
    pub(crate) fn is_held_by(&self, number: ConnectionNo, end: End) -> bool {
        !self.at(number).ways[end as usize].closed
    }

    /// Sends something to this end. What is said into a broken or closed connection is lost.
    pub(crate) fn send(
        &mut self,
        agenda: &mut Agenda,
        now: Moment,
        number: ConnectionNo,
        to: End,
        parcel: Parcel,
    ) {
        let delay = self.dice.skewed(self.delay);
        let connection = &mut self.connections[number.0 as usize];
        let way = &mut connection.ways[to as usize];
        if connection.broken || way.parted || way.closed {
            return;
        }
        way.parted = matches!(parcel, Parcel::Goodbye);
        let at = (now + delay).max(way.parcels.back().map_or(Moment(0), |(at, _)| *at));
        way.parcels.push_back((at, parcel));
        way.expect(agenda, number, to);
    }

    /// The next parcel that has arrived at this end, if it is still open.
    pub(crate) fn take(
        &mut self,
        agenda: &mut Agenda,
        now: Moment,
        number: ConnectionNo,
        end: End,
    ) -> Option<Parcel> {
        let way = &mut self.connections[number.0 as usize].ways[end as usize];
        way.arrival = way.arrival.filter(|at| *at > now);
        if way.closed || way.held > 0 {
            return None;
        }
        if way.parcels.front().is_some_and(|(at, _)| *at <= now) {
            return way.parcels.pop_front().map(|(_, parcel)| parcel);
        }
        way.expect(agenda, number, end);
        None
    }

    /// This end closes the socket: the other one hears so after all that was said.
    pub(crate) fn close(&mut self, agenda: &mut Agenda, now: Moment, number: ConnectionNo, end: End) {
        self.send(agenda, now, number, end.other(), Parcel::Goodbye);
        self.leave(number, end);
    }

    /// This end is gone. Whether the other one hears of it is another matter.
    pub(crate) fn leave(&mut self, number: ConnectionNo, end: End) {
        let way = &mut self.at_mut(number).ways[end as usize];
        way.closed = true;
        way.parcels.clear();
    }

    /// This end is gone without a word: the machine lost its power.
    pub(crate) fn vanish(&mut self, agenda: &mut Agenda, now: Moment, number: ConnectionNo, end: End) {
        self.leave(number, end);
        self.mute(agenda, now, number, end.other());
    }

    /// The way breaks: of what is under way only a beginning arrives. Each end is told or not.
    pub(crate) fn break_off(
        &mut self,
        agenda: &mut Agenda,
        now: Moment,
        number: ConnectionNo,
        told: [bool; 2],
    ) {
        if self.at(number).broken {
            return;
        }
        for end in End::BOTH {
            let way = &mut self.connections[number.0 as usize].ways[end as usize];
            let kept = self.dice.index(way.parcels.len() + 1);
            way.parcels.truncate(kept);
            way.parted = false;
            if told[end as usize] {
                self.send(agenda, now, number, end, Parcel::Goodbye);
            } else {
                self.mute(agenda, now, number, end);
            }
        }
        self.at_mut(number).broken = true;
    }

    /// From now on nothing is sent to this end.
    pub(crate) fn mute(&mut self, agenda: &mut Agenda, now: Moment, number: ConnectionNo, to: End) {
        let timeout = self.dice.millis(10_000, 15_000);
        let way = &mut self.connections[number.0 as usize].ways[to as usize];
        way.mute += 1;
        way.fall_silent(agenda, now, timeout, number, to);
    }

    /// The opposite of [`Self::mute`].
    pub(crate) fn unmute(&mut self, number: ConnectionNo, to: End) {
        let way = &mut self.at_mut(number).ways[to as usize];
        way.mute = way.mute.saturating_sub(1);
        way.speak_again();
    }

    /// Holds up everything between this machine and the server in the direction that arrives at this end.
    pub(crate) fn hold(&mut self, agenda: &mut Agenda, now: Moment, machine: u16, end: End) {
        self.held[usize::from(machine)][end as usize] += 1;
        for number in self.of(machine) {
            let timeout = self.dice.millis(10_000, 15_000);
            let way = &mut self.connections[number.0 as usize].ways[end as usize];
            way.held += 1;
            way.fall_silent(agenda, now, timeout, number, end);
        }
    }

    /// The opposite of [`Self::hold`]: what was held up arrives.
    pub(crate) fn release(&mut self, agenda: &mut Agenda, now: Moment, machine: u16, end: End) {
        self.held[usize::from(machine)][end as usize] -= 1;
        for number in self.of(machine) {
            let delay = self.dice.skewed(self.delay);
            let way = &mut self.connections[number.0 as usize].ways[end as usize];
            // Those that were opened in between were never held.
            way.held = way.held.saturating_sub(1);
            way.speak_again();
            if way.held == 0 {
                for (at, _) in &mut way.parcels {
                    *at = (*at).max(now + delay);
                }
                way.expect(agenda, number, end);
            }
        }
    }

    /// True if this end has been deaf since this spell of silence began.
    pub(crate) fn is_deaf(&self, number: ConnectionNo, end: End, spell: u32) -> bool {
        let way = &self.at(number).ways[end as usize];
        !way.closed && way.spell == spell && way.silent_since.is_some()
    }

    /// When this end was last sure that the other one is there: by its pings, if by nothing else.
    pub(crate) fn heard(&self, now: Moment, number: ConnectionNo, end: End) -> Moment {
        let connection = self.at(number);
        let until = connection.ways[end as usize].silent_since.unwrap_or(now);
        let pings = until.since(connection.opened).as_nanos() as u64 / PING_EVERY_NANOS;
        Moment(connection.opened.0 + pings * PING_EVERY_NANOS)
    }

    /// The connections of a machine that anybody still believes in.
    pub(crate) fn of(&self, machine: u16) -> Vec<ConnectionNo> {
        let numbered = self.connections.iter().enumerate().rev();
        numbered
            .filter(|(_, it)| it.machine == machine && it.ways.iter().any(|way| !way.closed))
            .map(|(number, _)| ConnectionNo(number as u32))
            .collect()
    }
}

impl Way {
    /// Makes sure that the arrival of the first parcel is on the agenda.
    fn expect(&mut self, agenda: &mut Agenda, connection: ConnectionNo, end: End) {
        if self.held > 0 || self.closed {
            return;
        }
        if let Some((at, _)) = self.parcels.front()
            && self.arrival.is_none_or(|noted| noted > *at)
        {
            self.arrival = Some(*at);
            agenda.schedule(*at, Event::Arrival { connection, end });
        }
    }

    fn fall_silent(
        &mut self,
        agenda: &mut Agenda,
        now: Moment,
        timeout: Duration,
        connection: ConnectionNo,
        end: End,
    ) {
        if self.silent_since.is_none() && !self.closed {
            self.silent_since = Some(now);
            self.spell += 1;
            agenda.schedule(now + timeout, Event::Deaf { connection, end, spell: self.spell });
        }
    }

    const fn speak_again(&mut self) {
        if self.held == 0 && self.mute == 0 {
            self.silent_since = None;
        }
    }
}

/// Both sides ping this often.
const PING_EVERY_NANOS: u64 = 5_000_000_000;
