//! Prints the large folios from reading a file through a mapping, window by window.
//!
//! `cargo run -p largefolio-mm --example large_folios`

#![expect(clippy::print_stdout, reason = "an example")]

use std::error::Error;

use largefolio_mm::fault::Access;
use largefolio_mm::map::Map;
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::Vaddr;
use largefolio_mm::vma::Prot;

const BYTES: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let rules = Rules::example();
    let page_bytes = rules.page.bytes();
    let mut memory = Memory::new(rules, &Config::new(Arch::X86_64))?;
    let file = memory.add_file(BYTES, "xfs");
    let (open, process) = (memory.open(file), memory.new_space());
    let start = memory.mmap(process, Map::file(open, 0, BYTES, Prot::READ))?;
    for page in 0..BYTES / page_bytes {
        memory.touch(process, Vaddr(start.0 + page * page_bytes), Access::Read)?;
    }
    for folio in memory.folios(file).filter(|folio| folio.order.get() > 0) {
        let kib = (folio.order.nr_pages() * page_bytes) >> 10;
        println!("{kib:>5} KiB at page {}", folio.index);
    }
    let counters = memory.counters();
    println!("{} faults, {} of them major", counters.pgfault, counters.pgmajfault);
    Ok(memory.validate()?)
}
