//! The order of an attempt's first stop and its end. Both may come at once, and clocks may be wrong.

use protocol::Uptime;

use super::Attempt;
use crate::attempt_dir::Stopping;
use crate::clock;
use crate::runtime::docker::DockerState;
use crate::runtime::docker::container::Container;

/// The engine's answer when an attempt was about to be stopped for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runtime::docker) enum AtFirstStop {
    /// Its container had ended: the stop came too late.
    Ended,
    /// Its container ran: whatever the clocks say, its end came after the stop.
    Ran,
    /// There was no container that ran or had ended, or the engine did not answer.
    Unknown,
}

impl Attempt {
    /// The stop, if the engine said before it that the container ran: then the end came later, whatever the clocks say.
    fn stop_while_running(&self) -> Option<Stopping> {
        self.stopping.borrow().filter(|_| self.at_first_stop.get() == Some(&AtFirstStop::Ran))
    }

    /// `true` if the stop came before the end. Both are wall-clock times, the end by the engine's clock.
    pub(super) fn was_stopping(&self, docker: &DockerState, container: &Container) -> bool {
        let stopping = *self.stopping.borrow();
        let came_before =
            |finished| stopping.is_some_and(|stop| finished >= docker.engine.skew.of_engine(stop.at.utc));
        container.finished().map_or(stopping.is_some(), came_before)
    }

    /// End of the container by the monotonic clock, and before a later stop. If the wall clock was set since, both may seem to lie before
    /// the machine's boot.
    pub(super) fn ended_at(&self, docker: &DockerState, container: &Container) -> Uptime {
        let now = clock::now();
        let at = container.ended_at(docker.engine.skew.engine(now));
        if let Some(stop) = self.stop_while_running() {
            return at.max(stop.at.by_uptime(now));
        }
        let late_stop =
            self.stopping.borrow().filter(|_| !self.was_stopping(docker, container)).map(|it| it.at);
        let late_stop = late_stop.or_else(|| self.late_stop_at.get().copied());
        late_stop.map_or(at, |stop| at.min(stop.just_before(now)))
    }
}
