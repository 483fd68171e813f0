//! The terminal of `longshore top`: raw mode and the alternate screen, which are left again at every end, and the keys.
//!
//! The screen is restored when the guard is dropped, so also while a panic unwinds; a hook does it before the panic's message is written.

use std::io::{self, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use tokio::sync::mpsc;

/// True while the terminal is ours.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while it is ours.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// The terminal cannot be set. It is as before then.
    pub(super) fn take() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore(&mut io::stdout());
            before(panic);
        }));
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::SeqCst);
        let taken = execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match taken {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                restore(&mut io::stdout());
                Err(error)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore(&mut io::stdout());
    }
}

/// Gives the terminal back, once. A terminal that is gone needs nothing.
fn restore(to: &mut impl Write) {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
        let _ = execute!(to, LeaveAlternateScreen, cursor::Show);
    }
}

/// Reads keys and changes of the size on a thread of its own, which ends with the program or with its receiver.
pub(super) fn events() -> mpsc::Receiver<io::Result<Event>> {
    let (to, events) = mpsc::channel(EVENTS_MAX);
    std::thread::spawn(move || {
        loop {
            let next = match event::poll(POLL) {
                Ok(false) if to.is_closed() => return,
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            let is_over = next.is_err();
            if to.blocking_send(next).is_err() || is_over {
                return;
            }
        }
    });
    events
}

/// Keys that wait for the view; a held key makes thirty in a second.
const EVENTS_MAX: usize = 64;
/// How long the thread outlives its receiver.
const POLL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_is_given_back_once() {
        let mut bytes = Vec::new();
        restore(&mut bytes);
        assert!(bytes.is_empty(), "it was not taken");
        IS_TAKEN.store(true, Ordering::SeqCst);
        restore(&mut bytes);
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert_eq!(text, "\x1b[?1049l\x1b[?25h");
        restore(&mut bytes);
        assert_eq!(bytes.len(), text.len());
    }
}
