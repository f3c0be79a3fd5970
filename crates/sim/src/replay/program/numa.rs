//! Starts the program on its node, with its memory policy.

use crate::replay::cell::Cell;
use crate::replay::error::CellError;
use crate::replay::program::space::SpaceNr;

impl Cell {
    /// Runs the first program as numactl does; its children inherit both.
    pub(crate) fn place_on_node(&mut self, space: SpaceNr) -> Result<(), CellError> {
        let Some(numa) = self.spec.numa else { return Ok(()) };
        let mm = self.program.spaces[space].mm;
        Ok(self.change(|memory| memory.set_node_place(mm, numa.0))?)
    }
}
