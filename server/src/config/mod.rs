//! What the server is told from outside: its settings, and the jobs file.

pub mod jobs_file;
