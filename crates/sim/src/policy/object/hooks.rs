//! Programs for an interface that was posted upstream: `struct_ops`, and maps described by types.
//!
//! ```text
//!   .struct_ops.link   struct bpf_thp_ops ops = { .thp_get_order = ... }   one per file
//!   .BTF               its type: the interface, and each member's name
//!   .maps              maps; their types have their sizes
//!   iter/cgroup        mthp_ext's program, called at each interval
//! ```
//!
//! A file compiled with the headers of `policies/posted` has a section `folio_posted`. Another
//! file's programs expect a kernel's structures and are refused.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SymbolKind};

use super::super::btf::{Btf, Member};
use super::super::error::PolicyRefusal;
use super::super::limits::NR_MAPS_MAX;
use super::super::maps::{MapKind, MapSpec};
use super::super::posted::{Entry, Hook, Interface};
use super::{
    BTF_MAPS, ENTRY_BYTES_MAX, Part, Reader, STATE_BYTES_MAX, contents, cut, is_executable,
};

const MARK: &str = "folio_posted";
const OPS: [&str; 2] = [".struct_ops", ".struct_ops.link"];
const OPS_PROGRAMS: &str = "struct_ops";
const SCANS: [&str; 2] = ["iter/cgroup", "iter.s/cgroup"];
const TEXT: &str = ".text";
const MTHP: &str = "bpf_mthp_ops";
/// Cgroups that can have an entry in a map of `BPF_MAP_TYPE_CGRP_STORAGE`.
const NR_CGROUPS_MAX: usize = 256;

fn refusal(what: impl Into<String>) -> PolicyRefusal {
    PolicyRefusal::Posted(what.into())
}

fn shown(name: &str) -> String {
    largefolio_trace::shown(&cut(name)).to_string()
}

impl<'a> Reader<'a, '_> {
    /// Reads the hooks of a posted interface, if the file has one.
    pub(super) fn hooks(&mut self) -> Result<(), PolicyRefusal> {
        let file = self.file;
        let ops: Vec<_> = file
            .sections()
            .filter(|part| part.name().is_ok_and(|name| OPS.contains(&name)))
            .collect();
        if ops.is_empty() {
            return Ok(());
        }
        if !self.parsed.programs.is_empty() {
            return Err(refusal(
                "the file also has sections named folio/POINT; use either these or struct_ops",
            ));
        }
        if file.section_by_name(MARK).is_none() {
            return Err(refusal(
                "the file was compiled with a kernel's types; compile it with -I policies/posted, \
                 next to folio_policy.h",
            ));
        }
        let bytes = file.section_by_name(".BTF").map(|part| contents(&part, ".BTF")).transpose()?;
        let bytes = bytes.ok_or_else(|| refusal("it has no type information; compile with -g"))?;
        let btf = Btf::parse(bytes).ok_or_else(|| refusal("its type information is damaged"))?;
        self.typed_maps(&btf)?;
        let used: Vec<_> = ops.into_iter().filter(|part| part.size() > 0).collect();
        let [section] = &used[..] else {
            return Err(refusal("a file has one structure, because a kernel has one policy"));
        };
        let interface = self.structure(section, &btf)?;
        self.parsed.interface = Some(interface.name);
        self.other_programs(interface)
    }

    fn structure(
        &mut self,
        section: &Part<'a, '_>,
        btf: &Btf<'_>,
    ) -> Result<&'static Interface, PolicyRefusal> {
        let file = self.file;
        let variables = file.symbols().filter(|symbol| {
            symbol.section_index() == Some(section.index())
                && symbol.kind() != SymbolKind::Section
                && symbol.name().is_ok_and(|name| !name.is_empty())
        });
        let variables: Vec<_> = variables.take(3).collect();
        let [variable] = &variables[..] else {
            return Err(refusal("a file has one structure, because a kernel has one policy"));
        };
        let name = variable.name().unwrap_or_default();
        let of_type = btf.variable(name).and_then(|nr| btf.structure(nr));
        let (of_type, members) =
            of_type.ok_or_else(|| refusal(format!("'{}' has no known type", shown(name))))?;
        let interface = Interface::named(of_type).ok_or_else(|| {
            let names = Interface::names();
            refusal(format!("struct {} is not known; known: {names}", shown(of_type)))
        })?;
        let size = contents(section, OPS[1])?;
        let start = usize::try_from(variable.address()).unwrap_or(usize::MAX);
        let nr = usize::try_from(variable.size()).unwrap_or(usize::MAX);
        let bytes = size.get(start..).and_then(|rest| rest.get(..nr));
        let bytes = bytes.ok_or_else(|| refusal(format!("'{}' is truncated", shown(name))))?;
        let set = self.members(section, variable.address(), interface, &members)?;
        for member in &members {
            let is_set = member.offset.is_some_and(|offset| set.contains(&offset));
            check_unset(interface, member, bytes, is_set)?;
        }
        let is_missing = |name: &&str| {
            let hook = interface.hook(name).map(Entry::Hook);
            !hook.is_some_and(|hook| self.parsed.programs.contains_key(&hook))
        };
        if let Some(missing) = interface.required.iter().find(|name| is_missing(name)) {
            return Err(refusal(format!("{} has no {missing}", interface.name)));
        }
        Ok(interface)
    }

    /// Reads the programs of the members that are set. Returns their offsets in the structure.
    fn members(
        &mut self,
        section: &Part<'a, '_>,
        start: u64,
        interface: &Interface,
        members: &[Member<'_>],
    ) -> Result<Vec<u64>, PolicyRefusal> {
        let mut set = Vec::new();
        for (at, relocation) in section.relocations() {
            let offset = at.checked_sub(start);
            let member =
                members.iter().find(|member| member.offset.is_some() && member.offset == offset);
            let (Some(offset), Some(member)) = (offset, member) else {
                return Err(refusal(format!("{} has no member at byte {at}", interface.name)));
            };
            let Some(hook) = interface.hook(member.name) else {
                return Err(refusal(format!(
                    "{} has no hook {}; hooks: {}",
                    interface.name,
                    shown(member.name),
                    interface.members()
                )));
            };
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                return Err(refusal("a relocation without a symbol"));
            };
            let target = self.file.symbol_by_index(symbol);
            let target = target.map_err(|error| refusal(error.to_string()))?;
            let index = target.section_index().filter(|&index| self.is_code(index));
            let Some(index) = index else {
                let name = shown(member.name);
                return Err(refusal(format!("{name} is set to something other than a function")));
            };
            let function = self.function((index.0, target.address()))?;
            if self.parsed.programs.insert(Entry::Hook(hook), function).is_some() {
                return Err(refusal(format!(
                    "{} is set twice, or under two names",
                    shown(member.name)
                )));
            }
            set.push(offset);
        }
        Ok(set)
    }

    /// Refuses programs that nothing would call.
    fn other_programs(&mut self, interface: &Interface) -> Result<(), PolicyRefusal> {
        let file = self.file;
        for section in file.sections().filter(|section| is_executable(section)) {
            let name = section.name().unwrap_or_default();
            let is_ops = name.starts_with(OPS_PROGRAMS) || name == TEXT;
            if section.size() == 0 || is_ops {
                continue;
            }
            let is_scan = SCANS.contains(&name) && interface.name == MTHP;
            if !is_scan {
                return Err(refusal(format!(
                    "the model has no event for the program in section {}; with {}, it calls the \
                     hooks {}{}",
                    shown(name),
                    interface.name,
                    interface.members(),
                    if interface.name == MTHP { " and a program in iter/cgroup" } else { "" }
                )));
            }
            let program = self.program(&section, name)?;
            if self.parsed.programs.insert(Entry::Hook(Hook::MthpScan), program).is_some() {
                return Err(refusal("the file has two programs for cgroups"));
            }
        }
        Ok(())
    }

    fn typed_maps(&mut self, btf: &Btf<'_>) -> Result<(), PolicyRefusal> {
        let file = self.file;
        let Some(section) = file.section_by_name(BTF_MAPS) else { return Ok(()) };
        let mut symbols: Vec<_> = file
            .symbols()
            .filter(|symbol| {
                symbol.section_index() == Some(section.index())
                    && symbol.kind() != SymbolKind::Section
                    && symbol.name().is_ok_and(|name| !name.is_empty())
            })
            .take(NR_MAPS_MAX + 1)
            .collect();
        symbols.sort_by_key(object::ObjectSymbol::address);
        for symbol in symbols {
            let name = symbol.name().unwrap_or_default();
            let wrong = |what: String| refusal(format!("map {}: {what}", shown(name)));
            if self.parsed.maps.len() >= NR_MAPS_MAX {
                return Err(wrong(format!("there are more than {NR_MAPS_MAX}")));
            }
            let spec = typed_map(name, btf).map_err(wrong)?;
            let place = (section.index().0, symbol.address());
            if self.maps.insert(place, self.parsed.maps.len()).is_some() {
                return Err(wrong("it overlaps another one".to_owned()));
            }
            self.parsed.maps.push(spec);
        }
        Ok(())
    }
}

/// Any other member must be 0, because nothing would follow it.
fn check_unset(
    interface: &Interface,
    member: &Member<'_>,
    bytes: &[u8],
    is_set: bool,
) -> Result<(), PolicyRefusal> {
    if is_set || interface.hook(member.name).is_some() {
        return Ok(());
    }
    let offset = member.offset.and_then(|offset| usize::try_from(offset).ok());
    let Some(rest) = offset.and_then(|offset| bytes.get(offset..)) else {
        return Err(refusal(format!("member {} is not known", shown(member.name))));
    };
    // The header's only such member is a 32-bit number.
    if rest.iter().take(4).any(|&byte| byte != 0) {
        return Err(refusal(format!(
            "{}.{} must be 0: the model has no process ids, and a policy decides for all \
             processes",
            interface.name,
            shown(member.name)
        )));
    }
    Ok(())
}

fn map_kind(number: u32) -> Result<MapKind, String> {
    Ok(match number {
        // The model has one CPU.
        1 | 5 => MapKind::Hash,
        2 | 6 => MapKind::Array,
        27 => MapKind::Ring,
        32 => MapKind::OfCgroups,
        9 | 10 => {
            return Err("which entry an LRU map drops depends on a kernel's CPUs; use \
                        BPF_MAP_TYPE_HASH, and delete entries"
                .to_owned());
        }
        number => {
            return Err(format!(
                "type {number} is not supported; the model has hashes, arrays, cgroup storage, \
                 and empty rings"
            ));
        }
    })
}

fn typed_map(name: &str, btf: &Btf<'_>) -> Result<MapSpec, String> {
    let members = btf.variable(name).and_then(|nr| btf.structure(nr));
    let (_, members) = members.ok_or("it has no known type")?;
    let (mut kind, mut key, mut value, mut nr_max) = (None, None, None, None);
    for Member { name, of_type, .. } in members {
        let number = || btf.number(of_type).map(u64::from);
        match name {
            "type" => kind = btf.number(of_type),
            "key" => key = btf.pointed_bytes(of_type),
            "value" => value = btf.pointed_bytes(of_type),
            "key_size" => key = number(),
            "value_size" => value = number(),
            "max_entries" => nr_max = number(),
            "map_flags" => {}
            other => return Err(format!("its property {} is not supported", shown(other))),
        }
    }
    let kind = map_kind(kind.ok_or("it has no type")?)?;
    let number = |number: Option<u64>| usize::try_from(number.unwrap_or(0)).unwrap_or(usize::MAX);
    let (key_bytes, value_bytes, nr_max) = match kind {
        MapKind::Ring => (4, 1, 1),
        MapKind::OfCgroups => (4, number(value), NR_CGROUPS_MAX),
        MapKind::Hash | MapKind::Array => (number(key), number(value), number(nr_max)),
    };
    let is_possible = |bytes| (1..=ENTRY_BYTES_MAX).contains(&bytes);
    if !is_possible(key_bytes) || !is_possible(value_bytes) {
        return Err(format!("keys and values must have 1 to {ENTRY_BYTES_MAX} bytes"));
    }
    if nr_max == 0 || nr_max > STATE_BYTES_MAX {
        return Err("it has no entries, or more than fit in memory".to_owned());
    }
    if kind == MapKind::Array && key_bytes != 4 {
        return Err("the key of an array must have 4 bytes".to_owned());
    }
    let name = name.to_owned();
    Ok(MapSpec { name, kind, key_bytes, value_bytes, nr_max })
}
