//! The image of an attempt, and its progress as the state machine sees it.

use protocol::report::Phase;
use worker::input::RuntimeEvent;

use super::Attempt;
use crate::runtime::docker::DockerContext;
use crate::runtime::docker::images::PullError;

impl Attempt {
    /// Makes the image available. The attempt asks before it pulls.
    pub(super) async fn ensure_image(&self, shared: &DockerContext) -> Result<(), PullError> {
        let permit = self.pull_permit.request(self.token(), &shared.events);
        let (spec, login) = (&self.launch.spec, self.launch.secrets.registry.as_ref());
        shared.images.ensure(shared, spec, login, permit, |phase| self.progress(shared, phase)).await
    }

    pub(super) fn progress(&self, shared: &DockerContext, phase: Phase) {
        shared.send_event(RuntimeEvent::Progressed(self.token(), phase));
    }
}
