//! Hints for common YAML syntax errors: the parser's own messages describe its internals.

use serde_yaml::granit_parser::ErrorKind;

/// The hint for this kind of syntax error.
pub(super) fn hint_for(kind: &ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidColonPlacement => {
            Some("quote a value that holds a colon")
        }
        ErrorKind::ExpectedFlowMappingSeparator | ErrorKind::ExpectedFlowSequenceSeparator => {
            Some("between { } or [ ] a value such as \"${NAME}\" needs quotes")
        }
        ErrorKind::ExpectedBlockMappingKey => Some("keys of one map begin in the same column"),
        ErrorKind::TabInPlainScalar => Some("indent the lines below with blanks"),
        ErrorKind::TabInBlockIndentation | ErrorKind::TabInIndentation => Some("indent with blanks"),
        ErrorKind::UnclosedQuotedScalar | ErrorKind::InvalidQuotedScalarIndent => {
            Some("is the quote closed that was opened above?")
        }
        ErrorKind::UnknownAnchor => Some("an anchor (&name) must stand above its alias (*name)"),
        _ => None,
    }
}
