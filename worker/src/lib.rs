//! The worker's brain: a pure state machine that decides what a machine does with the attempts it was given.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod input;
pub mod step;
