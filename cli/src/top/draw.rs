//! Draws the model of `longshore top` into a frame: a line about the server, the tabs, the table, and a line of keys.
//!
//! Every text passes [`safe`]: names, reasons and output of jobs are hostile, and no control character reaches the terminal.

use jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::model::{Details, Link, Mode, Model, Tab, Tone};
use super::paint::{Paint, safe};
use super::table::draw_table;
use crate::duration;

/// Draws all.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, has_colour: bool, now: Timestamp) {
    let paint = Paint { has_colour };
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(head_line(model, paint, now), head);
    frame.render_widget(tab_line(model), tabs);
    match &model.mode {
        Mode::Details(id, up) => draw_details(frame, body, model, paint, *id, *up),
        _ => draw_table(frame, body, model, paint, now),
    }
    frame.render_widget(foot_line(model, paint), foot);
    if model.mode == Mode::Help {
        draw_help(frame, body);
    }
}

/// Address, connection, and the numbers that matter.
fn head_line(model: &Model, paint: Paint, now: Timestamp) -> Line<'static> {
    let (text, tone) = match &model.link {
        Link::Connecting => ("connecting".to_owned(), Tone::Faint),
        Link::Connected => (numbers(model), Tone::Plain),
        Link::Away(since, why) => {
            let away = duration::show(now.as_millisecond() - since.as_millisecond());
            (format!("away for {away}, trying again: {why}"), Tone::Bad)
        }
        Link::Refused(why) => (why.clone(), Tone::Bad),
    };
    let address = Span::styled(safe(&model.address), Style::new().add_modifier(Modifier::BOLD));
    Line::from(vec![address, Span::raw("  "), Span::styled(safe(&text), paint.tone(tone))])
}

fn numbers(model: &Model) -> String {
    let jobs = &model.jobs;
    let running = jobs.active.iter().filter(|job| job.state == "running").count();
    let connected: Vec<_> = model.workers.iter().filter(|worker| worker.connected).collect();
    let busy: u64 = connected.iter().map(|worker| u64::from(worker.busy)).sum();
    let slots: u64 = connected.iter().map(|worker| u64::from(worker.slots)).sum();
    format!(
        "running {}   waiting {}   workers {}   slots {busy}/{slots}",
        counted(running, jobs.more_active),
        counted(jobs.waiting.len(), jobs.more_waiting),
        connected.len(),
    )
}

/// A number, with a plus if there are more than were read.
fn counted(count: usize, more: bool) -> String {
    if more { format!("{count}+") } else { count.to_string() }
}

fn tab_line(model: &Model) -> Line<'static> {
    let tab = |(number, tab): (usize, Tab)| {
        let style =
            if tab == model.tab { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        [Span::styled(format!(" {number} {} ", tab.title()), style), Span::raw(" ")]
    };
    let mut spans: Vec<Span<'_>> = (1..).zip(Tab::ALL).flat_map(tab).collect();
    if model.mode == Mode::Filter {
        spans.push(Span::raw(safe(&format!("filter: {}_", model.filter))));
    } else if !model.filter.is_empty() {
        spans.push(Span::raw(safe(&format!("filter: {} (Esc clears it)", model.filter))));
    }
    Line::from(spans)
}

fn draw_details(frame: &mut Frame<'_>, area: Rect, model: &Model, paint: Paint, id: u64, up: usize) {
    let details = match &model.details {
        None => return frame.render_widget(Paragraph::new(format!("job {id} …")), area),
        Some(Err(why)) => {
            let text = Span::styled(safe(why), paint.tone(Tone::Bad));
            return frame.render_widget(Paragraph::new(Line::from(text)), area);
        }
        Some(Ok(details)) => details,
    };
    let facts = facts(details);
    // At least half of the room is for the output.
    let height = u16::try_from(facts.len()).unwrap_or(u16::MAX).min(area.height / 2);
    let [top, bottom] = Layout::vertical([Constraint::Length(height), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(facts), top);
    let room = usize::from(bottom.height.saturating_sub(1));
    let end = details.output.len().saturating_sub(up).max(room.min(details.output.len()));
    let begin = end.saturating_sub(room);
    let title = match details.output.len() {
        0 => " no output ".to_owned(),
        count => format!(" output, lines {} to {end} of the last {count} ", begin + 1),
    };
    let lines: Vec<Line<'_>> = details.output[begin..end].iter().map(|line| Line::from(safe(line))).collect();
    let block = Block::new().borders(ratatui::widgets::Borders::TOP).title(title);
    frame.render_widget(Paragraph::new(lines).block(block), bottom);
}

fn facts(details: &Details) -> Vec<Line<'static>> {
    let known = details.facts.iter().filter(|(_, value)| !value.is_empty());
    known.map(|(name, value)| Line::from(format!("{name:<12} {}", safe(value)))).collect()
}

/// The keys that work now, a question, or the effect of the last command.
fn foot_line(model: &Model, paint: Paint) -> Line<'static> {
    let text = match &model.mode {
        Mode::Confirm(id) => {
            let question = format!("cancel job {id}? y: yes, any other key: no");
            return Line::from(Span::styled(question, paint.tone(Tone::Bad).add_modifier(Modifier::BOLD)));
        }
        _ if !model.notice.is_empty() => safe(&model.notice),
        Mode::Filter => "Enter: keep the filter   Esc: remove it".to_owned(),
        Mode::Details(..) => "q: back   j k: scroll   c: cancel".to_owned(),
        Mode::Help => "any key: back".to_owned(),
        Mode::Table if model.tab == Tab::Jobs => {
            "q: quit   ?: help   /: filter   Tab: next table   Enter: details   c: cancel".to_owned()
        }
        Mode::Table => "q: quit   ?: help   /: filter   Tab: next table".to_owned(),
    };
    Line::from(Span::styled(text, Style::new().add_modifier(Modifier::DIM)))
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let keys = HELP.map(|(key, effect)| Line::from(format!(" {key:<12} {effect}")));
    let (width, height) = (56.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(keys.to_vec()).block(Block::bordered().title(" keys ")), place);
}

const HELP: [(&str, &str); 9] = [
    ("q, Ctrl-C", "quit"),
    ("Tab, 1 2 3", "jobs, workers, definitions"),
    ("j k, arrows", "one row down, up"),
    ("g G", "first row, last row"),
    ("PgUp PgDn", "a page up, down"),
    ("/", "show only rows with a text"),
    ("Esc", "remove the filter; leave the details"),
    ("Enter", "details of a job, and its last output"),
    ("c", "cancel a job, after a question"),
];

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::style::Color;
    use serde::Deserialize as _;
    use serde_json::json;

    use super::*;
    use crate::top::model::tests::{job, now};
    use crate::top::model::{JobLists, Update};
    use crate::view::{Job, Worker};

    /// A frame as lines of text.
    fn lines(model: &Model, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model, true, now())).unwrap();
        super::super::text_of(terminal.backend().buffer())
    }

    fn busy() -> Model {
        let mut model = Model::new("127.0.0.1:8080".to_owned(), Tab::Jobs);
        let running = json!({ "id": 12, "name": "resize", "state": "running", "created_at": "2026-03-01T09:30:00.000Z",
            "started_at": "2026-03-01T09:30:03.000Z", "attempt_count": 1, "worker": { "id": 1, "name": "anna" } });
        let failed = json!({ "id": 9, "name": "report", "state": "failed", "created_at": "2026-03-01T09:20:10.000Z",
            "ran_ms": 2500, "attempt_count": 3, "worker": { "id": 1, "name": "anna" }, "outcome": "failed", "exit_code": 3 });
        let worker = json!({ "id": 1, "name": "anna", "state": "ready", "connected": true, "working": true, "slots": 4,
            "busy": 1, "backlog": 4, "since": "2026-03-01T08:30:10.000Z", "version": "0.1.0" });
        model.apply(Update::Connected, now());
        let lists = JobLists {
            active: vec![Job::deserialize(&running).unwrap()],
            waiting: vec![job(13, "queued")],
            ended: vec![Job::deserialize(&failed).unwrap()],
            more_waiting: true,
            more_active: false,
        };
        model.apply(Update::Jobs(Box::new(lists)), now());
        model.apply(Update::Workers(vec![Worker::deserialize(&worker).unwrap()]), now());
        model
    }

    #[test]
    fn a_terminal_of_80_columns_shows_all_columns_of_jobs() {
        let shown = lines(&busy(), 80, 24);
        assert_eq!(shown[0], "127.0.0.1:8080  running 1   waiting 1+   workers 1   slots 1/4");
        assert_eq!(shown[1], " 1 Jobs   2 Workers   3 Definitions");
        assert_eq!(shown[2], "ID  NAME    STATE    WORKER  TRIES     AGE   RAN  WHY");
        assert_eq!(shown[3], "12  resize  running  anna        1     10s  7.0s");
        assert_eq!(shown[4], "13  resize  queued               0     10s");
        assert_eq!(shown[5], " 9  report  failed   anna        3  10m00s  2.5s  failed, exit 3");
        assert!(shown[23].starts_with("q: quit   ?: help"), "{shown:?}");
        assert!(shown[6..23].iter().all(String::is_empty), "{shown:?}");
    }

    #[test]
    fn the_other_tabs_show_their_tables() {
        let mut model = busy();
        model.show(Tab::Workers);
        let shown = lines(&model, 80, 24);
        assert!(shown[3].contains("anna  ready") && shown[3].contains("1/4"), "{shown:?}");
        model.show(Tab::Definitions);
        assert_eq!(lines(&model, 80, 24)[2], "no definitions; write them into jobs.yaml");
    }

    #[test]
    fn any_size_can_be_drawn() {
        let mut model = busy();
        let modes = [
            Mode::Table,
            Mode::Filter,
            Mode::Help,
            Mode::Confirm(12),
            Mode::Details(12, 0),
            Mode::Details(12, 99),
        ];
        for mode in modes {
            model.mode = mode;
            let output = (0..50).map(|n| format!("line {n}")).collect();
            let facts = vec![("job", "12".to_owned()); 30];
            model.details = Some(Ok(Box::new(Details { facts, output, may_grow: true })));
            for (width, height) in [(1, 1), (3, 2), (20, 5), (80, 24), (300, 100)] {
                assert_eq!(lines(&model, width, height).len(), usize::from(height));
            }
        }
    }

    #[test]
    fn no_control_character_of_a_job_is_drawn() {
        let mut model = busy();
        let hostile = "\x1b]0;gone\x07\x1b[2J\u{9b}31m\u{202e}a\tb\r";
        model.jobs.ended[0].reason = hostile.to_owned();
        model.jobs.ended[0].state = "cancelled".into();
        model.address = hostile.to_owned();
        model.notice = hostile.to_owned();
        let table = lines(&model, 200, 24);
        let details = Details {
            facts: vec![("name", hostile.to_owned())],
            output: vec![hostile.to_owned()],
            may_grow: false,
        };
        model.mode = Mode::Details(12, 0);
        model.details = Some(Ok(Box::new(details)));
        for line in table.iter().chain(&lines(&model, 200, 24)) {
            assert!(!line.contains(char::is_control) && !line.contains('\u{202e}'), "{line:?}");
        }
        assert!(lines(&model, 200, 24).iter().any(|line| line.contains("␛]0;gone␇␛[2J")));
    }

    #[test]
    fn the_end_of_the_output_is_shown_first_and_can_be_scrolled_up() {
        let mut model = busy();
        let output: Vec<String> = (1..=50).map(|n| format!("line {n}")).collect();
        model.details =
            Some(Ok(Box::new(Details { facts: vec![("job", "12".to_owned())], output, may_grow: false })));
        model.mode = Mode::Details(12, 0);
        let shown = lines(&model, 80, 24);
        assert!(shown[3].contains("lines 32 to 50 of the last 50"), "{shown:?}");
        assert_eq!(shown[22], "line 50");
        model.mode = Mode::Details(12, 49);
        let shown = lines(&model, 80, 24);
        assert_eq!((shown[4].as_str(), shown[22].as_str()), ("line 1", "line 19"), "{shown:?}");
    }

    #[test]
    fn a_server_that_is_away_is_named_in_the_first_line() {
        let mut model = busy();
        let since = now() - std::time::Duration::from_secs(9);
        model.apply(Update::Away("connection refused".to_owned()), since);
        assert_eq!(
            lines(&model, 80, 24)[0],
            "127.0.0.1:8080  away for 9.0s, trying again: connection refused"
        );
    }

    #[test]
    fn without_colour_nothing_has_a_colour() {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        for has_colour in [false, true] {
            terminal.draw(|frame| draw(frame, &busy(), has_colour, now())).unwrap();
            let coloured = terminal
                .backend()
                .buffer()
                .content
                .iter()
                .any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
            assert_eq!(coloured, has_colour);
        }
    }
}
