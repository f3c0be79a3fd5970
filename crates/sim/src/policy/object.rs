//! A BPF object file, as clang writes it.
//!
//! ```text
//!   folio/POINT   a program for each point          folio_maps     defined by FOLIO_MAP
//!   .rel..        references to maps and data       .rodata .data .bss   variables
//!   .text         callbacks of helpers              folio_interval milliseconds
//!   .struct_ops.link  hooks of a posted interface instead of points (`hooks`)
//! ```
//!
//! Owns the parser, its size limits, and the relocation of names to numbers. [`super::verify`]
//! decides whether a program may run.
//!
//! Invariants:
//! - I1: anything that is not understood is refused by name; sections to which no program refers
//!   are not read, but each program must be an entry or a callback.

mod hooks;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use largefolio_mm::policy::Point;
use object::elf::{EM_BPF, R_BPF_64_32, R_BPF_64_64};
use object::read::elf::{ElfFile64, ElfSection64, FileHeader as _};
use object::{
    LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, Relocation, RelocationFlags,
    RelocationTarget, SectionFlags, SectionIndex, SymbolIndex, SymbolKind,
};

use super::error::PolicyRefusal;
use super::insn::{FILLER, INSN_BYTES, Insn, LDDW, class, jump, wide};
use super::limits::{
    INTERVAL, MAPS, NR_FUNCTIONS_MAX, NR_INSNS_MAX, NR_MAPS_MAX, OBJECT_BYTES_MAX,
};
use super::maps::{MapKind, MapSpec};
use super::posted::{Entry, Helper};

const STATE_BYTES_MAX: usize = 64 << 20;
const NR_SECTIONS_MAX: usize = 1024;
/// Prefix of program sections, before the name of the point.
const PROGRAMS: &str = "folio/";
const BTF_MAPS: &str = ".maps";
const MAP_BYTES: usize = 16;
const ENTRY_BYTES_MAX: usize = 4096;
const NAME_BYTES_MAX: usize = 255;

type File<'a> = ElfFile64<'a, LittleEndian>;
type Part<'a, 'b> = ElfSection64<'a, 'b, LittleEndian>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) bytes: Vec<u8>,
    pub(super) is_writable: bool,
    /// Starts zeroed; the file has no bytes for it.
    pub(super) is_zeroed: bool,
}

impl Section {
    /// Returns the initial variables. Zeroed ones take memory once they are written.
    pub(super) fn fresh(&self) -> Self {
        let bytes = if self.is_zeroed { vec![0; self.bytes.len()] } else { self.bytes.clone() };
        Self { bytes, ..*self }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) code: Vec<Insn>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Parsed {
    pub(super) programs: BTreeMap<Entry, Function>,
    /// Callbacks, by their number in a [`wide::FUNCTION`].
    pub(super) functions: Vec<Function>,
    /// The structure of a posted interface; `None`: points.
    pub(super) interface: Option<&'static str>,
    /// Nanoseconds between two calls at [`Point::Interval`], unless it is the usual.
    pub(super) interval_ns: Option<u64>,
    pub(super) maps: Vec<MapSpec>,
    pub(super) data: Vec<Section>,
}

impl Parsed {
    /// Returns the largest memory use of a cell's maps and variables.
    pub(super) fn state_bytes(&self) -> usize {
        let maps = self.maps.iter().map(MapSpec::bytes_max);
        let variables = self.data.iter().map(|section| section.bytes.len());
        maps.chain(variables).fold(0, usize::saturating_add)
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, PolicyRefusal> {
    if bytes.len() > OBJECT_BYTES_MAX {
        return Err(PolicyRefusal::TooLarge);
    }
    let not_bpf = |what: String| PolicyRefusal::NotBpf(what);
    let file = File::parse(bytes).map_err(|error| not_bpf(error.to_string()))?;
    let machine = file.elf_header().e_machine(LittleEndian);
    if machine != EM_BPF {
        return Err(not_bpf(format!("machine {machine}")));
    }
    if file.sections().count() > NR_SECTIONS_MAX {
        return Err(not_bpf(format!("it has more than {NR_SECTIONS_MAX} sections")));
    }
    let mut reader = Reader {
        file: &file,
        parsed: Parsed::default(),
        data: BTreeMap::new(),
        maps: MapNumbers::new(),
        callbacks: BTreeMap::new(),
    };
    reader.maps()?;
    reader.interval()?;
    for section in file.sections() {
        let name = section.name().unwrap_or_default().to_owned();
        if let Some(point) = name.strip_prefix(PROGRAMS) {
            let known = Point::ALL.into_iter().find(|known| known.name() == point);
            let known = known.ok_or_else(|| PolicyRefusal::Point(cut(point)))?;
            let program = reader.program(&section, &name)?;
            if reader.parsed.programs.insert(Entry::Point(known), program).is_some() {
                return Err(PolicyRefusal::Functions { section: name, nr: 2 });
            }
        }
    }
    reader.hooks()?;
    if reader.parsed.programs.is_empty() {
        return Err(PolicyRefusal::NoProgram);
    }
    reader.callbacks()?;
    if reader.parsed.state_bytes() > STATE_BYTES_MAX {
        let what = format!("maps and variables take more than {} MiB", STATE_BYTES_MAX >> 20);
        return Err(PolicyRefusal::Section { section: MAPS.to_owned(), what });
    }
    Ok(reader.parsed)
}

type MapNumbers = BTreeMap<(usize, u64), usize>;

/// A function's section and first byte.
type Start = (usize, u64);

struct Reader<'a, 'b> {
    file: &'b File<'a>,
    parsed: Parsed,
    data: BTreeMap<usize, usize>,
    maps: MapNumbers,
    /// Callbacks that were met, and their numbers.
    callbacks: BTreeMap<Start, usize>,
}

impl<'a> Reader<'a, '_> {
    fn interval(&mut self) -> Result<(), PolicyRefusal> {
        let Some(section) = self.file.section_by_name(INTERVAL) else { return Ok(()) };
        let wrong = || PolicyRefusal::Section {
            section: INTERVAL.to_owned(),
            what: "it is not one number of milliseconds from 1 on; use FOLIO_INTERVAL".to_owned(),
        };
        let bytes = <[u8; 4]>::try_from(contents(&section, INTERVAL)?).map_err(|_| wrong())?;
        let ms = u64::from(u32::from_le_bytes(bytes));
        self.parsed.interval_ns = Some(ms * 1_000_000).filter(|&ns| ns > 0);
        self.parsed.interval_ns.map(|_| ()).ok_or_else(wrong)
    }

    fn maps(&mut self) -> Result<(), PolicyRefusal> {
        let Some(section) = self.file.section_by_name(MAPS) else { return Ok(()) };
        let bytes = contents(&section, MAPS)?;
        let is_map = |symbol: &object::read::elf::ElfSymbol64<'_, '_, LittleEndian>| {
            symbol.section_index() == Some(section.index())
                && symbol.kind() != SymbolKind::Section
                && symbol.elf_symbol().st_name.get(LittleEndian) != 0
        };
        let mut symbols: Vec<_> =
            self.file.symbols().filter(is_map).take(NR_MAPS_MAX + 1).collect();
        symbols.sort_by_key(object::ObjectSymbol::address);
        let are_too_many = symbols.len() > NR_MAPS_MAX;
        for symbol in symbols {
            let name = symbol.name().unwrap_or_default();
            let wrong = |what: &str| PolicyRefusal::Map { map: cut(name), what: what.to_owned() };
            if are_too_many {
                return Err(wrong("there are too many"));
            }
            if name.len() > NAME_BYTES_MAX {
                return Err(wrong("its name is too long"));
            }
            if self.maps.contains_key(&(section.index().0, symbol.address())) {
                return Err(wrong("it overlaps another one"));
            }
            let at = usize::try_from(symbol.address()).ok();
            let bytes_of_map = at.and_then(|at| bytes.get(at..)?.get(..MAP_BYTES));
            let bytes_of_map = bytes_of_map.ok_or_else(|| wrong("it is truncated"))?;
            let spec = map_spec(name, bytes_of_map).map_err(wrong)?;
            self.maps.insert((section.index().0, symbol.address()), self.parsed.maps.len());
            self.parsed.maps.push(spec);
        }
        Ok(())
    }

    /// The only function of a section.
    fn program(&mut self, section: &Part<'a, '_>, name: &str) -> Result<Function, PolicyRefusal> {
        let functions = self.file.symbols().filter(|symbol| {
            symbol.section_index() == Some(section.index()) && symbol.kind() == SymbolKind::Text
        });
        let starts: Vec<u64> = functions.map(|symbol| symbol.address()).collect();
        // An empty section or an incomplete instruction has a better reason.
        let nr_bytes = contents(section, name)?.len() as u64;
        let code = self.code(section, name, 0..nr_bytes)?;
        let [start] = starts[..] else {
            return Err(PolicyRefusal::Functions { section: name.to_owned(), nr: starts.len() });
        };
        if start != 0 {
            return Err(of_section(name, "it does not begin with its function"));
        }
        Ok(Function { name: name.to_owned(), code })
    }

    /// The function that starts at `start`, which its symbol describes.
    fn function(&mut self, (index, first): Start) -> Result<Function, PolicyRefusal> {
        let file = self.file;
        let section = file.section_by_index(SectionIndex(index));
        let section = section.map_err(|error| PolicyRefusal::NotBpf(error.to_string()))?;
        let of_section_name = section.name().unwrap_or_default();
        let symbol = file.symbols().find(|symbol| {
            symbol.section_index() == Some(section.index())
                && symbol.kind() == SymbolKind::Text
                && symbol.address() == first
        });
        let no_function = || of_section(of_section_name, "a reference leads to no function");
        let symbol = symbol.ok_or_else(no_function)?;
        let end = first.checked_add(symbol.size()).ok_or_else(no_function)?;
        let name = cut(symbol.name().unwrap_or_default());
        let code = self.code(&section, &name, first..end)?;
        Ok(Function { name, code })
    }

    /// Decodes and relocates a range of a section. `name` is what errors call it.
    fn code(
        &mut self,
        section: &Part<'a, '_>,
        name: &str,
        Range { start, end }: Range<u64>,
    ) -> Result<Vec<Insn>, PolicyRefusal> {
        let bytes = contents(section, name)?;
        let [first, last] = [start, end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        let bytes = bytes.get(first..last);
        let bytes = bytes.ok_or_else(|| of_section(name, "it ends after its section"))?;
        let (insns, rest) = bytes.as_chunks::<INSN_BYTES>();
        if !rest.is_empty() {
            return Err(of_section(name, "it ends within an instruction"));
        }
        if insns.is_empty() || insns.len() > NR_INSNS_MAX {
            return Err(PolicyRefusal::Length { section: name.to_owned(), nr: insns.len() });
        }
        let mut code: Vec<Insn> = insns.iter().map(|&bytes| Insn::decode(bytes)).collect();
        join_wide(&mut code, name)?;
        let nr_bytes = contents(section, name)?.len() as u64;
        let mut relocated = BTreeSet::new();
        for (offset, relocation) in section.relocations() {
            // Another function's of the same section.
            if offset < nr_bytes && !(start..end).contains(&offset) {
                continue;
            }
            let offset = offset.wrapping_sub(start);
            let at = usize::try_from(offset).ok().filter(|offset| offset % INSN_BYTES == 0);
            let at = at.map(|offset| offset / INSN_BYTES).filter(|&at| at < code.len());
            let at = at.ok_or_else(|| of_section(name, "a relocation is outside its program"))?;
            if !relocated.insert(at) {
                return Err(of_section(name, "two relocations patch one instruction"));
            }
            let insn = self.relocated(code[at], &relocation);
            let wrong = |what| PolicyRefusal::Insn { section: name.to_owned(), at, what };
            code[at] = insn.map_err(wrong)?;
        }
        Ok(code)
    }

    /// Reads the callbacks that were met, and those that they name.
    fn callbacks(&mut self) -> Result<(), PolicyRefusal> {
        loop {
            let next = self.parsed.functions.len();
            let start = self.callbacks.iter().find(|&(_, &nr)| nr == next).map(|(start, _)| *start);
            let Some(start) = start else { return Ok(()) };
            let function = self.function(start)?;
            self.parsed.functions.push(function);
        }
    }

    fn relocated(&mut self, insn: Insn, relocation: &Relocation) -> Result<Insn, String> {
        let RelocationFlags::Elf { r_type } = relocation.flags() else {
            return Err("an unknown relocation".to_owned());
        };
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            return Err("a relocation without a symbol".to_owned());
        };
        let name = || self.name_of(symbol);
        if r_type == R_BPF_64_32 || insn.class() == class::JMP && insn.op() == jump::CALL {
            if let Some(helper) = self.kernel_function(symbol)? {
                return Ok(Insn { src: 0, imm: helper.number, ..insn });
            }
            let function = self.function_at(symbol, insn.imm).unwrap_or_else(name);
            return Err(format!(
                "calls the function {function}; make it static inline \
                 __attribute__((always_inline))"
            ));
        }
        if r_type != R_BPF_64_64 || insn.code != LDDW {
            return Err(format!("relocation type {r_type} for {} is unknown", name()));
        }
        let target = self.file.symbol_by_index(symbol).map_err(|error| error.to_string())?;
        let Some(section) = target.section_index() else {
            return Err(format!("{} is not defined in this file", name()));
        };
        let offset = target.address().wrapping_add(insn.imm as u64);
        if let Some(&number) = self.maps.get(&(section.0, offset)) {
            return Ok(Insn { src: wide::MAP, imm: number as i64, ..insn });
        }
        if self.is_code(section) {
            let number = self.callback((section.0, offset)).ok_or_else(|| {
                format!("it names more than {NR_FUNCTIONS_MAX} functions as callbacks")
            })?;
            return Ok(Insn { src: wide::FUNCTION, imm: number as i64, ..insn });
        }
        let number =
            self.data(section).map_err(|what| format!("{}{what}", self.name_of(symbol)))?;
        let size = self.parsed.data[number].bytes.len() as u64;
        if offset > size {
            let name = self.name_of(symbol);
            return Err(format!("{name}: {offset} bytes into a section of {size}"));
        }
        let imm = ((number as u64) << 32 | offset) as i64;
        Ok(Insn { src: wide::DATA, imm, ..insn })
    }

    fn is_code(&self, section: SectionIndex) -> bool {
        let section = self.file.section_by_index(section);
        section.is_ok_and(|section| is_executable(&section))
    }

    fn callback(&mut self, start: Start) -> Option<usize> {
        let nr = self.callbacks.len();
        let number = *self.callbacks.entry(start).or_insert(nr);
        (number < NR_FUNCTIONS_MAX).then_some(number)
    }

    /// The kernel function that an undefined symbol names; `None` if the symbol is defined.
    fn kernel_function(&self, symbol: SymbolIndex) -> Result<Option<&'static Helper>, String> {
        let symbol = self.file.symbol_by_index(symbol).map_err(|error| error.to_string())?;
        if !symbol.is_undefined() {
            return Ok(None);
        }
        let name = symbol.name().unwrap_or_default();
        let unknown = || {
            let name = largefolio_trace::shown(&cut(name)).to_string();
            format!("calls the kernel function '{name}', which the model does not have")
        };
        Helper::of_kernel(name).map(Some).ok_or_else(unknown)
    }

    /// Returns the function that a call refers to. The call has its section and its index minus
    /// one.
    fn function_at(&self, section: SymbolIndex, less_one: i64) -> Option<String> {
        let section = self.file.symbol_by_index(section).ok()?;
        if section.kind() != SymbolKind::Section {
            return None;
        }
        let at = u64::try_from(less_one.checked_add(1)?).ok()?.checked_mul(INSN_BYTES as u64)?;
        let mut functions = self.file.symbols().filter(|symbol| {
            symbol.kind() == SymbolKind::Text && symbol.section_index() == section.section_index()
        });
        let name = functions.find(|symbol| symbol.address() == at)?.name().ok()?.to_owned();
        Some(format!("'{}'", largefolio_trace::shown(&cut(&name))))
    }

    fn name_of(&self, symbol: SymbolIndex) -> String {
        let Ok(symbol) = self.file.symbol_by_index(symbol) else { return "nothing".to_owned() };
        let name = symbol.name().unwrap_or_default();
        if !name.is_empty() {
            return format!("'{}'", largefolio_trace::shown(&cut(name)));
        }
        let section = symbol.section_index().and_then(|at| self.file.section_by_index(at).ok());
        let name = section.as_ref().and_then(|section| section.name().ok()).unwrap_or_default();
        largefolio_trace::shown(&cut(name)).to_string()
    }

    /// Returns the number of a variable section, or the rest of an error message.
    fn data(&mut self, index: SectionIndex) -> Result<usize, String> {
        if let Some(&number) = self.data.get(&index.0) {
            return Ok(number);
        }
        let section = self.file.section_by_index(index).map_err(|error| format!(": {error}"))?;
        let of_section = section.name().unwrap_or_default();
        let is_variables = [".rodata", ".data", ".bss"].iter().any(|kind| {
            of_section
                .strip_prefix(kind)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
            return Err(" is not in an ELF section".to_owned());
        };
        if !is_variables {
            let how = if of_section == BTF_MAPS { "; define maps with FOLIO_MAP" } else { "" };
            return Err(format!(
                " is neither a map of {MAPS} nor a variable, but in section {}{how}",
                largefolio_trace::shown(&cut(of_section))
            ));
        }
        if section.relocations().next().is_some() {
            return Err(" holds addresses, but a variable cannot".to_owned());
        }
        let is_writable = sh_flags.0 & object::elf::SHF_WRITE.0 != 0;
        let size = usize::try_from(section.size()).unwrap_or(usize::MAX);
        let before = self.parsed.data.iter().map(|section| section.bytes.len());
        if before.fold(size, usize::saturating_add) > STATE_BYTES_MAX {
            return Err(format!(" is in a section of {size} bytes, which is too large"));
        }
        let data = section.data().map_err(|error| format!(": {error}"))?;
        let is_zeroed = data.is_empty();
        let bytes = if is_zeroed { vec![0; size] } else { data.to_vec() };
        let number = self.parsed.data.len();
        self.parsed.data.push(Section { bytes, is_writable, is_zeroed });
        self.data.insert(index.0, number);
        Ok(number)
    }
}

fn is_executable(section: &Part<'_, '_>) -> bool {
    let SectionFlags::Elf { sh_flags, .. } = section.flags() else { return false };
    sh_flags.0 & object::elf::SHF_EXECINSTR.0 != 0
}

fn of_section(section: &str, what: &str) -> PolicyRefusal {
    PolicyRefusal::Section { section: section.to_owned(), what: what.to_owned() }
}

fn cut(name: &str) -> String {
    const NR_SHOWN: usize = 80;
    match name.char_indices().nth(NR_SHOWN) {
        Some((at, _)) => format!("{}..", &name[..at]),
        None => name.to_owned(),
    }
}

fn contents<'a>(section: &Part<'a, '_>, name: &str) -> Result<&'a [u8], PolicyRefusal> {
    section.data().map_err(|error| PolicyRefusal::Section {
        section: name.to_owned(),
        what: error.to_string(),
    })
}

fn join_wide(code: &mut [Insn], section: &str) -> Result<(), PolicyRefusal> {
    let mut at = 0;
    while at < code.len() {
        if code[at].code == LDDW {
            let wrong = || PolicyRefusal::Insn {
                section: section.to_owned(),
                at,
                what: "half of a 64-bit number".to_owned(),
            };
            let low = code[at].imm as u32;
            let is_half =
                |next: &&Insn| (next.code, next.dst, next.src, next.off) == (FILLER, 0, 0, 0);
            let high = code.get(at + 1).filter(is_half).ok_or_else(wrong)?;
            code[at].imm = i64::from(low) | high.imm << 32;
            if code[at].src != wide::NUMBER {
                return Err(wrong());
            }
            at += 1;
        }
        at += 1;
    }
    Ok(())
}

fn map_spec(name: &str, words: &[u8]) -> Result<MapSpec, &'static str> {
    let (words, _) = words.as_chunks::<4>();
    let number = |nr: usize| {
        let word = words.get(nr).copied().unwrap_or_default();
        usize::try_from(u32::from_le_bytes(word)).unwrap_or(usize::MAX)
    };
    let kind = match number(0) {
        1 => MapKind::Hash,
        2 => MapKind::Array,
        _ => return Err("its type is neither FOLIO_HASH nor FOLIO_ARRAY"),
    };
    let (key_bytes, value_bytes, nr_max) = (number(1), number(2), number(3));
    let is_possible = |bytes| (1..=ENTRY_BYTES_MAX).contains(&bytes);
    if !is_possible(key_bytes) || !is_possible(value_bytes) {
        return Err("keys and values must have 1 to 4096 bytes");
    }
    if kind == MapKind::Array && key_bytes != 4 {
        return Err(
            "the key of an array must have 4 bytes: make it an unsigned int, or make the map a \
             FOLIO_HASH",
        );
    }
    if nr_max == 0 || nr_max > STATE_BYTES_MAX {
        return Err("it has no entries, or more than fit in memory");
    }
    Ok(MapSpec { name: name.to_owned(), kind, key_bytes, value_bytes, nr_max })
}
