//! The full-screen view: the stored readings, and where the user is in them.
//!
//! ```text
//!   readings   first .. last, now     a change is since the last reading or since the first
//!   views      processes -> control groups -> mappings by file -> cached files
//!   enter      a control group: its processes; a process: its mappings
//! ```
//!
//! Owns no terminal: keys come as [`Step`], and a [`Picture`] is text. Invariant V1: a selected
//! item stays selected while it exists, wherever a new reading moves its row.

use super::board_rows::{self, Grid, Key, Since, View};
use super::group::Sort;
use super::state::State;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Up(usize),
    Down(usize),
    First,
    Last,
    Open,
    Back,
    Sort,
    /// Switches between shares, changes since the last reading, and changes since the start.
    Since,
    View,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    pub title: String,
    /// Memory by folio size; empty for cached files.
    pub totals: Grid,
    /// The table's content and order.
    pub heading: String,
    pub table: Grid,
    pub chosen: usize,
}

#[derive(Debug)]
pub struct Board {
    first: State,
    last: State,
    now: State,
    views: Vec<View>,
    entered: Vec<View>,
    view: usize,
    since: Since,
    sort: Sort,
    chosen: Option<Key>,
    /// The selected row's position, used if its item disappears.
    at: usize,
}

impl Board {
    #[must_use]
    pub fn new(reading: State, sort: Sort) -> Self {
        let mut views = Vec::new();
        if reading.files.is_empty() || !reading.processes.is_empty() {
            views = vec![View::Processes, View::Groups, View::Mappings];
        }
        if !reading.files.is_empty() {
            views.push(View::Files);
        }
        let mut board = Self {
            first: reading.clone(),
            last: reading.clone(),
            now: reading,
            views,
            entered: Vec::new(),
            view: 0,
            since: Since::Now,
            sort,
            chosen: None,
            at: 0,
        };
        // With one process, shows its mappings, as the text output does.
        if let [process] = board.now.processes.as_slice() {
            let own = View::OfProcess(process.pid, process.name.clone());
            board.entered.push(own);
        }
        board
    }

    pub fn add(&mut self, reading: State) {
        self.last = std::mem::replace(&mut self.now, reading);
        self.settle();
    }

    pub fn step(&mut self, step: Step) {
        let keys = self.keys();
        let at = self.place(&keys);
        let to = match step {
            Step::Up(nr) => at.saturating_sub(nr),
            Step::Down(nr) => at.saturating_add(nr),
            Step::First => 0,
            Step::Last => usize::MAX,
            Step::Open => return self.open(keys.get(at)),
            Step::Back => {
                self.entered.pop();
                return self.settle();
            }
            Step::Sort => {
                self.sort = self.sort.next();
                return self.settle();
            }
            Step::Since => {
                self.since = match self.since {
                    Since::Now => Since::Last,
                    Since::Last => Since::Start,
                    Since::Start => Since::Now,
                };
                return self.settle();
            }
            Step::View => {
                self.entered.clear();
                self.view = (self.view + 1) % self.views.len().max(1);
                (self.chosen, self.at) = (None, 0);
                return;
            }
        };
        self.at = to.min(keys.len().saturating_sub(1));
        self.chosen = keys.into_iter().nth(self.at);
    }

    #[must_use]
    pub fn picture(&self) -> Picture {
        let rows = self.rows();
        let keys: Vec<Key> = rows.iter().map(|row| row.key.clone()).collect();
        let view = self.current_view();
        let totals = match view {
            View::Files => Grid::default(),
            _ => board_rows::totals(&self.first, &self.last, &self.now),
        };
        Picture {
            title: board_rows::title(&self.now),
            totals,
            heading: board_rows::heading(view, self.since, self.sort),
            table: board_rows::grid(view, self.since, &self.now, &rows),
            chosen: self.place(&keys),
        }
    }

    fn open(&mut self, key: Option<&Key>) {
        let inner = match key {
            Some(Key::Process(pid, name)) => View::OfProcess(*pid, name.clone()),
            Some(Key::Group(group)) => View::OfGroup(group.clone()),
            _ => return,
        };
        self.entered.push(inner);
        (self.chosen, self.at) = (None, 0);
    }

    fn current_view(&self) -> &View {
        self.entered.last().unwrap_or(&self.views[self.view.min(self.views.len() - 1)])
    }

    fn rows(&self) -> Vec<board_rows::BoardRow> {
        let old = if self.since == Since::Start { &self.first } else { &self.last };
        board_rows::rows(self.current_view(), old, &self.now, self.since, self.sort)
    }

    fn keys(&self) -> Vec<Key> {
        self.rows().into_iter().map(|row| row.key).collect()
    }

    /// Returns the selected item's row (V1).
    fn place(&self, keys: &[Key]) -> usize {
        let chosen_at = self.chosen.as_ref().and_then(|own| keys.iter().position(|key| key == own));
        chosen_at.unwrap_or(self.at).min(keys.len().saturating_sub(1))
    }

    fn settle(&mut self) {
        let keys = self.keys();
        self.at = self.place(&keys);
    }
}

#[cfg(test)]
mod tests {
    use largefolio_linux::census::folios::{Cell, MemoryKind, Size};

    use super::super::change::tests::state;
    use super::*;

    fn board() -> Board {
        let processes = [(1, "init", 4, 0), (2, "db", 8192, 0), (3, "web", 512, 2048)];
        Board::new(state("a", &processes), Sort::Size)
    }

    fn names(board: &Board) -> Vec<String> {
        let picture = board.picture();
        let at = picture.table.name_column;
        picture.table.rows.iter().map(|row| row[at].clone()).collect()
    }

    #[test]
    fn the_selected_row_stays_selected_when_it_moves() {
        let mut board = board();
        assert_eq!(names(&board), ["db", "web", "init"]);
        board.step(Step::Down(1));
        board.add(state("a", &[(1, "init", 4, 0), (2, "db", 8192, 0), (3, "web", 9000, 0)]));
        assert_eq!(names(&board), ["web", "db", "init"]);
        assert_eq!(board.picture().chosen, 0);
        board.add(state("a", &[(1, "init", 4, 0), (2, "db", 8192, 0)]));
        assert_eq!((names(&board).len(), board.picture().chosen), (2, 0));
    }

    #[test]
    fn sizes_below_one_per_cent_share_a_row_until_they_grow() {
        let with = |orders: &[(u32, u64)]| {
            let mut reading = state("a", &[(1, "db", 8192, 2048)]);
            for (order, bytes) in orders {
                let cell = Cell { aligned_bytes: *bytes, ..Cell::default() };
                reading.totals.add(MemoryKind::Anon, Size::Order(*order), &cell);
            }
            reading
        };
        let sizes = |board: &Board| {
            board.picture().totals.rows.into_iter().map(|row| row[0].clone()).collect::<Vec<_>>()
        };
        let one = Board::new(with(&[(2, 16 << 10)]), Sort::Size);
        assert!(sizes(&one).contains(&"16K".to_owned()), "{:?}", sizes(&one));
        let mut few = Board::new(with(&[(2, 16 << 10), (3, 32 << 10)]), Sort::Size);
        let folded = sizes(&few);
        assert_eq!(folded[folded.len() - 2..], ["2 others".to_owned(), "all".to_owned()]);
        let all = &few.picture().totals.rows[folded.len() - 2][1];
        assert_eq!(all, "48 KiB");
        few.add(with(&[(2, 16 << 10), (3, 4 << 20)]));
        assert!(sizes(&few).contains(&"32K".to_owned()), "{:?}", sizes(&few));
    }

    #[test]
    fn rows_end_at_the_ends() {
        let mut board = board();
        for (step, at) in [
            (Step::Up(1), 0),
            (Step::Down(100), 2),
            (Step::First, 0),
            (Step::Last, 2),
            (Step::Up(1), 1),
        ] {
            board.step(step);
            assert_eq!(board.picture().chosen, at, "{step:?}");
        }
    }

    #[test]
    fn groups_and_processes_can_be_entered_and_left() {
        let mut board = board();
        board.step(Step::View);
        assert!(board.picture().heading.starts_with("control groups"));
        board.step(Step::Open);
        assert_eq!(names(&board), ["db"]);
        board.step(Step::Open);
        assert_eq!(names(&board), ["[heap]"]);
        board.step(Step::Open);
        for heading in ["processes of", "control groups", "control groups"] {
            board.step(Step::Back);
            assert!(board.picture().heading.starts_with(heading), "{}", board.picture().heading);
        }
    }

    #[test]
    fn changes_are_since_the_last_reading_or_the_start() {
        let mut board = board();
        for large in [2048, 6144] {
            board.add(state("a", &[(2, "db", 8192, large)]));
        }
        board.step(Step::Since);
        let last = board.picture().table;
        assert_eq!(last.rows.len(), 1, "{last:?}");
        assert!(last.rows[0].contains(&"+4 MiB".to_owned()), "{last:?}");
        board.step(Step::Since);
        let start = board.picture().table;
        assert!(start.rows[0].contains(&"+6 MiB".to_owned()), "{start:?}");
        assert!(start.rows.iter().any(|row| row.contains(&"ended".to_owned())), "{start:?}");
    }

    #[test]
    fn names_do_not_drive_the_terminal() {
        let name = "a\u{1b}[2J\n\u{202e}b";
        let mut board =
            Board::new(state("a\u{9b}", &[(2, name, 4, 0), (3, "x", 4, 0)]), Sort::Size);
        for step in [Step::First, Step::View, Step::Open, Step::Open, Step::View] {
            board.step(step);
            let text = format!("{:?}", board.picture());
            assert!(!text.contains("\\u{") && !text.contains("\\n"), "{step:?}: {text}");
        }
        assert!(
            names(&Board::new(state("a", &[(2, name, 4, 0), (3, "x", 4, 0)]), Sort::Size))
                .contains(&"a?[2J??b".to_owned())
        );
    }

    #[test]
    fn nothing_is_left_without_an_error() {
        let mut board = board();
        board.step(Step::Last);
        board.add(state("a", &[]));
        for step in [Step::Open, Step::Down(1), Step::Sort, Step::Since, Step::View, Step::Back] {
            board.step(step);
            assert!(board.picture().chosen == 0, "{step:?}");
        }
        let alone = Board::new(state("a", &[(7, "one", 4, 0)]), Sort::Size);
        assert_eq!(names(&alone), ["[heap]"]);
    }
}
