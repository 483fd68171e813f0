//! The keys of `longshore top`. Changes of the view happen here; what needs the server is returned as a command.

use jiff::Timestamp;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::model::{Mode, Model, Tab};

/// A wish that the model cannot fulfil.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Quit,
    Cancel(u64),
}

/// Applies a key.
pub(super) fn press(model: &mut Model, key: KeyEvent, now: Timestamp) -> Option<Command> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        // In raw mode Ctrl-C is a key like any other.
        return matches!(key.code, KeyCode::Char('c' | 'd')).then_some(Command::Quit);
    }
    model.notice.clear();
    match model.mode {
        Mode::Filter => in_filter(model, key.code, now),
        Mode::Help => model.mode = Mode::Table,
        Mode::Confirm(id) => {
            model.mode = Mode::Table;
            if matches!(key.code, KeyCode::Char('y' | 'Y')) {
                return Some(Command::Cancel(id));
            }
            "nothing was changed".clone_into(&mut model.notice);
        }
        Mode::Details(id, up) => return in_details(model, key.code, id, up),
        Mode::Table => return in_table(model, key.code, now),
    }
    None
}

fn in_table(model: &mut Model, key: KeyCode, now: Timestamp) -> Option<Command> {
    match key {
        KeyCode::Char('q') => return Some(Command::Quit),
        KeyCode::Char('?' | 'h') => model.mode = Mode::Help,
        KeyCode::Char('/') => model.mode = Mode::Filter,
        KeyCode::Esc if !model.filter.is_empty() => set_filter(model, String::new(), now),
        KeyCode::Char('j') | KeyCode::Down => model.move_by(1, now),
        KeyCode::Char('k') | KeyCode::Up => model.move_by(-1, now),
        KeyCode::PageDown => model.move_by(PAGE, now),
        KeyCode::PageUp => model.move_by(-PAGE, now),
        KeyCode::Char('g') | KeyCode::Home => model.move_by(isize::MIN, now),
        KeyCode::Char('G') | KeyCode::End => model.move_by(isize::MAX, now),
        KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => model.turn(true),
        KeyCode::BackTab | KeyCode::Left => model.turn(false),
        KeyCode::Char('1') => model.show(Tab::Jobs),
        KeyCode::Char('2') => model.show(Tab::Workers),
        KeyCode::Char('3') => model.show(Tab::Definitions),
        KeyCode::Char('c') => match model.selected_job(now) {
            Some(id) => model.mode = Mode::Confirm(id),
            None => "select a job to cancel it".clone_into(&mut model.notice),
        },
        KeyCode::Enter => match model.selected_job(now) {
            Some(id) => open(model, id),
            None => "select a job to see its output".clone_into(&mut model.notice),
        },
        _ => {}
    }
    None
}

fn in_filter(model: &mut Model, key: KeyCode, now: Timestamp) {
    let mut filter = model.filter.clone();
    match key {
        KeyCode::Enter => model.mode = Mode::Table,
        KeyCode::Esc => {
            model.mode = Mode::Table;
            set_filter(model, String::new(), now);
        }
        KeyCode::Backspace => {
            filter.pop();
            set_filter(model, filter, now);
        }
        KeyCode::Char(c) if filter.chars().count() < FILTER_CHARS_MAX => {
            filter.push(c);
            set_filter(model, filter, now);
        }
        _ => {}
    }
}

fn in_details(model: &mut Model, key: KeyCode, id: u64, up: usize) -> Option<Command> {
    let lines = match &model.details {
        Some(Ok(details)) => details.output.len(),
        _ => 0,
    };
    let scrolled = |by: isize| Mode::Details(id, up.saturating_add_signed(by).min(lines.saturating_sub(1)));
    match key {
        KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter => {
            model.mode = Mode::Table;
            model.details = None;
        }
        KeyCode::Char('c') => {
            model.mode = Mode::Confirm(id);
            model.details = None;
        }
        KeyCode::Char('k') | KeyCode::Up => model.mode = scrolled(1),
        KeyCode::Char('j') | KeyCode::Down => model.mode = scrolled(-1),
        KeyCode::PageUp => model.mode = scrolled(PAGE),
        KeyCode::PageDown => model.mode = scrolled(-PAGE),
        KeyCode::Char('g') | KeyCode::Home => model.mode = scrolled(isize::MAX),
        KeyCode::Char('G') | KeyCode::End => model.mode = scrolled(isize::MIN),
        _ => {}
    }
    None
}

fn open(model: &mut Model, id: u64) {
    model.mode = Mode::Details(id, 0);
    model.details = None;
}

fn set_filter(model: &mut Model, filter: String, now: Timestamp) {
    model.filter = filter;
    model.follow_selection(now);
}

/// Rows that one page skips: a terminal of 24 lines shows a few more.
const PAGE: isize = 15;
/// A longer filter would not fit in the line that shows it.
const FILTER_CHARS_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::tests::{model, now};

    fn type_keys(model: &mut Model, keys: &str) -> Option<Command> {
        let code = |c: char| match c {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            '\x08' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        };
        keys.chars().fold(None, |_, c| press(model, code(c).into(), now()))
    }

    #[test]
    fn a_job_is_cancelled_only_after_y() {
        let mut model = model(&[3, 2, 1]);
        assert_eq!(type_keys(&mut model, "jc"), None);
        assert_eq!(model.mode, Mode::Confirm(2));
        assert_eq!(type_keys(&mut model, "n"), None);
        assert_eq!((model.mode.clone(), model.notice.as_str()), (Mode::Table, "nothing was changed"));
        assert_eq!(type_keys(&mut model, "cy"), Some(Command::Cancel(2)));
        assert_eq!(type_keys(&mut model, "\tcy"), None, "a worker is not cancelled");
    }

    #[test]
    fn the_keys_of_commands_are_text_in_the_filter() {
        let mut model = model(&[3, 2, 1]);
        assert_eq!(type_keys(&mut model, "/qc?"), None);
        assert_eq!((model.filter.as_str(), model.mode.clone()), ("qc?", Mode::Filter));
        type_keys(&mut model, "\x08\x08\x08\x082\n");
        assert_eq!((model.filter.as_str(), model.selected_job(now())), ("2", Some(2)));
        type_keys(&mut model, "\x1b");
        assert_eq!(model.rows(now()).len(), 3);
    }

    #[test]
    fn quit_closes_details_first() {
        let mut model = model(&[1]);
        assert_eq!(type_keys(&mut model, "\n"), None);
        assert_eq!(model.mode, Mode::Details(1, 0));
        assert_eq!(type_keys(&mut model, "q"), None);
        assert_eq!(type_keys(&mut model, "q"), Some(Command::Quit));
    }

    #[test]
    fn ctrl_c_quits_everywhere() {
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for keys in ["", "/", "?", "c", "\n"] {
            let mut model = model(&[1]);
            type_keys(&mut model, keys);
            assert_eq!(press(&mut model, ctrl_c, now()), Some(Command::Quit), "{keys:?}");
        }
    }
}
