//! The secrets of definitions, which only the server can read.

use super::World;
use super::scheduler::input::Input;

impl World {
    /// The server has not all secrets of these definitions, and those of all others.
    pub fn missing_secrets(&mut self, names: &str) {
        let revisions = names.split(' ').filter_map(|name| self.definitions.get(name));
        let revisions = revisions.map(|definition| definition.revision).collect();
        self.step(Input::MissingSecrets(revisions));
    }
}
