//! Faults of a jobs file: each with its position, a stable code and what to do about it.
//!
//! `collector` collects them; `annotate` adds the key and the line of the file. A fault never repeats a secret; quoted input is escaped and
//! cut to 80 characters.

use std::fmt;
use std::sync::Arc;

/// A position in a file: line and column, both from 1, counted in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The file among those of the reading.
    pub(super) file: FileIndex,
    /// The line; 0 means the file as a whole.
    pub line: u32,
    /// The column, counted in characters.
    pub column: u32,
}

impl Position {
    /// The file that is being read, as a whole.
    pub(super) const FILE: Self = Self { file: FileIndex(0), line: 0, column: 0 };

    /// True if the file as a whole is meant.
    #[must_use]
    pub const fn is_whole_file(self) -> bool {
        self.line == 0
    }
}

/// The number of a file of one reading. A directory has the number 0, and its files follow; a single file has it itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileIndex(pub(super) u16);

impl FileIndex {
    /// The directory, or the single file.
    pub(super) const SET: Self = Self(0);
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// The kind of a fault: stable, so that programs may look at it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FaultCode {
            $($(#[$doc])* $variant,)*
        }

        impl FaultCode {
            /// Every code, in the order in which they are documented.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The code as printed.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

codes! {
    /// The file cannot be opened or read.
    CannotRead = "cannot_read";
    /// The file is larger than the limit.
    FileTooLarge = "file_too_large";
    /// The file is not UTF-8.
    NotUtf8 = "not_utf8";
    /// The text is not YAML.
    YamlSyntax = "yaml_syntax";
    /// Anchors and aliases add up to too much.
    YamlBudget = "yaml_budget";
    /// Lists and maps are nested too deeply.
    TooDeep = "too_deep";
    /// There is more than one YAML document.
    MultipleDocuments = "multiple_documents";
    /// A tag or a merge key.
    UnsupportedTag = "unsupported_tag";
    /// A NUL character.
    NulByte = "nul_byte";
    /// A key or a job appears twice.
    DuplicateKey = "duplicate_key";
    /// The file is neither a list nor a map of jobs.
    ExpectedJobs = "expected_jobs";
    /// The file defines no jobs.
    NoJobs = "no_jobs";
    /// `version` is not 1.
    UnsupportedVersion = "unsupported_version";
    /// An unknown key.
    UnknownField = "unknown_field";
    /// A key that the job's runtime cannot honour.
    UnsupportedField = "unsupported_field";
    /// A key that Longshore refuses on purpose.
    ForbiddenOption = "forbidden_option";
    /// A required key is missing.
    MissingField = "missing_field";
    /// A list where a map was expected, and the like.
    ExpectedType = "expected_type";
    /// A number or nothing where text was expected.
    ExpectedString = "expected_string";
    /// A word that some YAML readers take for a boolean.
    AmbiguousScalar = "ambiguous_scalar";
    /// A variable of the server's environment is not set.
    UnsetVariable = "unset_variable";
    /// `${` without a name or an end.
    InvalidSubstitution = "invalid_substitution";
    /// A value is longer than its limit.
    TooLong = "too_long";
    /// A number outside of its limits.
    OutOfRange = "out_of_range";
    /// A word that is not one of the allowed ones.
    InvalidChoice = "invalid_choice";
    /// A value of another form than expected.
    InvalidValue = "invalid_value";
    /// Not a name for a job.
    InvalidName = "invalid_name";
    /// Not an image reference.
    InvalidImage = "invalid_image";
    /// A quote without its end.
    BadQuoting = "bad_quoting";
    /// Not a duration, or one outside of its limits.
    InvalidDuration = "invalid_duration";
    /// Not a cron rule.
    InvalidCron = "invalid_cron";
    /// A cron rule for a date that does not exist.
    CronNeverFires = "cron_never_fires";
    /// A rule without a slot between its bounds.
    ScheduleNeverFires = "schedule_never_fires";
    /// Not a time zone.
    UnknownTimezone = "unknown_timezone";
    /// Not a time of day, a date or an instant.
    InvalidTime = "invalid_time";
    /// Not a size, or one outside of its limits.
    InvalidSize = "invalid_size";
    /// Not a name for a variable of the environment.
    InvalidEnvName = "invalid_env_name";
    /// A variable of the environment with a line break in its value.
    EnvNewlineUnsupported = "env_newline_unsupported";
    /// A name that Longshore keeps for itself.
    ReservedName = "reserved_name";
    /// A parameter whose keys do not fit together, or a value that it does not take.
    InvalidParam = "invalid_param";
    /// A reference to a parameter that the job does not have.
    UnknownParam = "unknown_param";
    /// A hook for a job that is not in the file.
    UnknownJob = "unknown_job";
    /// Hooks that lead back to where they began.
    HookLoop = "hook_loop";
    /// Not a mount.
    InvalidMount = "invalid_mount";
    /// A mount that would expose the host.
    ForbiddenMount = "forbidden_mount";
    /// The worker would be given up before its container can be gone.
    LostAfterTooShort = "lost_after_too_short";
    /// A warning: a schedule that is legal and often a mistake.
    OddSchedule = "odd_schedule";
    /// A warning: slots come faster than a job may take.
    FiresTooOften = "fires_too_often";
    /// A warning: recipients of e-mail, in a file that is checked away from its server.
    NeedsMailServer = "needs_mail_server";
    /// A warning: a literal that looks like a password or a token.
    LooksLikeSecret = "looks_like_secret";
    /// A warning: a command with the syntax of a shell that no shell reads.
    LooksLikeShell = "looks_like_shell";
    /// A warning: a key that changes nothing beside the others.
    HasNoEffect = "has_no_effect";
    /// A warning: a value of a label that looks like a condition.
    LooksLikeCondition = "looks_like_condition";
    /// A warning: a user by number, whose group will be that of root.
    RootGroup = "root_group";
    /// A secret does not exist, or is not safe.
    Secret = "secret";
    /// The policy of the server forbids it.
    ForbiddenByPolicy = "forbidden_by_policy";
}

impl fmt::Display for FaultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One fault or, as a warning, one suspicious value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file as it was named, or one that it refers to.
    pub file: Arc<str>,
    /// The position in that file.
    pub at: Position,
    /// The kind of fault.
    pub code: FaultCode,
    /// The fault and what to do, in one line.
    pub text: String,
    /// The line of the file with a mark under the position, if it may be shown.
    pub snippet: Option<String>,
    /// True if the line is shown only up to the position.
    pub(super) private: bool,
}

impl Fault {
    /// A fault of the file as a whole.
    pub(super) fn of_file(file: &str, code: FaultCode, text: impl Into<String>) -> Self {
        Self { file: file.into(), at: Position::FILE, code, text: text.into(), snippet: None, private: false }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if !self.at.is_whole_file() {
            write!(f, "{}:{}:", self.at.line, self.at.column)?;
        }
        write!(f, " {}: {}", self.code, self.text)?;
        if let Some(snippet) = &self.snippet {
            write!(f, "\n{snippet}")?;
        }
        Ok(())
    }
}

/// All faults of a file or of the files of a directory; never empty. `Display` prints them for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The faults, in the order of the files; at most [`FAULTS_MAX`].
    pub list: Vec<Fault>,
    /// The number of faults that are not listed.
    pub more: usize,
}

impl Faults {
    pub(super) fn one(fault: Fault) -> Self {
        Self { list: vec![fault], more: 0 }
    }

    /// These faults and others of the same files.
    pub(super) fn and(mut self, others: Self) -> Self {
        self.list.extend(others.list);
        self.list.sort_by_key(|fault| fault.at);
        let surplus = self.list.len().saturating_sub(FAULTS_MAX);
        self.list.truncate(FAULTS_MAX);
        Self { more: self.more + others.more + surplus, ..self }
    }

    /// The number of all faults, also of those that are not listed.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.len() + self.more
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.list.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{fault}")?;
        }
        match self.more {
            0 => Ok(()),
            1 => f.write_str("\nand 1 more fault"),
            more => write!(f, "\nand {more} more faults"),
        }
    }
}

impl std::error::Error for Faults {}

/// User input in a message: quoted, escaped, at most 80 characters.
pub(super) fn quoted(input: &str) -> String {
    let mut shown: String = input.chars().take(QUOTED_CHARS_MAX).flat_map(char::escape_debug).collect();
    if input.chars().nth(QUOTED_CHARS_MAX).is_some() {
        shown.push('…');
    }
    format!("\"{shown}\"")
}

/// Faults that are shown at once.
pub const FAULTS_MAX: usize = 50;
pub(super) const QUOTED_CHARS_MAX: usize = 80;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_input_is_cut_and_escaped() {
        let shown = quoted(&"\u{1b}".repeat(500));
        assert!(shown.starts_with("\"\\u{1b}") && shown.ends_with("…\""), "{shown}");
    }
}
