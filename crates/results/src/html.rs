//! Self-contained HTML pages.
//!
//! Reading order: [`markup`] (safe HTML from text), [`frame`] (the frame of every page), [`sizes`]
//! (colours); pictures for any page: [`bars`], [`lanes`], [`lines`] (on `decades`), [`runs`]. Each
//! page is defined next to its result.
//!
//! This code writes the pictures as SVG. A page therefore works on paper and without scripts,
//! consists of the same bytes every time, and needs no charting library. The script adds tooltips,
//! zoom and the choice of light or dark mode; it reads the result from JSON in the page.
//!
//! A number that can be compared with that JSON is marked `<data value="1981"
//! data-at="/rows/0/faults/total">`.

pub mod bars;
pub(crate) mod decades;
pub mod frame;
pub mod lanes;
pub mod lines;
pub mod markup;
pub mod runs;
pub mod sizes;
