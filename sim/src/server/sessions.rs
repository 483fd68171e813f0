//! The server's ends of connections: the first word must be Hello, and gives the session its number.

use protocol::report::Hello;
use protocol::{Report, SessionId, Token};
use scheduler::input::{Connected, Input};

use crate::connection::{ConnectionNo, End};
use crate::machine::Machine;
use crate::network::Parcel;
use crate::oracle::Caller;
use crate::world::World;

impl World {
    pub(crate) fn server_receives(&mut self, connection: ConnectionNo, parcel: Parcel) {
        let it = self.network.at(connection);
        if it.server_generation != self.server.generation {
            return;
        }
        match (parcel, it.session) {
            (Parcel::Report(Report::Hello(hello)), None) => {
                if let Some(session) = self.open_session(connection) {
                    self.hand_in(Input::Connected(connected(hello, session)));
                }
            }
            (Parcel::Report(mut report), Some(session)) => {
                if it.worker_generation == self.machines[usize::from(it.machine)].generation {
                    self.oracle.machine_heard(self.now, it.machine);
                }
                self.oracle.session_heard(self.now, session);
                self.split_off_unknown(session, &mut report);
                self.hand_in(Input::Reported(session, report));
            }
            (Parcel::Goodbye, session) => self.server_loses(connection, session),
            _ => {}
        }
    }

    /// As the real session does: what was never given here is told before the inventory that lists it, and nothing is said of such
    /// containers of others.
    fn split_off_unknown(&mut self, session: SessionId, report: &mut Report) {
        let disk = &self.server.disk;
        let unknown_attempts: Vec<Token> = match report {
            Report::Inventory(part) => {
                part.foreign.retain(|it| !disk.is_unknown(it.token));
                part.attempts.iter().map(|(token, _)| *token).filter(|it| disk.is_unknown(*it)).collect()
            }
            Report::Foreign(list) => {
                list.retain(|it| !disk.is_unknown(it.token));
                return;
            }
            _ => return,
        };
        if !unknown_attempts.is_empty() {
            self.coverage.unknown_attempts += unknown_attempts.len() as u64;
            self.hand_in(Input::UnknownAttempts(session, unknown_attempts));
        }
    }

    pub(super) fn caller(&self, hello: &Connected) -> Caller {
        let is_of_other_cluster =
            !hello.rejoin && hello.cluster.is_some_and(|it| it != self.server.disk.cluster);
        Caller { other_live_machine: self.other_live_machine(hello), is_of_other_cluster }
    }

    /// The machine of the process that was let in last as the same worker, if it is another one, connected, and was heard lately.
    fn other_live_machine(&self, hello: &Connected) -> Option<u16> {
        let row = self.server.disk.workers.values().find(|row| row.secret_hash == hello.secret_hash)?;
        let before = self.oracle.admitted_last(row.worker).filter(|process| *process != hello.process)?;
        let is_it = |machine: &&Machine| machine.process.as_ref().is_some_and(|it| it.number == before);
        let no = self.machines.iter().find(is_it)?.no;
        let process = self.server.process.as_ref()?;
        // One that it has replaced may still be open, and is not looked at any more.
        let present = process.scheduler.worker_facts().find(|it| it.id == row.worker)?.session?;
        let is_open = process.sessions.iter().any(|(session, connection)| {
            let it = self.network.at(*connection);
            *session == present
                && it.machine == no
                && it.worker_generation == self.machines[usize::from(no)].generation
                && it.was_welcomed
                && self.network.is_held_by(*connection, End::Server)
        });
        (is_open && self.oracle.was_heard(self.now, no)).then_some(no)
    }

    pub(crate) fn server_loses(&mut self, connection: ConnectionNo, session: Option<SessionId>) {
        self.network.close(&mut self.agenda, self.now, connection, End::Server);
        if let Some(session) = session {
            self.hand_in(Input::Disconnected(session));
        }
    }
}

fn connected(hello: Hello, session: SessionId) -> Connected {
    Connected {
        session,
        name: hello.name.into(),
        // The hash only has to differ if the secret does.
        secret_hash: hello.secret,
        cluster: hello.cluster,
        rejoin: hello.rejoin,
        incarnation: hello.incarnation,
        process: hello.process,
        versions: hello.versions,
        engine: hello.engine,
        version: hello.version,
        slots: hello.slots,
        backlog: hello.backlog,
        resources: hello.resources,
        labels: hello.labels,
        runtimes: hello.runtimes,
        address: String::new(),
        join: Default::default(),
    }
}
