//! The output that a verb asks for, and the form in which it is printed.

use serde_json::Value;

use super::Member;
use crate::outage::Awaited;
use crate::screen;
use crate::stream::Stream;

/// The output to print.
#[derive(Debug)]
pub(crate) struct LogRequest {
    pub(super) id: u64,
    pub(super) attempt: Option<u32>,
    pub(super) stream: Option<Stream>,
    pub(super) tail: Option<u32>,
    pub(super) from_first: bool,
    pub(super) as_json: bool,
    /// Print the time at which the server received it in front of each line.
    pub(super) timestamps: bool,
    /// Print at the end how the job ended.
    pub(super) prints_end: bool,
    /// Print whole lines with the job that wrote them, because others write as well.
    pub(super) member: Option<Member>,
}

impl LogRequest {
    /// All output from the first attempt on, without a line about the end.
    pub(crate) const fn everything(id: u64) -> Self {
        Self {
            id,
            attempt: None,
            stream: None,
            tail: None,
            from_first: true,
            as_json: false,
            timestamps: false,
            prints_end: false,
            member: None,
        }
    }

    /// All output of a member of a batch, and its end.
    pub(crate) fn of_member(member: Member, as_json: bool) -> Self {
        let of_job = Self::everything(member.job);
        Self { as_json, prints_end: true, member: Some(member), ..of_job }
    }

    /// The job or batch that goes on if the output cannot be followed any longer.
    pub(super) fn awaited(&self) -> Awaited {
        match &self.member {
            // A batch has the id of its first member.
            Some(member) => Awaited::FollowedBatch(member.job.saturating_sub(member.index)),
            None => Awaited::Job(self.id),
        }
    }

    /// Notes something about the job.
    pub(super) fn note(&self, text: &str) {
        match &self.member {
            Some(member) => screen::note(&member.prefixed(text)),
            None => screen::note(text),
        }
    }

    pub(super) fn query(&self, follow: bool, resumed: bool) -> Vec<(&'static str, String)> {
        let query = [
            ("encoding", Some("base64".to_owned())),
            ("follow", follow.then(|| "1".to_owned())),
            ("attempt", self.attempt.map(|attempt| attempt.to_string())),
            ("stream", self.stream.map(|stream| stream.name().to_owned())),
            ("tail", self.tail.filter(|_| !resumed).map(|lines| lines.to_string())),
            ("timestamps", self.timestamps.then(|| "1".to_owned())),
        ];
        query.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }

    /// Prints a JSON line about the job.
    pub(super) fn print_json(&self, mut line: Value) -> anyhow::Result<()> {
        if let Some(member) = &self.member {
            member.add_to(&mut line);
        }
        screen::line(&line.to_string())
    }
}
