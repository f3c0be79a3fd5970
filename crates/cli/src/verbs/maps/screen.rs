//! `--watch` on a terminal: a full-screen view.
//!
//! ```text
//!   reading thread      read the system, wait for a request       a reading may take seconds
//!   keys (a thread)     read, hand over                           may block forever
//!   this thread         keys, signals, readings -> Board -> draw
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
use largefolio_results::maps::{Board, MapsRequest, Reading, Show, State, Step};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::draw::Status;
use crate::console;

/// The longest delay until a signal or a finished reading is noticed.
const SLICE: Duration = Duration::from_millis(100);

pub(super) fn is_possible() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdout().is_terminal() && !is_dumb
}

/// Shows readings of `request`, beginning with `first`, until the user quits.
pub(super) fn run(
    request: &MapsRequest,
    first: &Reading,
    show: Show,
    every: Duration,
) -> Result<()> {
    let stop = Stop::watch().context("cannot watch for signals")?;
    let notes = request.remarks(first).iter().map(console::remark_text).collect();
    let mut screen = Screen::open()?;
    let mut view = View {
        board: Board::new(State::of(first), show.sort),
        reading_thread: ReadingThread::start(request.clone()),
        keys: keys(),
        status: Status { notes, every, nr_readings: 1, help: None },
        next: Instant::now() + every,
        is_drawn: false,
    };
    while stop.asked_by().is_none() {
        match view.advance(&mut screen.0) {
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
struct ReadingThread {
    requests: Sender<()>,
    readings: Receiver<Result<State, Error>>,
    is_requested: bool,
}

impl ReadingThread {
    /// The thread ends with its receiver, or with the process during a reading.
    fn start(request: MapsRequest) -> Self {
        let (requests, received) = mpsc::channel::<()>();
        let (send, readings) = mpsc::channel();
        thread::spawn(move || {
            while received.recv().is_ok() {
                let state = request.take_reading().map(|reading| State::of(&reading));
                if send.send(state).is_err() {
                    return;
                }
            }
        });
        Self { requests, readings, is_requested: false }
    }

    fn request(&mut self) {
        self.is_requested = self.is_requested || self.requests.send(()).is_ok();
    }

    fn take(&mut self) -> Result<Option<State>> {
        match self.readings.try_recv() {
            Ok(state) => {
                self.is_requested = false;
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

struct View {
    board: Board,
    reading_thread: ReadingThread,
    keys: Receiver<Event>,
    status: Status,
    next: Instant,
    is_drawn: bool,
}

impl View {
    /// Draws changes and handles events; returns whether to continue.
    fn advance(&mut self, terminal: &mut DefaultTerminal) -> Result<bool> {
        if !self.is_drawn {
            let picture = self.board.picture();
            terminal
                .draw(|frame| draw::draw(frame, &picture, &self.status))
                .context("cannot write to the terminal")?;
            self.is_drawn = true;
        }
        if Instant::now() >= self.next {
            self.reading_thread.request();
            self.next = Instant::now() + self.status.every;
        }
        if let Some(state) = self.reading_thread.take()? {
            self.board.add(state);
            self.status.nr_readings += 1;
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
        match key_action(key) {
            KeyAction::Quit => return false,
            KeyAction::ReadNow => self.reading_thread.request(),
            KeyAction::Help | KeyAction::Step(_) if self.status.help.is_some() => {
                self.status.help = in_help(&key_action(key), self.status.help.unwrap_or(0));
            }
            KeyAction::Help => self.status.help = Some(0),
            KeyAction::Step(step) => self.board.step(step),
            KeyAction::Nothing => {}
        }
        true
    }
}

/// Returns the first help line after a key; `None` once the help is closed.
const fn in_help(action: &KeyAction, first: usize) -> Option<usize> {
    match action {
        KeyAction::Step(Step::Up(nr)) => Some(first.saturating_sub(*nr)),
        KeyAction::Step(Step::Down(nr)) => Some(first.saturating_add(*nr)),
        KeyAction::Step(Step::First) => Some(0),
        KeyAction::Help | KeyAction::Step(Step::Back | Step::Open) => None,
        _ => Some(first),
    }
}

/// The meaning of a key.
#[derive(Debug, PartialEq, Eq)]
enum KeyAction {
    Quit,
    Help,
    /// Look now.
    ReadNow,
    Step(Step),
    Nothing,
}

const PAGE: usize = 10;

fn key_action(key: &KeyEvent) -> KeyAction {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return if key.code == KeyCode::Char('c') { KeyAction::Quit } else { KeyAction::Nothing };
    }
    KeyAction::Step(match key.code {
        KeyCode::Char('q') => return KeyAction::Quit,
        KeyCode::Char('?' | 'h') => return KeyAction::Help,
        KeyCode::Char(' ') => return KeyAction::ReadNow,
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
        _ => return KeyAction::Nothing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_scrolls_and_closes() {
        let after = |code| in_help(&key_action(&KeyEvent::new(code, KeyModifiers::NONE)), 3);
        for code in [KeyCode::Esc, KeyCode::Enter, KeyCode::Left, KeyCode::Char('?')] {
            assert_eq!(after(code), None, "{code:?}");
        }
        assert_eq!([after(KeyCode::Up), after(KeyCode::Down)], [Some(2), Some(4)]);
        assert_eq!([after(KeyCode::Home), after(KeyCode::Tab)], [Some(0), Some(3)]);
    }

    #[test]
    fn keys_match_the_help() {
        let plain = |code| key_action(&KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(plain(KeyCode::Char('q')), KeyAction::Quit);
        assert_eq!(plain(KeyCode::Enter), KeyAction::Step(Step::Open));
        assert_eq!(plain(KeyCode::Char('c')), KeyAction::Step(Step::Since));
        assert_eq!(plain(KeyCode::Char('x')), KeyAction::Nothing);
        let control = |c| key_action(&KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
        assert_eq!((control('c'), control('q')), (KeyAction::Quit, KeyAction::Nothing));
    }
}
