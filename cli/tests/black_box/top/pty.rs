//! A program on a pseudo terminal, and the screen that it draws there.
//!
//! The screen understands what `longshore top` may send, and nothing else: any other control sequence ends the test.

#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use testkit::wait_for;

/// The program and its terminal.
pub(crate) struct Pty {
    controller: File,
    child: Child,
    screen: Arc<Mutex<Screen>>,
}

impl Pty {
    /// Starts the program on a terminal of 80 columns and 24 lines.
    pub(crate) fn start(arguments: &[&str], address: &str) -> Self {
        let (controller, user) = open();
        tcsetwinsize(&controller, size(80, 24)).unwrap();
        // A size that changes is signalled to the terminal's own session only.
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_longshore")]).args(arguments);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TERM", "xterm")
            .env("LONGSHORE_SERVER", address);
        let copy = || Stdio::from(user.try_clone().unwrap());
        let child = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().unwrap();
        drop((command, user));
        let screen = Arc::new(Mutex::new(Screen::new(80, 24)));
        let shown = Arc::clone(&screen);
        let controller = File::from(controller);
        let mut reader = controller.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails once the program has closed the terminal.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                shown.lock().unwrap().take(&bytes[..count]);
            }
        });
        Self { controller, child, screen }
    }

    /// Types these keys.
    pub(crate) fn send(&mut self, keys: &str) {
        self.controller.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, columns: u16, lines: u16) {
        self.screen.lock().unwrap().resize(columns, lines);
        tcsetwinsize(&self.controller, size(columns, lines)).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until a line contains this, and returns the line.
    pub(crate) async fn wait_for_line(&self, text: &str) -> String {
        let found = async || self.lines().into_iter().find(|line| line.contains(text));
        wait_for(&format!("a line with {text:?}"), found).await
    }

    /// Waits until no line contains this.
    pub(crate) async fn wait_until_gone(&self, text: &str) {
        let gone = async || self.lines().iter().all(|line| !line.contains(text)).then_some(());
        wait_for(&format!("no line with {text:?}"), gone).await;
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.screen.lock().unwrap().lines()
    }

    /// Waits for the end, checks that the terminal is as it was before, and returns the exit code and what is then on the screen.
    pub(crate) async fn end(mut self) -> (i32, Vec<String>) {
        let status = wait_for("the end of the program", async || self.child.try_wait().unwrap()).await;
        let modes = tcgetattr(&self.controller).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG), "{modes:?}");
        let restored = async || {
            let screen = self.screen.lock().unwrap();
            (!screen.is_alternate && screen.has_cursor).then_some(())
        };
        wait_for("the screen from before", restored).await;
        (status.code().unwrap(), self.lines())
    }
}

/// The two ends of a new terminal: the controller's, and the program's.
fn open() -> (OwnedFd, OwnedFd) {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let user = rustix::fs::open(name, flags, Mode::empty()).unwrap();
    (controller, user)
}

/// Everything that a program writes to a terminal with these variables, until it ends.
pub(crate) fn written(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let (controller, user) = open();
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    command.args(arguments).env_clear().envs(variables.iter().copied());
    let copy = || Stdio::from(user.try_clone().unwrap());
    let mut child = command.stdin(Stdio::null()).stdout(copy()).stderr(copy()).spawn().unwrap();
    drop((command, user));
    let (mut controller, mut bytes) = (File::from(controller), Vec::new());
    // Reading fails once the program has closed the terminal.
    let _ = controller.read_to_end(&mut bytes);
    child.wait().unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Drop for Pty {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const fn size(columns: u16, lines: u16) -> Winsize {
    Winsize { ws_col: columns, ws_row: lines, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Characters in their places.
struct Screen {
    cells: Vec<Vec<char>>,
    line: usize,
    column: usize,
    is_alternate: bool,
    has_cursor: bool,
    /// Bytes of a sequence or character that is not complete.
    rest: Vec<u8>,
}

impl Screen {
    fn new(columns: u16, lines: u16) -> Self {
        let mut screen = Self {
            cells: Vec::new(),
            line: 0,
            column: 0,
            is_alternate: false,
            has_cursor: true,
            rest: Vec::new(),
        };
        screen.resize(columns, lines);
        screen
    }

    fn resize(&mut self, columns: u16, lines: u16) {
        self.cells = vec![vec![' '; usize::from(columns)]; usize::from(lines)];
    }

    fn lines(&self) -> Vec<String> {
        self.cells.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect()
    }

    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.rest);
        // A character at the end may be incomplete.
        let whole = std::str::from_utf8(&bytes).map_or_else(|error| error.valid_up_to(), str::len);
        let text = std::str::from_utf8(&bytes[..whole]).unwrap();
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            if c != '\x1b' {
                self.put(c);
                at += c.len_utf8();
                continue;
            }
            // A sequence ends with its first letter; it may come in parts.
            let sequence = &text[at + 1..];
            let Some(end) = sequence.find(|c: char| c.is_ascii_alphabetic()) else { break };
            self.control(&sequence[..=end]);
            at += end + 2;
        }
        self.rest = bytes[at..].to_vec();
    }

    fn put(&mut self, c: char) {
        match c {
            '\n' => self.line += 1,
            '\r' => self.column = 0,
            c => {
                assert!(!c.is_control(), "{c:?} reached the terminal");
                // Text that comes between two sizes may be outside.
                if let Some(cell) = self.cells.get_mut(self.line).and_then(|line| line.get_mut(self.column)) {
                    *cell = c;
                }
                self.column += 1;
            }
        }
    }

    fn control(&mut self, sequence: &str) {
        let Some(sequence) = sequence.strip_prefix('[') else {
            panic!("ESC {sequence:?} reached the terminal")
        };
        let number = |text: &str| text.parse::<usize>().unwrap_or(1) - 1;
        match sequence {
            "?1049h" => self.is_alternate = true,
            "?1049l" => {
                self.is_alternate = false;
                let (columns, lines) = (self.cells[0].len(), self.cells.len());
                self.cells = vec![vec![' '; columns]; lines];
                (self.line, self.column) = (0, 0);
            }
            "?25h" => self.has_cursor = true,
            "?25l" => self.has_cursor = false,
            "2J" | "J" => self.cells.iter_mut().for_each(|line| line.fill(' ')),
            _ if sequence.ends_with('m') => {}
            _ => {
                let place = sequence.strip_suffix('H').and_then(|place| place.split_once(';'));
                let Some((line, column)) = place else { panic!("CSI {sequence:?} reached the terminal") };
                (self.line, self.column) = (number(line), number(column));
            }
        }
    }
}
