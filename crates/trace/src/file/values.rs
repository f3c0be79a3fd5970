//! One column of a batch.
//!
//! Owns the initialized memory for its rows and reuses it from batch to batch. No cell is written
//! twice. A column with one value throughout (in most traces: thread, file and flags) is not
//! written at all. Invariants:
//! - I1: the rows are `cells[..len]`.
//! - I2: `uniform` is `Some((value, nr))`: the first `nr` cells hold `value`.

#[derive(Clone, Debug)]
pub(super) struct Values<T> {
    cells: Vec<T>,
    len: usize,
    uniform: Option<(T, usize)>,
}

impl<T> Default for Values<T> {
    fn default() -> Self {
        Self { cells: Vec::new(), len: 0, uniform: None }
    }
}

impl<T: Copy + Default + PartialEq> Values<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn as_slice(&self) -> &[T] {
        &self.cells[..self.len]
    }

    pub(super) fn uniform(&self) -> Option<T> {
        self.uniform.filter(|&(_, nr)| nr >= self.len).map(|(value, _)| value)
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn push(&mut self, value: T) {
        self.append(1)[0] = value;
    }

    pub(super) fn append(&mut self, nr: usize) -> &mut [T] {
        let (start, end) = (self.len, self.len + nr);
        self.uniform = None;
        if self.cells.len() < end {
            self.cells.resize(end, T::default());
        }
        self.len = end;
        &mut self.cells[start..end]
    }

    pub(super) fn fill(&mut self, value: T, nr: usize) {
        if self.len > 0 {
            self.append(nr).fill(value);
            return;
        }
        if self.uniform.is_none_or(|(held, nr_held)| held != value || nr_held < nr) {
            self.append(nr).fill(value);
            self.uniform = Some((value, nr));
        }
        self.len = nr;
    }
}

impl<T: Copy + Default + PartialEq> PartialEq for Values<T> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Copy + Default + Eq> Eq for Values<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_what_was_appended_whatever_it_held_before() {
        let mut column = Values::default();
        column.fill(7_u32, 5);
        assert_eq!((column.as_slice(), column.uniform()), (&[7; 5][..], Some(7)));
        column.clear();
        column.fill(7, 3);
        assert_eq!((column.as_slice(), column.uniform()), (&[7; 3][..], Some(7)));
        column.clear();
        column.fill(7, 6);
        assert_eq!((column.as_slice(), column.uniform()), (&[7; 6][..], Some(7)));
        column.push(8);
        assert_eq!((column.as_slice(), column.uniform()), (&[7, 7, 7, 7, 7, 7, 8][..], None));
        column.clear();
        column.append(2).copy_from_slice(&[1, 2]);
        column.fill(7, 2);
        assert_eq!((column.as_slice(), column.uniform()), (&[1, 2, 7, 7][..], None));
        column.clear();
        column.fill(7, 4);
        assert_eq!((column.as_slice(), column.uniform()), (&[7; 4][..], Some(7)));
        column.clear();
        column.fill(9, 2);
        assert_eq!((column.as_slice(), column.uniform()), (&[9; 2][..], Some(9)));
        column.clear();
        column.fill(7, 4);
        assert_eq!(column.as_slice(), [7; 4]);
    }

    #[test]
    fn columns_are_equal_by_their_rows() {
        let (mut one, mut other) = (Values::default(), Values::default());
        one.fill(1_u8, 9);
        one.clear();
        one.fill(1, 2);
        other.push(1);
        assert_ne!(one, other);
        other.push(1);
        assert_eq!(one, other);
    }
}
