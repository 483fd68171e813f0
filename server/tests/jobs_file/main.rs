//! The reader of jobs files: what it accepts, what it refuses, and what each key means.

mod bad;
mod directories;
mod good;
mod meaning;
mod properties;
mod support;
