//! The surroundings of commands that ran on a machine itself.

use super::draft::Draft;

/// How commands are run that ran on a machine itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Runtime {
    /// In a container.
    #[default]
    Docker,
    /// On the worker's machine.
    Process,
}

/// Facts about all commands of a file that the file cannot tell.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) runtime: Runtime,
    pub(super) image: String,
    pub(super) zone: Option<String>,
}

impl Host {
    /// Sets the keys for where a command runs.
    pub(super) fn begin(&self, draft: &mut Draft) {
        match self.runtime {
            Runtime::Docker => draft.set_text("image", &self.image),
            Runtime::Process => draft.set_text("runtime", "process"),
        }
    }

    pub(super) fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// Sets the user that a command ran as.
    pub(super) fn add_user(&self, user: &str, draft: &mut Draft) {
        match self.runtime {
            _ if user == "root" => {}
            Runtime::Docker => {
                draft.set_text("user", user);
                draft
                    .remark(format!("the image must have the user {}", user.replace(':', " and the group ")));
            }
            Runtime::Process if user.starts_with("root:") => {
                draft.drop_with_note(format!(
                    "user {user}: a plain process runs as the worker's user and group"
                ));
            }
            Runtime::Process => {
                let name = user.split(':').next().unwrap_or(user);
                disable(
                    &format!("user {user}"),
                    &format!(
                        "this user and name it with \"workers\", or begin the command with \"runuser -u {name} --\""
                    ),
                    draft,
                );
            }
        }
    }

    /// Of a command that ran as another user than root, whose name is not known. `what` says how that is known.
    pub(super) fn add_unnamed_user(&self, what: &str, draft: &mut Draft) {
        match self.runtime {
            Runtime::Docker => draft
                .drop_with_note(format!("{what}: a container runs as the user of its image, or as \"user\"")),
            Runtime::Process => disable(
                what,
                "such a user and name it with \"workers\", or begin the command with \"runuser -u NAME --\"",
                draft,
            ),
        }
    }
}

/// A plain process must not run with the rights of another user, often those of root, until somebody has decided that.
fn disable(what: &str, way_out: &str, draft: &mut Draft) {
    draft.set_plain("enabled", false);
    draft.drop_with_note(format!(
        "{what}: a plain process runs as the worker's user, often root, so it is disabled; \
         start a worker as {way_out}, and remove \"enabled: false\""
    ));
}
