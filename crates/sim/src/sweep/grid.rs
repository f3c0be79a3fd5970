//! Which cells are asked for: kernels x machines x memory sizes x seeds.

use crate::kernel::{Kernel, KernelError};
use crate::machine::Machine;
use crate::replay::CellSpec;

/// Most cells of one trace: a million is weeks of replay, more is a mistake.
pub const NR_CELLS_MAX: usize = 1 << 20;

/// Kernels, machines, memory sizes and seeds, each with each.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Kernels; the slowest to change.
    pub kernels: Vec<Kernel>,
    /// Machines.
    pub machines: Vec<Machine>,
    /// Sizes of physical memory in bytes.
    pub memory_bytes: Vec<u64>,
    /// Seeds of the initial state of memory; the fastest to change.
    pub seeds: Vec<u64>,
    /// Everything else; its kernel, machine, memory and seed are not looked at.
    pub base: CellSpec,
}

/// Why there are no such cells.
#[derive(Debug, thiserror::Error)]
pub enum GridError {
    /// A kernel that does not fit a machine, or an annotation that does not fit a kernel.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Too many.
    #[error(
        "{} kernels x {} machines x {} memory sizes x {} seeds are {nr_cells} cells, at most \
         {limit} go into one result; ask for fewer at a time",
        nrs[0], nrs[1], nrs[2], nrs[3]
    )]
    TooMany {
        /// Kernels, machines, memory sizes, seeds.
        nrs: [usize; 4],
        /// Their product.
        nr_cells: usize,
        /// Most cells.
        limit: usize,
    },
}

impl Grid {
    /// Whether seeds make a difference: only the fragmentation is drawn by them.
    #[must_use]
    pub const fn has_idle_seeds(&self) -> bool {
        self.base.unusable_permille == 0 && self.seeds.len() > 1
    }

    /// The seeds that make a difference: the first where all would give the same.
    #[must_use]
    pub fn seeds(&self) -> &[u64] {
        if self.has_idle_seeds() { &self.seeds[..1] } else { &self.seeds }
    }

    /// Whether there are at most `limit` cells and each kernel can run on each machine.
    ///
    /// # Errors
    /// Too many, or a kernel that cannot have what is asked of it.
    pub fn check(&self, limit: usize) -> Result<(), GridError> {
        let nr_seeds = self.seeds().len();
        let nrs = [self.kernels.len(), self.machines.len(), self.memory_bytes.len(), nr_seeds];
        let nr_cells = nrs.into_iter().fold(1, usize::saturating_mul);
        if nr_cells > limit {
            return Err(GridError::TooMany { nrs, nr_cells, limit });
        }
        for kernel in &self.kernels {
            for machine in &self.machines {
                let (kernel, machine) = (kernel.clone(), machine.clone());
                check(&CellSpec { kernel, machine, ..self.base.clone() })?;
            }
        }
        Ok(())
    }

    /// The cells, at most `limit` of them.
    ///
    /// # Errors
    /// Too many, or a kernel that cannot have what is asked of it.
    pub fn cells(&self, limit: usize) -> Result<Vec<CellSpec>, GridError> {
        self.check(limit)?;
        let seeds = self.seeds();
        let mut cells = Vec::new();
        for kernel in &self.kernels {
            for machine in &self.machines {
                let of_both = CellSpec {
                    kernel: kernel.clone(),
                    machine: machine.clone(),
                    ..self.base.clone()
                };
                for &ram_bytes in &self.memory_bytes {
                    let with_seed = |&seed| CellSpec { seed, ram_bytes, ..of_both.clone() };
                    cells.extend(seeds.iter().map(with_seed));
                }
            }
        }
        Ok(cells)
    }
}

/// Whether the kernel has the folios that it and the annotations ask for, on that machine.
fn check(cell: &CellSpec) -> Result<(), KernelError> {
    cell.kernel.check_page(cell.page_size())?;
    let mut annotations = cell.annotations.iter();
    annotations.try_for_each(|annotation| annotation.check(&cell.kernel, cell.page_size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let kernels: Vec<_> = ["6.12", "7.2"].map(|name| Kernel::parse(name).unwrap()).into();
        let machines: Vec<_> =
            ["altra", "grace-64k"].map(|name| Machine::named(name).unwrap()).into();
        let base = CellSpec::new(kernels[0].clone(), machines[0].clone());
        let (memory_bytes, seeds) = (vec![1 << 30, 2 << 30], vec![3, 4]);
        Grid { kernels, machines, memory_bytes, seeds, base }
    }

    #[test]
    fn each_goes_with_each_and_seeds_only_where_they_matter() {
        let mut grid = grid();
        assert_eq!(grid.cells(8).unwrap().len(), 8);
        assert!(grid.has_idle_seeds());
        grid.base.unusable_permille = 500;
        let cells = grid.cells(16).unwrap();
        assert_eq!(cells.len(), 16);
        let last = cells.last().unwrap();
        let told = (last.kernel.name.as_str(), last.machine.name.as_str());
        assert_eq!((told, last.ram_bytes, last.seed), (("7.2", "grace-64k"), 2 << 30, 4));
        let error = grid.cells(15).unwrap_err().to_string();
        assert!(error.starts_with("2 kernels x 2 machines x 2 memory sizes x 2 seeds"), "{error}");
    }

    #[test]
    fn a_kernel_that_cannot_run_on_a_machine_is_found_before_anything_runs() {
        let mut grid = grid();
        grid.kernels.push(Kernel::parse("7.2+sizes=4K:always+exec").unwrap());
        assert!(grid.cells(100).is_err());
    }
}
