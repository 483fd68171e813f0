//! The codec against golden frames, against a second codec, against itself, and against noise.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod document;
mod frames;
mod frozen;
mod golden;
mod invalid;
mod mirror;
mod noise;
mod round_trip;
mod samples;
mod strategies;
