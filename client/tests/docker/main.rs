//! The docker runtime: against a real engine where a test asks for one, else against scripted stand-ins.

mod away;
mod doubt;
mod failed_start;
mod foreign;
mod hanging;
mod image_gc;
mod images;
mod in_container;
mod left;
mod mounts;
mod probe;
mod real_engine;
mod removed;
mod replay;
mod start;
mod support;
