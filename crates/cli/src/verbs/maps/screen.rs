//! `--watch` on a terminal: a full-screen view.
//!
//! ```text
//!   looker (a thread)   look, wait for the next request       a look may take seconds
//!   keys (a thread)     read, hand over                       may block forever
//!   this thread         keys, signals, looks -> Board -> draw
//! ```
//!
//! Owns the terminal while it is in use. Invariant T1: the terminal is always restored, whether a
//! key, a signal, an error or a panic ends the view.

mod draw;

use std::io::{self, IsTerminal as _};
use std::mem::ManuallyDrop;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use largefolio_linux::signals::Stop;
use largefolio_results::Error;
use largefolio_results::maps::{Board, Look, MapsRequest, Show, State, Step};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::draw::Beside;
use crate::console;

/// The longest delay until a signal or a finished look is noticed.
const SLICE: Duration = Duration::from_millis(100);

pub(super) fn is_possible() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdout().is_terminal() && !is_dumb
}

/// Shows looks at `request`, beginning with `first`, until the user quits.
pub(super) fn run(request: &MapsRequest, first: &Look, show: Show, every: Duration) -> Result<()> {
    let stop = Stop::watch().context("cannot watch for signals")?;
    let notes = request.remarks(first).iter().map(console::words).collect();
    let mut screen = Screen::open()?;
    let mut watching = Watching {
        board: Board::new(State::of(first), show.sort),
        looker: Looker::start(request.clone()),
        keys: keys(),
        beside: Beside { notes, every, nr_looks: 1, help: None },
        next: Instant::now() + every,
        is_drawn: false,
    };
    while stop.asked_by().is_none() {
        match watching.go_on(&mut screen.0) {
            Ok(true) => {}
            // The user is gone with the terminal.
            Err(_) if !io::stdout().is_terminal() => break,
            over => return over.map(|_| ()),
        }
    }
    Ok(())
}

/// The terminal in use, restored on drop (T1). Ratatui would panic if it cannot report an error on
/// a lost terminal.
struct Screen(ManuallyDrop<DefaultTerminal>);

impl Screen {
    fn open() -> Result<Self> {
        // Its panic hook restores the terminal before the message is printed.
        let terminal = ratatui::try_init().inspect_err(|_| drop(ratatui::try_restore()));
        let terminal = terminal.context(
            "cannot show a full-screen view on this terminal; use folio maps .. --watch | cat to \
             print lines instead",
        )?;
        Ok(Self(ManuallyDrop::new(terminal)))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.0.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// Looks, taken in parallel with the keys.
struct Looker {
    ask: Sender<()>,
    looks: Receiver<Result<State, Error>>,
    is_asked: bool,
}

impl Looker {
    /// The thread ends with its receiver, or with the process during a look.
    fn start(request: MapsRequest) -> Self {
        let (ask, asked) = mpsc::channel::<()>();
        let (send, looks) = mpsc::channel();
        thread::spawn(move || {
            while asked.recv().is_ok() {
                let state = request.look().map(|look| State::of(&look));
                if send.send(state).is_err() {
                    return;
                }
            }
        });
        Self { ask, looks, is_asked: false }
    }

    fn ask(&mut self) {
        self.is_asked = self.is_asked || self.ask.send(()).is_ok();
    }

    fn take(&mut self) -> Result<Option<State>> {
        match self.looks.try_recv() {
            Ok(state) => {
                self.is_asked = false;
                Ok(Some(state?))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                Err(anyhow!("the measurement ended in an internal error"))
            }
        }
    }
}

/// Reads keys and sizes of the terminal. The thread ends with the process: on a lost terminal,
/// crossterm reads forever.
fn keys() -> Receiver<Event> {
    let (send, events) = mpsc::channel();
    thread::spawn(move || while event::read().is_ok_and(|event| send.send(event).is_ok()) {});
    events
}

struct Watching {
    board: Board,
    looker: Looker,
    keys: Receiver<Event>,
    beside: Beside,
    next: Instant,
    is_drawn: bool,
}

impl Watching {
    /// Draws changes and handles events; returns whether to continue.
    fn go_on(&mut self, terminal: &mut DefaultTerminal) -> Result<bool> {
        if !self.is_drawn {
            let picture = self.board.picture();
            terminal
                .draw(|frame| draw::draw(frame, &picture, &self.beside))
                .context("cannot write to the terminal")?;
            self.is_drawn = true;
        }
        if Instant::now() >= self.next {
            self.looker.ask();
            self.next = Instant::now() + self.beside.every;
        }
        if let Some(state) = self.looker.take()? {
            self.board.add(state);
            self.beside.nr_looks += 1;
            self.is_drawn = false;
        }
        let left = self.next.saturating_duration_since(Instant::now());
        match self.keys.recv_timeout(left.min(SLICE)) {
            Ok(event) => Ok(self.take(&event)),
            Err(RecvTimeoutError::Timeout) => Ok(io::stdout().is_terminal()),
            Err(RecvTimeoutError::Disconnected) => Err(anyhow!("cannot read keys")),
        }
    }

    /// Handles an event; returns whether to continue.
    fn take(&mut self, event: &Event) -> bool {
        self.is_drawn = false;
        let Event::Key(key) = event else { return true };
        if key.kind == KeyEventKind::Release {
            return true;
        }
        match asked(key) {
            Asked::Quit => return false,
            Asked::Look => self.looker.ask(),
            Asked::Help | Asked::Step(_) if self.beside.help.is_some() => {
                self.beside.help = in_help(&asked(key), self.beside.help.unwrap_or(0));
            }
            Asked::Help => self.beside.help = Some(0),
            Asked::Step(step) => self.board.step(step),
            Asked::Nothing => {}
        }
        true
    }
}

/// Returns the first help line after a key; `None` once the help is closed.
const fn in_help(asked: &Asked, first: usize) -> Option<usize> {
    match asked {
        Asked::Step(Step::Up(nr)) => Some(first.saturating_sub(*nr)),
        Asked::Step(Step::Down(nr)) => Some(first.saturating_add(*nr)),
        Asked::Step(Step::First) => Some(0),
        Asked::Help | Asked::Step(Step::Back | Step::Open) => None,
        _ => Some(first),
    }
}

/// The meaning of a key.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Quit,
    Help,
    /// Look now.
    Look,
    Step(Step),
    Nothing,
}

const PAGE: usize = 10;

fn asked(key: &KeyEvent) -> Asked {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return if key.code == KeyCode::Char('c') { Asked::Quit } else { Asked::Nothing };
    }
    Asked::Step(match key.code {
        KeyCode::Char('q') => return Asked::Quit,
        KeyCode::Char('?' | 'h') => return Asked::Help,
        KeyCode::Char(' ') => return Asked::Look,
        KeyCode::Up | KeyCode::Char('k') => Step::Up(1),
        KeyCode::Down | KeyCode::Char('j') => Step::Down(1),
        KeyCode::PageUp => Step::Up(PAGE),
        KeyCode::PageDown => Step::Down(PAGE),
        KeyCode::Home => Step::First,
        KeyCode::End => Step::Last,
        KeyCode::Enter | KeyCode::Right => Step::Open,
        KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => Step::Back,
        KeyCode::Char('s') => Step::Sort,
        KeyCode::Char('c') => Step::Since,
        KeyCode::Tab => Step::View,
        _ => return Asked::Nothing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_scrolls_and_the_keys_that_leave_a_view_close_it() {
        let after = |code| in_help(&asked(&KeyEvent::new(code, KeyModifiers::NONE)), 3);
        for code in [KeyCode::Esc, KeyCode::Enter, KeyCode::Left, KeyCode::Char('?')] {
            assert_eq!(after(code), None, "{code:?}");
        }
        assert_eq!([after(KeyCode::Up), after(KeyCode::Down)], [Some(2), Some(4)]);
        assert_eq!([after(KeyCode::Home), after(KeyCode::Tab)], [Some(0), Some(3)]);
    }

    #[test]
    fn keys_match_the_help() {
        let plain = |code| asked(&KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(plain(KeyCode::Char('q')), Asked::Quit);
        assert_eq!(plain(KeyCode::Enter), Asked::Step(Step::Open));
        assert_eq!(plain(KeyCode::Char('c')), Asked::Step(Step::Since));
        assert_eq!(plain(KeyCode::Char('x')), Asked::Nothing);
        let control = |c| asked(&KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
        assert_eq!((control('c'), control('q')), (Asked::Quit, Asked::Nothing));
    }
}
