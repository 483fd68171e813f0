//! Colours of `longshore top`, and texts that are safe for a terminal.

use ratatui::style::{Color, Modifier, Style};

use super::model::Tone;
use crate::screen;

/// Colours, or none at the user's wish. Bold and reversed text is no colour.
#[derive(Clone, Copy)]
pub(super) struct Paint {
    pub(super) has_colour: bool,
}

impl Paint {
    /// The style of a row.
    pub(super) fn tone(self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => Style::new(),
            Tone::Active => self.fore(Color::Cyan),
            Tone::Good => self.fore(Color::Green),
            Tone::Bad => self.fore(Color::Red),
            Tone::Faint => Style::new().add_modifier(Modifier::DIM),
        }
    }

    fn fore(self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }
}

/// A text without control characters; a tab becomes two spaces.
pub(super) fn safe(text: &str) -> String {
    screen::visible(&text.replace('\t', "  ")).into_owned()
}
