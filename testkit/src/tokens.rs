//! Access tokens of a cluster whose server requires them.

use std::os::unix::fs::PermissionsExt as _;

use crate::{Cluster, Process};

impl Cluster {
    /// Starts a cluster whose server requires tokens. Returns it with its server and the file of the first token.
    pub async fn start_with_tokens(program: &str, jobs: &str, flags: &[&str]) -> (Self, Process, String) {
        let cluster = Self::new(program, jobs);
        let server = cluster.start_server(&[&["--require-tokens"], flags].concat()).await;
        let admin = cluster.admin_token();
        (cluster, server, admin)
    }

    /// The file with the token that the server made for its administrator.
    #[must_use]
    pub fn admin_token(&self) -> String {
        self.path("data/admin.token").display().to_string()
    }

    /// Runs a verb of the program with the token in this file, and returns its exit code and output.
    #[must_use]
    pub fn run_as(&self, token_file: &str, words: &[&str]) -> (i32, String) {
        let address = self.address();
        self.run_cli(&[words, &["--server", &address, "--token-file", token_file]].concat())
    }

    /// Makes a token with these flags of `token create`, and returns the file that it was written to.
    ///
    /// # Panics
    /// If the server refuses it, or the file cannot be written.
    pub fn make_token(&self, admin: &str, name: &str, flags: &[&str]) -> String {
        let (code, text) = self.run_as(admin, &[&["token", "create", name], flags].concat());
        assert_eq!(code, 0, "{text}");
        let token = text.lines().find(|line| line.starts_with("longshore_")).expect("the token");
        let file = self.path(&format!("{name}.token"));
        std::fs::write(&file, token).expect("a file in the cluster's directory");
        let owner_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file, owner_only).expect("a file of this process");
        file.display().to_string()
    }
}

/// The `Authorization` header with the token in this file.
///
/// # Panics
/// If the file cannot be read.
#[must_use]
pub fn bearer(token_file: &str) -> String {
    format!("Bearer {}", std::fs::read_to_string(token_file).expect("a file with a token").trim())
}
