//! One round of an operation on anonymous memory, on this kernel or in the memory manager.
//!
//! Models share `Spare`, a block of memory: allocating it must not count as part of a fault.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use largefolio_linux::calibrate::anon::{FolioSize, Operation};
use largefolio_linux::measure::{Series, cpu_time, interleave};
use largefolio_mm::ram::Ram;
use largefolio_mm::units::Pfn;
use largefolio_results::running;
use largefolio_sim::bench::{ARCH, AnonBench};
use largefolio_sim::kernel::Kernel;

use super::fault::{Gigantic, fault};
use crate::Error;

/// A page that only hugetlb has.
pub const GIGANTIC_BYTES: u64 = 1 << 30;

pub type Timed<'a> = Box<dyn FnMut() -> Result<Duration, Error> + 'a>;

#[derive(Clone, Copy, Debug)]
pub struct AnonWork {
    /// The operation; `None`: demand faults on cleared memory, in CPU time.
    pub operation: Option<Operation>,
    pub folio_bytes: u64,
    pub region_bytes: u64,
}

#[derive(Default)]
pub struct Spare(RefCell<Option<Ram>>);

#[must_use]
pub fn on_gigantic_host(pages: &Gigantic) -> Timed<'_> {
    Box::new(move || Ok(pages.fault()?))
}

#[must_use]
pub fn on_host(host: &FolioSize, work: AnonWork) -> Timed<'_> {
    let len = usize::try_from(work.region_bytes).unwrap_or(usize::MAX);
    match work.operation {
        Some(operation) => Box::new(move || Ok(host.time(operation, len)?)),
        None => Box::new(move || Ok(fault(host, len)?)),
    }
}

pub(crate) fn in_model<'a>(kernel: &'a Kernel, work: AnonWork, spare: &'a Spare) -> Timed<'a> {
    match work.operation {
        Some(operation) => Box::new(move || once(kernel, operation, work)),
        None => Box::new(move || faults(kernel, work, spare)),
    }
}

/// Times the operation in interleaved rounds, on this kernel if `host` allows it and under each
/// kernel's rules, by name.
///
/// # Errors
/// If this kernel refuses, or the model lacks memory.
pub fn beside_the_model(
    work: AnonWork,
    host: Option<Timed<'_>>,
    kernels: &[Kernel],
    spare: &Spare,
    nr_rounds: usize,
) -> Result<Vec<(String, Series)>, Error> {
    let mut names = Vec::new();
    let mut subjects: Vec<Timed<'_>> = Vec::new();
    if let Some(host) = host {
        names.push("this kernel".to_owned());
        subjects.push(host);
    }
    for kernel in kernels {
        names.push(kernel.name.trim_end_matches(&running::page_edit()).to_owned());
        subjects.push(in_model(kernel, work, spare));
    }
    let series = interleave(nr_rounds, &mut subjects, &mut |_| {})?;
    Ok(names.into_iter().zip(series).collect())
}

fn once(kernel: &Kernel, operation: Operation, work: AnonWork) -> Result<Duration, Error> {
    let mut bench = AnonBench::new(kernel, work.folio_bytes, work.region_bytes)?;
    if operation != Operation::Touch {
        bench.store_all()?;
    }
    let child = match operation {
        Operation::CowCopy => Some(bench.fork()?),
        Operation::CowReuse => {
            let child = bench.fork()?;
            bench.exit(child);
            None
        }
        _ => None,
    };
    let start = Instant::now();
    match operation {
        Operation::Touch | Operation::CowCopy | Operation::CowReuse => bench.store_all()?,
        Operation::Munmap => bench.munmap()?,
        Operation::Fork => {
            bench.fork()?;
        }
    }
    let taken = start.elapsed();
    if let Some(child) = child {
        bench.exit(child);
    }
    Ok(taken)
}

fn faults(kernel: &Kernel, work: AnonWork, Spare(spare): &Spare) -> Result<Duration, Error> {
    let AnonWork { folio_bytes, region_bytes, .. } = work;
    if folio_bytes == GIGANTIC_BYTES {
        return Ok(gigantic_faults(kernel, region_bytes, spare));
    }
    let memory = spare.borrow_mut().take();
    let memory = memory.unwrap_or_else(|| AnonBench::bytes(kernel.rules.page, region_bytes));
    let mut bench = AnonBench::with_bytes(kernel, folio_bytes, region_bytes, memory)?;
    let start = cpu_time();
    bench.fault_all()?;
    let taken = cpu_time().saturating_sub(start);
    *spare.borrow_mut() = Some(bench.into_bytes());
    Ok(taken)
}

fn gigantic_faults(kernel: &Kernel, region_bytes: u64, spare: &RefCell<Option<Ram>>) -> Duration {
    let nr_pages = region_bytes.div_ceil(GIGANTIC_BYTES);
    let memory = spare.borrow_mut().take();
    let mut memory =
        memory.unwrap_or_else(|| AnonBench::bytes(kernel.rules.page, nr_pages * GIGANTIC_BYTES));
    let start = cpu_time();
    zero_gigantic(kernel, nr_pages, &mut memory);
    let taken = cpu_time().saturating_sub(start);
    *spare.borrow_mut() = Some(memory);
    taken
}

/// Zeroes `nr_pages` pages of 1 GiB in `ram` as the kernel does at a store to each page's first
/// byte. Leaves out the pool and the page-table entry, whose cost is negligible in comparison.
fn zero_gigantic(kernel: &Kernel, nr_pages: u64, ram: &mut Ram) {
    let page = kernel.rules.page;
    let order = page.order_of_bytes(GIGANTIC_BYTES);
    let plan = kernel.rules.clear.plan(ARCH, page, order, 0);
    for nr in 0..nr_pages {
        ram.clear_folio(Pfn(nr << order.get()), &plan);
    }
}
