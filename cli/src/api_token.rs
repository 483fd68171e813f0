//! The variable that names the token of the API for the server and for commands.

use std::path::Path;

/// The variable of `--api-token-file` of the server, and of `--token-file` of commands.
pub(crate) const VARIABLE: &str = "LONGSHORE_API_TOKEN_FILE";

/// Says that the server's token comes from the variable that is set for commands, too: an administrator's shell often has it. A server that
/// gets both tokens was meant to have them.
pub(crate) fn warn_of_client_token(api: Option<&Path>, worker: Option<&Path>) {
    let variable = std::env::var_os(VARIABLE);
    if let (Some(file), None) = (api, worker)
        && variable.is_some_and(|value| *value == *file)
    {
        tracing::warn!(
            file = %file.display(),
            "the token in this file is an administrator's token of this server unless the store has it, because {VARIABLE} names it; commands \
             read that variable, too: if it was set for them, unset it for the server; if not, give --api-token-file"
        );
    }
}
