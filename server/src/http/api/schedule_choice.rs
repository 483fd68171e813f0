//! `?as_scheduled=1` of a submission: the job runs now with the environment, arguments and parameters that a schedule gives to its jobs.
//! It takes no slot, and does not count as one of the schedule's runs.

use scheduler::definition::Definition;
use scheduler::details::JobDetails;
use scheduler::new_jobs::NewJob;
use scheduler::schedule::Schedule;

use crate::clock;
use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::cleared_fields::ClearedFields;
use crate::http::request::job_request::{self, JobRequest};
use crate::http::request::query::{Query, invalid_query, nearest};
use crate::http::request::submission::{self, merge_overrides};
use crate::params::{self, Checker};

/// The schedule whose environment and arguments a submitted job gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ScheduleChoice {
    /// None: an ordinary submission.
    #[default]
    None,
    /// The only schedule of the definition.
    Only,
    /// The schedule with this id.
    Named(String),
}

impl ScheduleChoice {
    /// Reads `as_scheduled` and `schedule`.
    ///
    /// # Errors
    /// `invalid_query` if a schedule is named without `as_scheduled`.
    pub(crate) fn read(query: &mut Query) -> Result<Self, Problem> {
        match (query.switch("as_scheduled")?, query.text("schedule")?) {
            (false, None) => Ok(Self::None),
            (true, None) => Ok(Self::Only),
            (true, Some(id)) => Ok(Self::Named(id)),
            (false, Some(_)) => Err(invalid_query("schedule", "it goes together with as_scheduled=1")),
        }
    }

    /// Refuses the choice for several jobs.
    ///
    /// # Errors
    /// `invalid_query`.
    pub(crate) fn check_batch(&self) -> Result<(), Problem> {
        match self {
            Self::None => Ok(()),
            Self::Only | Self::Named(_) => {
                Err(invalid_query("as_scheduled", "it is for one job, and this request makes a batch"))
            }
        }
    }

    /// The target of the request as its idempotency key stands for it: jobs of this definition, made in this way.
    pub(crate) fn target_text(&self, name: &str) -> String {
        match self {
            Self::None => name.to_owned(),
            Self::Only => format!("{name} as scheduled"),
            Self::Named(id) => format!("{name} as scheduled {id}"),
        }
    }

    /// Completes a request by its definition. Its overrides and parameters replace those of the schedule, which gets this moment as the slot.
    ///
    /// # Errors
    /// `unknown_schedule`, and those of [`submission::complete`].
    pub(crate) fn complete(
        &self,
        request: JobRequest<'_>,
        definition: &Definition,
        checker: &Checker<'_>,
    ) -> Result<NewJob, Problem> {
        if *self == Self::None {
            return submission::complete(request, definition, checker);
        }
        let schedule = find(definition, self.id())?;
        let kept = schedule.params.iter().flat_map(|params| params.given.iter());
        let kept = kept.map(|param| (param.name.clone(), params::to_json(&param.value))).collect();
        // An empty list of args is no request to leave out those of the schedule: programs that write every field send it.
        let request = JobRequest { cleared: ClearedFields::default(), ..request };
        let (mut job, params) = submission::resolve_over_earlier_params(kept, request, definition, checker)?;
        let own = job.details.map(|details| *details).unwrap_or_default();
        let mut overrides = schedule.overrides_at(clock::now().utc);
        merge_overrides(&mut overrides, own.overrides);
        let details = JobDetails { overrides, labels: own.labels, params, ..JobDetails::default() };
        job_request::check_totals(&details)?;
        job_request::check_size(&details.effective_overrides())?;
        submission::check_program(definition, Some(&details))?;
        job.details = Some(Box::new(details));
        Ok(job)
    }

    fn id(&self) -> Option<&str> {
        match self {
            Self::Named(id) => Some(id),
            Self::None | Self::Only => None,
        }
    }
}

/// The schedule with this id, or the only one.
///
/// # Errors
/// `unknown_schedule`, with ids that are near or all of them.
pub(crate) fn find<'d>(definition: &'d Definition, id: Option<&str>) -> Result<&'d Schedule, Problem> {
    let schedules = &definition.timetable.schedules;
    let found = match id {
        Some(id) => schedules.iter().find(|schedule| schedule.id.as_str() == id),
        None => schedules.first().filter(|_| schedules.len() == 1),
    };
    let name = excerpt(&definition.name);
    found.ok_or_else(|| {
        let ids = || schedules.iter().map(|schedule| schedule.id.as_str());
        let problem = |detail| Problem::new(ProblemCode::UnknownSchedule, detail).field("?schedule");
        match id {
            _ if schedules.is_empty() => problem(format!("\"{name}\" has no schedule"))
                .hint("only a definition with the key schedule in jobs.yaml can be used this way"),
            Some(id) => problem(format!("\"{name}\" has no schedule \"{}\"", excerpt(id)))
                .hint(format!("its schedules are {}", ids().collect::<Vec<_>>().join(", ")))
                .near(nearest(id, ids())),
            None => problem(format!("\"{name}\" has {} schedules", schedules.len()))
                .hint(format!("name one with schedule=ID: {}", ids().collect::<Vec<_>>().join(", "))),
        }
    })
}
