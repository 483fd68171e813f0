//! Words of stories for jobs and attempts.

use crate::world::World;
use crate::world::protocol::report::Phase;
use crate::world::protocol::{JobId, Token};

pub(crate) fn job_id(text: &str) -> JobId {
    JobId(text.trim_start_matches('j').parse().unwrap())
}

/// `j3#2`: the attempt of job 3 with fence 2.
pub(crate) fn parse_token(world: &World, text: &str) -> Token {
    if let Some(text) = text.strip_prefix("other:") {
        let mut token = parse_token(world, text);
        token.nonce.0 ^= 1;
        return token;
    }
    let (job, fence) = text.trim_start_matches('j').split_once('#').unwrap();
    world.token(job.parse().unwrap(), fence.parse().unwrap())
}

/// `j3#2:running`; with `other:` in front it has another nonce.
pub(crate) fn held(world: &World, text: &str) -> (Token, Phase) {
    let (is_other, text) = text.strip_prefix("other:").map_or((false, text), |text| (true, text));
    let (token, phase) = text.split_once(':').unwrap();
    let phase = match phase {
        "running" => Phase::Running,
        "starting" => Phase::Starting,
        "ended" => Phase::Ended,
        _ => Phase::Backlog,
    };
    let mut token = parse_token(world, token);
    token.nonce.0 ^= u64::from(is_other);
    (token, phase)
}
