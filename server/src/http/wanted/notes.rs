//! Where the reading of a body stands, and what was found to be wrong so far.

use std::borrow::Cow;
use std::cell::RefCell;

use serde_json::error::Category;

use super::super::body::{in_words, offset};
use super::super::code::Code;
use super::super::problem::{FAULTS_MAX, Problem, shown};
use super::super::view::Fault;

/// Where the reading stands, and what was found to be wrong.
#[derive(Debug, Default)]
pub(super) struct Notes {
    entry: RefCell<Option<(usize, Option<usize>)>>,
    field: RefCell<Cow<'static, str>>,
    faults: RefCell<Vec<(Code, Fault)>>,
    fatal: RefCell<Option<Problem>>,
}

impl Notes {
    /// From here on it is about this entry of a batch, on this line of the body.
    pub(super) fn turn_to(&self, index: usize, line: Option<usize>) {
        self.entry.replace(Some((index, line)));
    }

    /// It is about no entry any more, but about the whole.
    pub(super) fn turn_back(&self) {
        self.entry.replace(None);
    }

    /// From here on it is about this field.
    pub(super) fn at(&self, field: impl Into<Cow<'static, str>>) {
        self.field.replace(field.into());
    }

    /// Something is wrong; the reading goes on.
    pub(super) fn fault(&self, code: Code, field: String, detail: impl Into<String>, hint: Option<String>) {
        let mut faults = self.faults.borrow_mut();
        if faults.len() < FAULTS_MAX {
            faults.push((code, Fault { code: code.name().into(), field, detail: detail.into(), hint }));
        }
    }

    /// Ends the reading: the text cannot be trusted any further.
    pub(super) fn end<E: serde::de::Error>(&self, problem: Problem) -> E {
        self.fatal.replace(Some(problem));
        E::custom("see the notes")
    }

    /// Whether something was found to be wrong.
    pub(super) fn has_faults(&self) -> bool {
        !self.faults.borrow().is_empty()
    }

    /// Ends the reading after the first wrong entry of a batch: those behind it are not looked at.
    pub(super) fn end_with_faults<E: serde::de::Error>(&self) -> E {
        self.end(Problem::faults(self.faults.take()))
    }

    /// Whether the reading was ended by us.
    pub(super) fn has_ended(&self) -> bool {
        self.fatal.borrow().is_some()
    }

    /// What serde found to be broken.
    pub(super) fn broken(&self, error: &serde_json::Error, text: &[u8]) -> Problem {
        let message = error.to_string();
        let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
        let problem = match error.classify() {
            // What was given instead may be a secret.
            Category::Data => {
                let expected =
                    what.rsplit_once(", expected ").map_or("what belongs here", |(_, it)| in_words(it));
                Problem::new(Code::InvalidType, format!("it is not {expected}"))
                    .field(self.field.borrow().clone())
            }
            _ => Problem::new(
                Code::InvalidJson,
                format!("{} at byte {}", shown(what), offset(text, error.line(), error.column())),
            ),
        };
        self.place(problem)
    }

    /// What was found to be wrong.
    pub(super) fn refusal(&self) -> Problem {
        let problem = match self.fatal.take() {
            Some(fatal) => fatal,
            None => Problem::faults(self.faults.take()),
        };
        self.place(problem)
    }

    /// Says which entry of a batch is meant.
    pub(super) fn place(&self, problem: Problem) -> Problem {
        match *self.entry.borrow() {
            None => problem,
            Some((index, line)) => problem.within(&format!("jobs[{index}]"), line),
        }
    }
}
