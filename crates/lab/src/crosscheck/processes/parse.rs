//! Parser for recordings of processes (`recordings/README.md`).

use super::limit::{SwapNumbers, lists_of, others_of};
use super::nodes::node_of;
use super::program::{ProcessProgram, ProcessStep};
use super::range::{NR_PAGES_MAX, PageRange, slot_of};
use super::run::{MapcountChange, PageChange, ProgramRun, Programs, StepResult};
use super::shmem::CachedFolio;
use super::statistics::{Area, MachineKib, Recorded, SlotAreas};
use super::world::{MappedPage, PageState, PoolState};
use super::zswap::{ZswapMachine, ZswapNumbers};
use crate::crosscheck::recording::{RecordingBody, RecordingHeader};
use crate::crosscheck::text::{Pairs, Parsed, number_to, reason, unknown};

/// Labels of one program are small; this bounds the memory that a text can make the parser
/// allocate.
const NR_LABELS_MAX: u64 = 1 << 16;
/// Largest folio order: a gigantic page of x86-64.
const ORDER_MAX: u64 = 18;

impl RecordingBody for Programs {
    /// Folio orders of a program by label; a recording writes each only once.
    type Position = Vec<u8>;

    fn begin(&mut self, _: &RecordingHeader, pairs: &Pairs<'_>) -> Parsed<()> {
        self.hides_pmds = pairs.get("pmds") == Some("unknown");
        self.lists = lists_of(pairs.get("lru"))?;
        self.others = others_of(pairs.get("others"))?;
        self.zswap = ZswapMachine::of(pairs)?;
        self.recorded = Recorded::of(pairs.get("statistics"))?;
        Ok(())
    }

    fn line(&mut self, orders: &mut Vec<u8>, _: &RecordingHeader, fields: &[&str]) -> Parsed<()> {
        if fields[0] == "program" {
            orders.clear();
            let program = ProcessProgram::of(fields)?;
            self.runs.push(ProgramRun { program, ..ProgramRun::default() });
            return Ok(());
        }
        let run = self.runs.last_mut().ok_or("a line before the first program")?;
        match *fields {
            [">", ref step @ ..] => {
                run.program.steps.push(ProcessStep::of(step)?);
                run.results.push(StepResult::default());
            }
            ["~", ref event @ ..] => run.disturbances.push(reason(event)?),
            ["end"] => run.is_complete = true,
            ["M", ref counts @ ..] if run.results.is_empty() => {
                run.machine_before = Some(MachineKib::of(counts)?);
            }
            _ => {
                let result = run.results.last_mut().ok_or("an answer before any step")?;
                result.line(orders, run.program.nr_pages, fields)?;
            }
        }
        Ok(())
    }
}

impl StepResult {
    fn line(&mut self, orders: &mut Vec<u8>, nr_pages: u64, fields: &[&str]) -> Parsed<()> {
        match *fields {
            ["!", error] => self.error = Some(number_to(u32::MAX.into(), error)? as u32),
            ["f", nr] => self.nr_faults = Some(number_to(u64::MAX, nr)?),
            ["k", ref visit @ ..] => self.scan.line(visit)?,
            ["K", passes, collapsed] => self.scan.end(passes, collapsed)?,
            ["c", nr, ref huge @ ..] => {
                self.nr_cached = Some(number_to(u64::MAX, nr)?);
                self.nr_huge = match *huge {
                    [huge] => Some(number_to(u64::MAX, huge)?),
                    _ => None,
                };
            }
            ["o", ref folios @ ..] => self.folios = Some(CachedFolio::all_of(folios)?),
            ["g", free, reserved, surplus] => {
                let number = |word| number_to(u64::MAX, word);
                self.pool = Some(PoolState {
                    nr_free: number(free)?,
                    nr_reserved: number(reserved)?,
                    nr_surplus: number(surplus)?,
                });
            }
            ["w", ref numbers @ ..] => self.swap = Some(SwapNumbers::of(numbers)?),
            ["z", ref numbers @ ..] => self.zswap = Some(ZswapNumbers::of(numbers)?),
            ["m", label, nr] => {
                let label = number_to(NR_LABELS_MAX - 1, label)?;
                self.counts.push((label, number_to(u32::MAX.into(), nr)? as u32));
            }
            ["M", ref counts @ ..] => self.machine = Some(MachineKib::of(counts)?),
            ["s", slot] => {
                self.areas.push(SlotAreas { slot: slot_of(slot)?, areas: Vec::new() });
            }
            ["a", first, nr, ref numbers @ ..] => {
                let process = self.areas.last_mut().ok_or("an area of no process")?;
                process.areas.push(Area::of(first, nr, numbers)?);
            }
            ["n", slot, pages, mapcount] => {
                let (slot, pages) = (slot_of(slot)?, run_of(pages)?);
                let mapcount = number_to(u32::MAX.into(), mapcount)? as u32;
                inside(pages, nr_pages)?;
                self.mapcounts.push(MapcountChange { slot, pages, mapcount });
            }
            [slot, pages, state, ref how @ ..] => {
                let change = PageChange {
                    slot: slot_of(slot)?,
                    pages: run_of(pages)?,
                    state: state_of(state, how, orders)?,
                };
                inside(change.pages, nr_pages)?;
                self.changes.push(change);
            }
            _ => return unknown(fields),
        }
        Ok(())
    }
}

fn inside(pages: PageRange, nr_pages: u64) -> Parsed<()> {
    if pages.end() > nr_pages {
        return Err(format!("the window ends at page {nr_pages}"));
    }
    Ok(())
}

/// Reads `FIRST[+NR]`.
fn run_of(word: &str) -> Parsed<PageRange> {
    let (first, nr) = word.split_once('+').unwrap_or((word, "1"));
    PageRange::of(first, nr)
}

/// Reads `STATE [FLAGS] [@NODE] [=SUM]`.
fn state_of(word: &str, how: &[&str], orders: &mut Vec<u8>) -> Parsed<PageState> {
    let mut state = PageState { page: page_of(word, orders)?, ..PageState::default() };
    for word in how {
        if let Some(sum) = word.strip_prefix('=') {
            state.sum = Some(number_to(u32::MAX.into(), sum)? as u32);
            continue;
        }
        if let Some(node) = word.strip_prefix('@') {
            state.node = node_of(node)?.0;
            continue;
        }
        state.is_exclusive |= word.contains('x');
        state.is_pmd |= word.contains('H');
        state.is_file |= word.contains('f');
    }
    Ok(state)
}

/// Reads `-`, `s`, `z`, `Z.INDEX` or `LABEL[:ORDER][.INDEX]`.
fn page_of(word: &str, orders: &mut Vec<u8>) -> Parsed<MappedPage> {
    match word {
        "-" => return Ok(MappedPage::Absent),
        "s" => return Ok(MappedPage::Swapped),
        "z" => return Ok(MappedPage::Zero),
        _ => {}
    }
    let (folio, index) = word.split_once('.').unwrap_or((word, "0"));
    let index = number_to(NR_PAGES_MAX - 1, index)? as u32;
    if folio == "Z" {
        return Ok(MappedPage::HugeZero { index });
    }
    let (label, order) = folio.split_once(':').unwrap_or((folio, ""));
    let label = number_to(NR_LABELS_MAX - 1, label)?;
    let at = label as usize;
    if orders.len() <= at {
        orders.resize(at + 1, 0);
    }
    if !order.is_empty() {
        orders[at] = number_to(ORDER_MAX, order)? as u8;
    }
    Ok(MappedPage::Folio { label, order: orders[at], index })
}
