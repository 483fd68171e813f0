//! `longshore schema`: the JSON Schema of jobs.yaml, for editors.

/// Write the JSON Schema of jobs.yaml to standard output.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore schema > jobs.schema.json

In an editor with the YAML language server, begin jobs.yaml with:
  # yaml-language-server: $schema=jobs.schema.json")]
pub(crate) struct Flags {}

/// Writes the schema.
pub(crate) fn schema(_: &Flags) -> anyhow::Result<()> {
    crate::screen::json(&server::config::jobs_file::schema())
}
