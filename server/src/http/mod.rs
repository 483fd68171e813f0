//! The HTTP face: one resource per file, every error a problem document, no decisions.

pub mod view;
