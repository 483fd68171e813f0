//! The environment variables of flags, and the cases in which they do not count.

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// Removes the environment variables of some flags, also those of verbs within verbs.
pub(super) fn without_variables(program: &Command, of: &dyn Fn(&Arg) -> bool) -> Command {
    let verbs: Vec<String> = program.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let forget = |argument: Arg| if of(&argument) { argument.env(Resettable::Reset) } else { argument };
    verbs.iter().fold(program.clone().mut_args(forget), |program, verb| {
        program.mut_subcommand(verb, |verb| without_variables(&verb, of))
    })
}

/// An empty variable counts as unset: compose passes unset variables so.
pub(super) fn is_empty(argument: &Arg) -> bool {
    argument.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty())
}

/// Returns true for `--follow` of `run` and `retry` if only a variable sets the output format.
pub(super) fn shows_output(matches: &ArgMatches) -> bool {
    ["run", "retry"].iter().filter_map(|verb| matches.subcommand_matches(verb)).any(|given| {
        given.get_flag("follow") && given.value_source("format") == Some(ValueSource::EnvVariable)
    })
}

/// Returns true for `doctor --config`, which checks a service: variables of the shell are not those of the service.
pub(super) fn checks_service(matches: &ArgMatches) -> bool {
    matches.subcommand_matches("doctor").is_some_and(|given| given.contains_id("worker_settings"))
}

/// A switch that is false conflicts with nothing.
pub(super) fn is_switched_off(argument: &Arg) -> bool {
    let is_switch = matches!(argument.get_action(), ArgAction::SetTrue);
    is_switch && argument.get_env().and_then(std::env::var_os).is_some_and(|value| value == "false")
}
