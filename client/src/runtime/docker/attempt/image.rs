//! The image of an attempt, and its progress as the state machine sees it.

use protocol::report::Phase;
use worker::input::RuntimeEvent;

use super::Attempt;
use crate::runtime::docker::DockerState;
use crate::runtime::docker::images::PullError;

impl Attempt {
    /// Makes the image available. The attempt asks before it pulls.
    pub(super) async fn ensure_image(&self, docker: &DockerState) -> Result<(), PullError> {
        let permit = self.pull_permit.request(self.token(), &docker.events);
        let (spec, login) = (&self.launch.spec, self.launch.secrets.registry.as_ref());
        docker.images.ensure(docker, spec, login, permit, |phase| self.progress(docker, phase)).await
    }

    pub(super) fn progress(&self, docker: &DockerState, phase: Phase) {
        docker.send_event(RuntimeEvent::Progressed(self.token(), phase));
    }
}
