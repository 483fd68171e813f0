//! `longshore top`: a live view of jobs, workers and definitions in a terminal.
//!
//! `feed` brings what the server knows, `keys` what the user wants, `model` holds both, and `draw` shows it. This file joins them.

mod details;
mod draw;
mod feed;
mod keys;
mod model;
mod paint;
mod table;
mod terminal;

use std::io::IsTerminal as _;
use std::time::Duration;

use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::Event;
use reqwest::Method;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use self::feed::Watched;
use self::keys::Command;
use self::model::{Mode, Model, Tab, Update};
use self::terminal::Screen;
use crate::api::{self, Api};
use crate::args::ServerArgs;
use crate::failure::{Exit, Failure};
use crate::screen;
use crate::view::{Job, JobView as _};

/// Watch jobs, workers and definitions in the terminal.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore top
  longshore top --tab workers
  longshore top --once               print the view once, for a script or a message

Keys: q quit, ? help, / filter, j k or arrows move, Tab next table, Enter details and last output,
c cancel a job after a question. NO_COLOR=1 leaves colours out.")]
pub(crate) struct Flags {
    #[command(flatten)]
    server_args: ServerArgs,
    /// The table to begin with.
    #[arg(long, value_enum, default_value_t, value_name = "TABLE")]
    tab: Tab,
    /// Show only rows that contain this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Print the view once, as text, and end. Needs no terminal.
    #[arg(long)]
    once: bool,
}

/// Shows the view until the user ends it.
pub(crate) async fn top(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.server_args)?;
    let mut model = Model::new(flags.server_args.address.clone(), flags.tab);
    model.filter = flags.filter.unwrap_or_default();
    if flags.once {
        return print_once(&api, model).await;
    }
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Failure::new(Exit::Usage, "top needs a terminal")
            .hint("print the view once with --once, or use 'longshore ls' in scripts")
            .into());
    }
    let (watch, watched) = watch::channel(watched_by(&model));
    let (to, updates) = mpsc::channel(UPDATES_MAX);
    let follower = tokio::spawn(feed::follow(api.clone(), watched, to.clone()));
    let end = View { api, model, watch, to, updates }.run().await;
    follower.abort();
    end
}

/// The running view.
struct View {
    api: Api,
    model: Model,
    watch: watch::Sender<Watched>,
    to: mpsc::Sender<Update>,
    updates: mpsc::Receiver<Update>,
}

impl View {
    async fn run(mut self) -> anyhow::Result<()> {
        // Before the terminal is taken, so that a signal never leaves it behind.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let has_colour = screen::stdout_has_colour();
        let mut screen = Screen::take()?;
        let mut events = terminal::events();
        // Ages grow without events.
        let mut clock = tokio::time::interval(TICK);
        loop {
            screen.terminal.draw(|frame| draw::draw(frame, &self.model, has_colour, Timestamp::now()))?;
            self.watch
                .send_if_modified(|watched| std::mem::replace(watched, watched_by(&self.model)) != *watched);
            tokio::select! {
                Some(update) = self.updates.recv() => self.model.apply(update, Timestamp::now()),
                event = events.recv() => match event {
                    Some(Ok(Event::Key(key))) => {
                        match keys::press(&mut self.model, key, Timestamp::now()) {
                            Some(Command::Quit) => return Ok(()),
                            Some(Command::Cancel(id)) => {
                                tokio::spawn(cancel(self.api.clone(), id, self.to.clone()));
                            }
                            None => {}
                        }
                    }
                    // The next frame has the new size.
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(anyhow::Error::new(error).context("cannot read the terminal")),
                    None => return Ok(()),
                },
                _ = clock.tick() => {}
                _ = terminate.recv() => return ended_by(15),
                _ = hangup.recv() => return ended_by(1),
                _ = interrupt.recv() => return ended_by(2),
            }
        }
    }
}

/// The exit code of a program that a signal ended, as shells count.
fn ended_by(signal: u8) -> anyhow::Result<()> {
    Err(Failure::silent(Exit::Container(128 + signal)).into())
}

fn watched_by(model: &Model) -> Watched {
    let details = match model.mode {
        Mode::Details(id, _) => Some(id),
        _ => None,
    };
    Watched { tab: model.tab, details }
}

/// Cancels a job and reports what became of it.
async fn cancel(api: Api, id: u64, to: mpsc::Sender<Update>) {
    let request = api.request(Method::POST, &["api", "jobs", &id.to_string(), "cancel"]);
    let answer = match api.json(request).await {
        Ok(json) => api::parse::<Job>(&api, &json).map(|job| format!("job {id} is {}", job.state_text())),
        Err(error) => Err(error),
    };
    let text = answer.unwrap_or_else(|error| format!("job {id}: {error:#}"));
    // The view may be gone.
    let _ = to.send(Update::Notice(text)).await;
}

/// Prints one frame as text, as large as COLUMNS and LINES say.
async fn print_once(api: &Api, mut model: Model) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let jobs = feed::read_jobs(api).await?;
    model.apply(Update::Connected, now);
    model.apply(Update::Jobs(Box::new(jobs)), now);
    model.apply(Update::Workers(feed::read_workers(api).await?), now);
    if model.tab == Tab::Definitions {
        let json = api.json(api.get(&["api", "definitions"])).await?;
        model.apply(Update::Definitions(api::parse(api, &json)?), now);
    }
    let size = |variable: &str, default: u16| {
        let given = std::env::var(variable).ok().and_then(|text| text.parse().ok());
        given.filter(|size| SIZES.contains(size)).unwrap_or(default)
    };
    let Ok(mut terminal) = Terminal::new(TestBackend::new(size("COLUMNS", 80), size("LINES", 24)));
    let Ok(_) = terminal.draw(|frame| draw::draw(frame, &model, false, now));
    let mut lines = text_of(terminal.backend().buffer());
    // The last line names keys, which do nothing here.
    lines.pop();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    screen::line(&lines.join("\n"))
}

/// The lines of a frame without the spaces at their ends.
fn text_of(frame: &Buffer) -> Vec<String> {
    let width = usize::from(frame.area.width).max(1);
    let line = |cells: &[ratatui::buffer::Cell]| {
        let text: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.trim_end().to_owned()
    };
    frame.content.chunks(width).map(line).collect()
}

/// Updates that wait for the view; a re-read makes three.
const UPDATES_MAX: usize = 16;
/// Ages and running times have seconds.
const TICK: Duration = Duration::from_secs(1);
/// Sizes of a frame that can be asked for.
const SIZES: std::ops::RangeInclusive<u16> = 1..=500;
