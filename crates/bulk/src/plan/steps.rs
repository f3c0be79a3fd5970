//! The steps of a plan, each computed from its index: a plan of a million pages takes no memory.

use super::{Region, Shape, Step, Unit};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Points {
    Before,
    /// After each whole unit, and again at the end, with or without a remainder.
    After,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    pub(super) unit_pages: u64,
    pub(super) points: Points,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Converging { shape: Shape, points: Points },
    Extent { first: u64, nr: u64, region: Region, unit_pages: u64, points: Points },
}

impl Piece {
    pub(super) const fn converging(shape: Shape, points: Points) -> Self {
        Self::Converging { shape, points }
    }

    pub(super) const fn extent(first: u64, nr: u64, region: Region, pace: Pace) -> Self {
        let Pace { unit_pages, points } = pace;
        Self::Extent { first, nr, region, unit_pages, points }
    }

    pub(super) const fn nr_units(&self) -> u64 {
        match *self {
            Self::Converging { shape, .. } => shape.nr_pages,
            Self::Extent { nr, unit_pages, .. } => nr.div_ceil(unit_pages),
        }
    }

    pub(super) const fn nr_points(&self) -> u64 {
        match *self {
            Self::Extent { nr: 0, .. }
            | Self::Extent { points: Points::Never, .. }
            | Self::Converging { points: Points::Never, .. } => 0,
            Self::Extent { nr, unit_pages, points: Points::After, .. } => nr / unit_pages + 1,
            Self::Converging { .. } | Self::Extent { .. } => self.nr_units(),
        }
    }

    fn step(&self, at: u64) -> Option<Step> {
        match *self {
            Self::Converging { shape, points } => numbered(at, shape.nr_pages, points, |k| {
                let first = converging(shape, k);
                Unit { first, nr: 1, region: shape.region(first) }
            }),
            Self::Extent { first, nr, region, unit_pages, points } => {
                let unit = |k: u64| {
                    let done = k * unit_pages; // Below `nr`: `numbered` asks for no other unit.
                    Unit { first: first + done, nr: (nr - done).min(unit_pages), region }
                };
                match points {
                    Points::After => closed(at, nr, unit_pages, unit),
                    _ => numbered(at, nr.div_ceil(unit_pages), points, unit),
                }
            }
        }
    }
}

fn numbered(at: u64, nr_units: u64, points: Points, unit: impl Fn(u64) -> Unit) -> Option<Step> {
    let (k, is_point) = match points {
        Points::Never => (at, false),
        Points::Before | Points::After => (at / 2, at.is_multiple_of(2)),
    };
    if k >= nr_units {
        return None;
    }
    Some(if is_point { Step::Reschedule } else { Step::Unit(unit(k)) })
}

/// Step `at`: each whole unit and a point, then the remainder and another point (D.4.2).
fn closed(at: u64, nr: u64, unit_pages: u64, unit: impl Fn(u64) -> Unit) -> Option<Step> {
    if nr == 0 {
        return None;
    }
    let nr_whole = nr / unit_pages;
    let nr_rest = u64::from(!nr.is_multiple_of(unit_pages));
    let behind = at.checked_sub(2 * nr_whole);
    match behind {
        None if at.is_multiple_of(2) => Some(Step::Unit(unit(at / 2))),
        None => Some(Step::Reschedule),
        Some(0) if nr_rest == 1 => Some(Step::Unit(unit(nr_whole))),
        Some(behind) if behind == nr_rest => Some(Step::Reschedule),
        Some(_) => None,
    }
}

/// Page number `k` in converging order: first the part of the longer side beyond the mirror image
/// of the shorter one, then pairs from outside in (docs/behaviour D.4.1).
fn converging(shape: Shape, k: u64) -> u64 {
    let Shape { nr_pages, fault_page, .. } = shape;
    let is_in_first_half = fault_page <= nr_pages / 2;
    // Pages on each side of the point where the pairs meet.
    let half = if is_in_first_half { fault_page } else { nr_pages - fault_page };
    let nr_single = nr_pages - 2 * half;
    let base = if is_in_first_half { 0 } else { nr_single };
    match k.checked_sub(nr_single) {
        None if is_in_first_half => nr_pages - 1 - k,
        None => k,
        Some(paired) if paired.is_multiple_of(2) => base + paired / 2,
        Some(paired) => base + 2 * half - 1 - paired / 2,
    }
}

/// Units and reschedule points of a [`Plan`](super::Plan) in order.
#[derive(Clone, Debug)]
pub struct Steps {
    pieces: [Piece; 3],
    piece: usize,
    at: u64,
}

impl Steps {
    pub(super) const fn new(pieces: [Piece; 3]) -> Self {
        Self { pieces, piece: 0, at: 0 }
    }
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        while let Some(piece) = self.pieces.get(self.piece) {
            if let Some(step) = piece.step(self.at) {
                self.at += 1;
                return Some(step);
            }
            (self.piece, self.at) = (self.piece + 1, 0);
        }
        None
    }
}
