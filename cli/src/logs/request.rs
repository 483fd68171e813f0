//! The output that a verb asks for, and the form in which it is printed.

use super::member::Member;
use crate::outage::Awaited;
use crate::stream::Stream;

/// The output to print.
#[derive(Clone, Debug)]
pub(crate) struct LogRequest {
    pub(super) id: u64,
    pub(super) attempt: Option<u32>,
    /// Lines of JSON have the number of the attempt.
    pub(super) names_attempt: bool,
    pub(super) stream: Option<Stream>,
    pub(super) tail: Option<u32>,
    /// Only output that the server received at this time or later.
    pub(super) since: Option<String>,
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
    pub(crate) const fn everything(id: u64, as_json: bool) -> Self {
        Self {
            id,
            attempt: None,
            names_attempt: false,
            stream: None,
            tail: None,
            since: None,
            from_first: true,
            as_json,
            timestamps: false,
            prints_end: false,
            member: None,
        }
    }

    /// The same output of another job, which is printed beside that of others.
    pub(super) fn of_member(&self, member: Member) -> Self {
        Self { id: member.job, member: Some(member), ..self.clone() }
    }

    /// The job or batch that goes on if the output cannot be followed any longer.
    pub(super) fn awaited(&self) -> Awaited {
        self.member.as_ref().map_or(Awaited::Job(self.id), Member::awaited)
    }

    /// True if the output does not begin with the first byte of the first attempt.
    pub(super) const fn skips_beginning(&self) -> bool {
        self.tail.is_some() || self.since.is_some()
    }

    pub(super) fn query(&self, follow: bool, resumed: bool) -> Vec<(&'static str, String)> {
        let query = [
            ("encoding", Some("base64".to_owned())),
            ("follow", follow.then(|| "1".to_owned())),
            ("attempt", self.attempt.map(|attempt| attempt.to_string())),
            ("stream", self.stream.map(|stream| stream.name().to_owned())),
            ("tail", self.tail.filter(|_| !resumed).map(|lines| lines.to_string())),
            ("since", self.since.clone().filter(|_| !resumed)),
            ("timestamps", self.timestamps.then(|| "1".to_owned())),
        ];
        query.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}
