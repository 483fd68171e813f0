//! The wrong entries of a list: the first of them with their faults, and how many there are.

use super::collector::FaultCollector;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::{FAULTS_MAX, Problem};

/// The wrong entries so far.
#[derive(Debug, Default)]
pub(super) struct EntryFaults {
    listed: Vec<Problem>,
    count: usize,
    /// True if the reading ended before the end of the list.
    ended_early: bool,
}

impl EntryFaults {
    /// Adds the problem of the entry at which the collector is.
    ///
    /// # Errors
    /// The problem, if the reading shall end with it.
    pub(super) fn add(&mut self, collector: &FaultCollector, problem: Problem) -> Result<(), Problem> {
        // The list as a whole is too large.
        if problem.code() == ProblemCode::TooManyJobs || self.count + 1 >= WRONG_MAX {
            return Err(problem);
        }
        self.push(collector.locate(problem));
        Ok(())
    }

    /// Adds the problem that has ended the reading.
    pub(super) fn end(&mut self, problem: Problem) {
        self.ended_early = true;
        self.push(problem);
    }

    fn push(&mut self, problem: Problem) {
        self.count += 1;
        if self.listed.len() < LISTED_MAX {
            self.listed.push(problem);
        }
    }

    /// All of them as one problem. The first gives the code.
    pub(super) fn finish(mut self) -> Result<(), Problem> {
        let listed = self.listed.len();
        if listed < 2 {
            return self.listed.pop().map_or(Ok(()), Err);
        }
        let of_each = FAULTS_MAX / listed;
        let faults = self.listed.iter().flat_map(|problem| problem.all_faults().into_iter().take(of_each));
        let faults = faults.collect();
        let (more, least) = (self.count - 1, if self.ended_early { "at least " } else { "" });
        let are = if more == 1 { "entry is" } else { "entries are" };
        let shown = match self.count > listed {
            true => format!(", and errors lists the first {listed}"),
            false => String::new(),
        };
        let text = format!("; {least}{more} more {are} wrong{shown}");
        Err(self.listed.swap_remove(0).with(&text).errors(faults))
    }
}

/// Wrong entries that are listed.
const LISTED_MAX: usize = 20;

/// The reading ends at this number of wrong entries: to look for similar names takes much longer than to read an entry.
const WRONG_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::super::{read_lines, read_list};
    use super::*;

    #[test]
    fn a_fault_within_a_batch_names_its_entry() {
        let lines = read_lines(b"{\"name\":\"a\"}\n\n{\"priority\":200}", |_| Ok(())).unwrap_err();
        let text = format!("{lines:?}");
        assert!(text.contains("jobs[1].priority") && text.contains("line 3"), "{text}");
        let array = read_list(br#"[{"name":"a"},{"args":[1]}]"#, |_| Ok(())).unwrap_err();
        assert!(format!("{array:?}").contains("jobs[1].args"), "{array:?}");
    }

    /// The problem of a list: its detail, and the fields of its faults.
    fn of_list(read: Result<(), Problem>) -> (String, Vec<String>) {
        let problem = read.unwrap_err().into_document("", "");
        (problem.detail, problem.errors.into_iter().map(|fault| fault.field).collect())
    }

    #[test]
    fn all_wrong_entries_of_a_list_are_told() {
        let lines =
            b"{\"name\":\"a\"}\n{\"priority\":200,\"x\":1}\n\n{broken\n{\"name\":\"b\"}\n{\"args\":1}";
        let mut taken = 0;
        let (detail, fields) = of_list(read_lines(lines, |request| {
            taken += 1;
            match request.name.as_deref() {
                Some("b") => Err(Problem::new(ProblemCode::UnknownJob, "no b").field("name")),
                _ => Ok(()),
            }
        }));
        assert_eq!(detail, "line 2: 200 is not within -100 to 100; 3 more entries are wrong");
        assert_eq!(fields, ["jobs[1].priority", "jobs[1].x", "jobs[2]", "jobs[3].name", "jobs[4].args"]);
        assert_eq!(taken, 2);
        let array = br#"[{"priority":200},{"name":"a"},{"x":1}]"#;
        let (detail, fields) = of_list(read_list(array, |_| Ok(())));
        assert!(detail.ends_with("; 1 more entry is wrong"), "{detail}");
        assert_eq!(fields, ["jobs[0].priority", "jobs[2].x"]);
        let ended = br#"[{"priority":200},{"args":1},{"x":1}]"#;
        assert!(of_list(read_list(ended, |_| Ok(()))).0.ends_with("; at least 1 more entry is wrong"));
    }

    #[test]
    fn of_very_many_wrong_entries_the_first_are_listed_and_the_others_counted() {
        let wrong = |count: usize| "{\"priority\":200,\"x\":1,\"y\":1,\"z\":1}\n".repeat(count);
        let (detail, fields) = of_list(read_lines(wrong(30).as_bytes(), |_| Ok(())));
        assert!(detail.ends_with("; 29 more entries are wrong, and errors lists the first 20"), "{detail}");
        assert_eq!((fields.len(), fields[38].as_str()), (40, "jobs[19].priority"), "two of each");
        let (detail, _) = of_list(read_lines(wrong(5_000).as_bytes(), |_| Ok(())));
        assert!(detail.contains("; at least 999 more entries are wrong"), "{detail}");
        let many = format!("[{}]", wrong(5_000).trim_end().replace('\n', ","));
        assert_eq!(of_list(read_list(many.as_bytes(), |_| Ok(()))).0, detail.replace("line 1: ", ""));
        let mut left = 3;
        let (detail, _) = of_list(read_lines("{}\n".repeat(9).as_bytes(), |_| {
            left -= 1;
            let code = if left == 0 { ProblemCode::TooManyJobs } else { ProblemCode::MissingField };
            Err(Problem::new(code, "no"))
        }));
        assert_eq!((detail.as_str(), left), ("line 1: no; at least 2 more entries are wrong", 0));
    }
}
