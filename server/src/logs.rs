//! Container output: append, read, follow. Segments that many attempts share, not a file each.
