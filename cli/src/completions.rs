//! `longshore completions`: writes a completion script for a shell.

/// Write a completion script for a shell to standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore completions bash > ~/.local/share/bash-completion/completions/longshore
  longshore completions zsh > ~/.zfunc/_longshore
  longshore completions fish > ~/.config/fish/completions/longshore.fish")]
pub(crate) struct Flags {
    /// The shell.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Writes the script.
pub(crate) fn completions(flags: &Flags, mut program: clap::Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut program, "longshore", &mut script);
    crate::screen::raw(&script)
}
