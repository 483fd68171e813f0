//! stdout/stderr → numbered, bounded chunks.
