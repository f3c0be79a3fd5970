//! Long-running work: announces its duration, reports its progress, and stops it in time.
//!
//! ```text
//!   terminal      a bar; with the total time once the pace is known
//!   elsewhere     the same sentence, then a line every ten seconds
//!   --within      the work is notified when its time is over
//! ```
//!
//! Owns the clock and the messages. Does not own the results of work that stops early.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::console;

/// Milliseconds between two lines, for tests.
const EVERY_MS: &str = "LARGEFOLIO_PROGRESS_MS";
const EVERY: Duration = Duration::from_secs(10);
/// The pace is known well enough after `EVERY / PACE_PART`.
const PACE_PART: u32 = 10;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkKind {
    Replaying,
    Searching,
    Explaining,
    /// Each round takes long, so rounds are counted one by one, and a thread reports progress
    /// within a round.
    Rounds,
}

impl WorkKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Replaying => "replaying",
            Self::Searching => "searching",
            Self::Explaining => "explaining",
            Self::Rounds => "rounds",
        }
    }
}

pub(crate) struct Work {
    what: WorkKind,
    bar: ProgressBar,
    clock: Clock,
    started: Instant,
    /// Reports progress within a long part.
    ticker: Option<Ticker>,
}

/// A thread that reports progress within a long part.
struct Ticker {
    nr_done: Arc<AtomicU64>,
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Ticker {
    fn start(what: WorkKind, nr_all: Option<u64>, every: Duration) -> Option<Self> {
        let (end, ended) = channel();
        let (nr_done, started) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let counter = Arc::clone(&nr_done);
        let tick = move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let (now, nr_done) = (started.elapsed(), counter.load(Relaxed));
                console::say(&line(what, now, nr_done, nr_all));
            }
        };
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(tick).ok()?;
        Some(Self { nr_done, end, thread })
    }

    fn end(self) {
        drop(self.end);
        let _ = self.thread.join();
    }
}

/// Decides which message is due when, independent of the real clock.
#[derive(Debug)]
struct Clock {
    every: Duration,
    last_line: Duration,
    is_announced: bool,
    nr_all: Option<u64>,
    within: Option<Duration>,
}

/// The message that is due.
#[derive(Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    /// The expected total time.
    Announcement(Duration),
    /// The progress so far.
    Line,
}

impl Clock {
    fn new(every: Duration, nr_all: Option<u64>, within: Option<Duration>) -> Self {
        Self { every, last_line: Duration::ZERO, is_announced: false, nr_all, within }
    }

    /// Returns the message due at `now`, with `nr_done` parts done. Work that takes less time than
    /// between two lines is not announced.
    fn tick(&mut self, now: Duration, nr_done: u64) -> Due {
        let known = self.nr_all.filter(|&all| nr_done > 0 && nr_done < all);
        if !self.is_announced
            && now >= self.every / PACE_PART
            && let Some(all) = known
        {
            self.is_announced = true;
            let whole = times(now, all, nr_done);
            let whole = self.within.map_or(whole, |within| whole.min(within));
            return if whole > self.every { Due::Announcement(whole) } else { Due::Nothing };
        }
        if now.saturating_sub(self.last_line) >= self.every {
            self.last_line = now;
            return Due::Line;
        }
        Due::Nothing
    }

    fn is_over(&self, now: Duration) -> bool {
        self.within.is_some_and(|within| now >= within)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time is read to two digits")]
fn times(time: Duration, nr: u64, of: u64) -> Duration {
    let seconds = time.as_secs_f64() * nr as f64 / of as f64;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

impl Work {
    /// Starts work with `nr_all` known parts and at most `within` time.
    pub(crate) fn new(what: WorkKind, nr_all: Option<u64>, within: Option<Duration>) -> Self {
        let bar = match nr_all {
            Some(nr) if what == WorkKind::Rounds => console::counter(nr, what.name()),
            Some(nr) => console::bar(nr, what.name()),
            None => console::status(),
        };
        let every = std::env::var(EVERY_MS).ok().and_then(|text| text.parse().ok());
        let every = every.map_or(EVERY, Duration::from_millis);
        let is_slow = what == WorkKind::Rounds && !std::io::stderr().is_terminal();
        let ticker = if is_slow { Ticker::start(what, nr_all, every) } else { None };
        let clock = Clock::new(every, nr_all, within);
        Self { what, bar, clock, started: Instant::now(), ticker }
    }

    /// Takes a new count of finished parts, prints the message that is due, and breaks if time is
    /// up.
    pub(crate) fn update(&mut self, nr_done: u64, nr_all: u64) -> ControlFlow<()> {
        if self.clock.nr_all != Some(nr_all) {
            self.clock.nr_all = Some(nr_all);
            self.bar.set_length(nr_all);
        }
        self.done(nr_done)
    }

    pub(crate) fn done(&mut self, nr_done: u64) -> ControlFlow<()> {
        let now = self.started.elapsed();
        self.bar.set_position(nr_done);
        if let Some(ticker) = &self.ticker {
            ticker.nr_done.store(nr_done, Relaxed);
        }
        match self.clock.tick(now, nr_done) {
            Due::Nothing => {}
            Due::Announcement(whole) => {
                let text = format!("folio: {}: about {} in all", self.what.name(), about(whole));
                self.bar.suspend(|| console::say(&text));
            }
            Due::Line if self.ticker.is_some() || std::io::stderr().is_terminal() => {}
            Due::Line => console::say(&line(self.what, now, nr_done, self.clock.nr_all)),
        }
        if self.clock.is_over(now) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
        if let Some(ticker) = self.ticker {
            ticker.end();
        }
    }
}

/// `folio: replaying: 35% after 20 s, about 37 s left`.
fn line(what: WorkKind, now: Duration, nr_done: u64, nr_all: Option<u64>) -> String {
    let (all, name) = (nr_all.filter(|&all| all > 0), what.name());
    let far = match all {
        Some(all) if what == WorkKind::Rounds => format!("{nr_done} of {all}"),
        Some(all) => format!("{}%", u128::from(nr_done) * 100 / u128::from(all)),
        None => return format!("folio: {name}: {} so far", about(now)),
    };
    let left = all.filter(|&all| nr_done > 0 && nr_done < all).map(|all| {
        let left = times(now, all.saturating_sub(nr_done), nr_done);
        format!(", about {} left", about(left))
    });
    format!("folio: {name}: {far} after {}{}", about(now), left.unwrap_or_default())
}

/// `8 s`, `4 min`, `2.0 h`: two digits.
fn about(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 0.95 => format!("{seconds:.1} s"),
        seconds if seconds < 99.5 => format!("{seconds:.0} s"),
        seconds if seconds < 5970.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn long_work_is_announced_and_reports_every_ten_seconds() {
        let mut clock = Clock::new(10 * SECOND, Some(1000), None);
        assert_eq!(clock.tick(SECOND / 2, 5), Due::Nothing, "the pace is not known yet");
        assert_eq!(clock.tick(SECOND, 0), Due::Nothing, "nothing is done");
        assert_eq!(clock.tick(2 * SECOND, 20), Due::Announcement(100 * SECOND));
        assert_eq!(clock.tick(3 * SECOND, 30), Due::Nothing);
        assert_eq!(clock.tick(10 * SECOND, 100), Due::Line);
        assert_eq!(clock.tick(19 * SECOND, 190), Due::Nothing);
        assert_eq!(clock.tick(21 * SECOND, 210), Due::Line);
        let text = line(WorkKind::Replaying, 25 * SECOND, 250, Some(1000));
        assert_eq!(text, "folio: replaying: 25% after 25 s, about 75 s left");
        assert_eq!(
            line(WorkKind::Rounds, 25 * SECOND, 0, Some(20)),
            "folio: rounds: 0 of 20 after 25 s"
        );
        assert_eq!(
            line(WorkKind::Explaining, 25 * SECOND, 7, None),
            "folio: explaining: 25 s so far"
        );
    }

    #[test]
    fn short_work_prints_nothing_and_within_ends_long_work() {
        let mut clock = Clock::new(10 * SECOND, Some(10), Some(30 * SECOND));
        assert_eq!(clock.tick(SECOND, 5), Due::Nothing, "two seconds in all");
        let mut clock = Clock::new(10 * SECOND, Some(1000), Some(30 * SECOND));
        assert_eq!(clock.tick(SECOND, 1), Due::Announcement(30 * SECOND), "at most --within");
        assert!(!clock.is_over(29 * SECOND) && clock.is_over(30 * SECOND));
        assert!(!Clock::new(SECOND, None, None).is_over(Duration::MAX));
    }

    #[test]
    fn times_are_read_at_a_glance() {
        let times = [0.2, 8.4, 99.0, 240.0, 7200.0].map(Duration::from_secs_f64).map(about);
        assert_eq!(times, ["0.2 s", "8 s", "99 s", "4 min", "2.0 h"]);
    }
}
