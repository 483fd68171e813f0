//! `longshore man DIR`: writes the manual pages from the definition of the command line, one for the program and one for each verb.
//!
//! It is hidden, because packages call it and people read the pages (`man longshore-run`).

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Write the manual pages of the program and of every verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Directory for the pages. It is made if it does not exist.
    dir: PathBuf,
}

/// Writes the pages.
pub(crate) fn man(flags: &Flags, mut program: clap::Command) -> anyhow::Result<()> {
    let dir = &flags.dir;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    // Gives each verb its full name, `longshore-run`.
    program.build();
    write_pages(dir, program).with_context(|| format!("cannot write to {}", dir.display()))
}

/// The page of a command and those of the commands below it; hidden ones have none.
fn write_pages(dir: &Path, command: clap::Command) -> std::io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_pages(dir, verb.clone())?;
    }
    let page = clap_mangen::Man::new(command).source(SOURCE).manual("Longshore");
    page.generate_to(dir).map(drop)
}

/// The footer of each page.
const SOURCE: &str = concat!("longshore ", env!("CARGO_PKG_VERSION"));
