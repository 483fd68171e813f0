//! The position of the parser in a body, and the faults found so far.

use std::borrow::Cow;
use std::cell::RefCell;

use serde_json::error::Category;

use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::{FAULTS_MAX, Problem};
use crate::http::present::shapes::Fault;
use crate::http::request::body::{in_words, offset};

/// The position of the parser, and the faults found so far.
#[derive(Debug, Default)]
pub(super) struct FaultCollector {
    entry: RefCell<Option<(usize, Option<usize>)>>,
    field: RefCell<Cow<'static, str>>,
    faults: RefCell<Vec<(ProblemCode, Fault)>>,
    fatal: RefCell<Option<Problem>>,
}

impl FaultCollector {
    /// The following faults belong to this entry of a batch, on this line.
    pub(super) fn enter_entry(&self, index: usize, line: Option<usize>) {
        self.entry.replace(Some((index, line)));
    }

    /// The following faults belong to the body as a whole.
    pub(super) fn leave_entries(&self) {
        self.entry.replace(None);
    }

    /// The following faults belong to this field.
    pub(super) fn set_field(&self, field: impl Into<Cow<'static, str>>) {
        self.field.replace(field.into());
    }

    /// Records a fault; the parse goes on.
    pub(super) fn fault(
        &self,
        code: ProblemCode,
        field: String,
        detail: impl Into<String>,
        hint: Option<String>,
    ) {
        let mut faults = self.faults.borrow_mut();
        if faults.len() < FAULTS_MAX {
            faults.push((code, Fault { code: code.name().into(), field, detail: detail.into(), hint }));
        }
    }

    /// Ends the parse with this problem.
    pub(super) fn abort<E: serde::de::Error>(&self, problem: Problem) -> E {
        self.fatal.replace(Some(problem));
        E::custom("aborted")
    }

    /// True if a fault was recorded.
    pub(super) fn has_faults(&self) -> bool {
        !self.faults.borrow().is_empty()
    }

    /// True if [`Self::end`] was called.
    pub(super) fn has_aborted(&self) -> bool {
        self.fatal.borrow().is_some()
    }

    /// The problem for an error of serde.
    pub(super) fn syntax_problem(&self, error: &serde_json::Error, text: &[u8]) -> Problem {
        let message = error.to_string();
        let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
        match error.classify() {
            // The value given instead may be a secret: it is not shown.
            Category::Data => {
                let expected =
                    what.rsplit_once(", expected ").map_or("what belongs here", |(_, it)| in_words(it));
                Problem::new(ProblemCode::InvalidType, format!("it is not {expected}"))
                    .field(self.field.borrow().clone())
            }
            _ => Problem::new(
                ProblemCode::InvalidJson,
                format!("{} at byte {}", excerpt(what), offset(text, error.line(), error.column())),
            ),
        }
    }

    /// The problem for the faults so far, which are forgotten.
    pub(super) fn problem(&self) -> Problem {
        match self.fatal.take() {
            Some(fatal) => fatal,
            None => Problem::faults(self.faults.take()),
        }
    }

    /// Adds the entry of the batch to a problem.
    pub(super) fn locate(&self, problem: Problem) -> Problem {
        match *self.entry.borrow() {
            None => problem,
            Some((index, line)) => problem.within(&format!("jobs[{index}]"), line),
        }
    }
}
