//! The sampler without its thread.

use std::mem;

use protocol::{Fence, JobId, Nonce};
use tempfile::TempDir;

use super::*;
use crate::usage::UsageSampler;

const TOKEN: Token = Token { job: JobId(1), fence: Fence(1), nonce: Nonce(7) };

/// A sampler whose thread never starts, so its commands stay in the inbox.
fn without_thread() -> (UsageSampler, TempDir, AttemptDir) {
    let (sampler, _) = UsageSampler::new();
    sampler.state.thread.started.call_once(|| {});
    let root = tempfile::tempdir().expect("a directory");
    let dir = AttemptDir::at(root.path());
    (sampler, root, dir)
}

#[test]
fn a_smaller_sample_of_the_engine_does_not_replace_an_earlier_peak() {
    let (sampler, _root, dir) = without_thread();
    let usage =
        |cpu_ms, peak| Usage { cpu_ms: Some(cpu_ms), memory_peak_bytes: Some(peak), ..Usage::default() };
    dir.record_usage(&usage(10, 700)).expect("recorded");
    assert!(sampler.watch(TOKEN, &dir, Source::Elsewhere));
    sampler.add(UsageSample { token: TOKEN, usage: usage(20, 300), memory_bytes: Some(300) });
    let commands = mem::take(&mut sampler.state.thread.inbox.state().commands);
    let Some(Command::Live(sample)) = commands.last() else { panic!("{} commands", commands.len()) };
    assert_eq!((sample.usage, sample.memory_bytes), (usage(20, 700), Some(300)));
}

#[test]
fn nothing_is_watched_without_the_thread() {
    let (sampler, _root, dir) = without_thread();
    sampler.state.thread.inbox.state().is_closed = true;
    assert!(!sampler.watch(TOKEN, &dir, Source::Elsewhere));
    // The engine's figures are still a part of the attempt's end.
    let usage = Usage { cpu_ms: Some(5), ..Usage::default() };
    sampler.add(UsageSample { token: TOKEN, usage, memory_bytes: None });
    assert_eq!(sampler.finish(TOKEN), usage);
}
