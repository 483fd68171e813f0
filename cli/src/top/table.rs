//! The table of `longshore top`: columns as wide as their cells need, and the selected row in sight.

use jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::model::{Link, Model, Tab};
use super::paint::{Paint, safe};

/// Draws the rows that pass the filter, or says why there are none.
pub(super) fn draw_table(frame: &mut Frame<'_>, area: Rect, model: &Model, paint: Paint, now: Timestamp) {
    let rows = model.rows(now);
    if rows.is_empty() {
        let text = match (&model.link, model.filter.is_empty()) {
            (Link::Connecting, _) => "",
            (_, false) => "nothing fits the filter",
            (_, true) => match model.tab {
                Tab::Jobs => "no jobs; make one with: longshore run NAME",
                Tab::Workers => "no worker is connected; start one with: longshore worker --server ADDRESS",
                Tab::Definitions => "no definitions; write them into jobs.yaml",
            },
        };
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let heading = model.heading();
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| row.cells.iter().map(|cell| safe(cell)).collect()).collect();
    let widths = widths(heading, &cells, area.width);
    let aligned = |text: String, name: &str| {
        let side = if name.starts_with('>') { Alignment::Right } else { Alignment::Left };
        Cell::from(Text::from(text).alignment(side))
    };
    let header = heading.iter().map(|name| aligned(name.trim_start_matches('>').to_owned(), name));
    let header = Row::new(header).style(Style::new().add_modifier(Modifier::BOLD));
    let body = cells.into_iter().zip(&rows).map(|(cells, row)| {
        Row::new(cells.into_iter().zip(heading).map(|(cell, name)| aligned(cell, name)))
            .style(paint.tone(row.tone))
    });
    let table = Table::new(body, widths.into_iter().map(Constraint::Length))
        .header(header)
        .column_spacing(SPACING)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected(Some(model.selected()));
    frame.render_stateful_widget(table, area, &mut state);
}

/// The width of each column: what its widest cell needs; if all together do not fit, the widest ones get less. The last column gets the rest.
fn widths(heading: &[&str], cells: &[Vec<String>], width: u16) -> Vec<u16> {
    let wide = |text: &str| u16::try_from(Line::from(text).width()).unwrap_or(u16::MAX);
    let mut widths: Vec<u16> = heading.iter().map(|name| wide(name.trim_start_matches('>'))).collect();
    for row in cells {
        for (most, cell) in widths.iter_mut().zip(row) {
            *most = (*most).max(wide(cell));
        }
    }
    let Some(last) = widths.pop() else { return widths };
    let gaps = SPACING.saturating_mul(u16::try_from(widths.len()).unwrap_or(u16::MAX));
    let room = width.saturating_sub(gaps).saturating_sub(last.min(LAST_COLUMN_MIN));
    while widths.iter().map(|it| u32::from(*it)).sum::<u32>() > u32::from(room) {
        match widths.iter_mut().max() {
            Some(widest) if *widest > 1 => *widest -= 1,
            _ => break,
        }
    }
    let used: u16 = widths.iter().sum();
    widths.push(width.saturating_sub(gaps).saturating_sub(used));
    widths
}

/// Columns between two cells.
const SPACING: u16 = 2;
/// The last column has the reasons, which are long. It keeps at least this width.
const LAST_COLUMN_MIN: u16 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_columns_give_way_first() {
        let cells = vec![vec!["1".to_owned(), "n".repeat(90), "s".repeat(9), "w".repeat(90)]];
        assert_eq!(widths(&[">ID", "NAME", "STATE", "WHY"], &cells, 80), [2, 47, 9, 16]);
        assert_eq!(widths(&["A", "B"], &[vec!["x".to_owned(), "y".to_owned()]], 10), [1, 7]);
    }
}
