//! The meaning of helpers and kernel functions. [`super::super::verify`] checks their arguments.

use largefolio_mm::policy::Window;

use super::super::cached::End;
use super::super::insn::helper;
use super::super::maps::errno;
use super::super::posted::ITERATE_OPTS_WORDS;
use super::super::things::{Kind, Place};
use super::{DATA_FIRST, MAP_FIRST, PolicyRun, REGION_SHIFT};

/// Cost of a helper, in instructions of 4 to 6 ns: 0.1 us for a small map, up to 0.7 us for a
/// large one.
const INSNS_OF_HELPER: u64 = 64;
/// Cost of calling a callback, in addition to its instructions.
const INSNS_OF_CALL: u64 = 8;
/// Bytes of keys and values that cost one more instruction.
const BYTES_OF_INSN: usize = 8;
/// `BPF_MAX_LOOPS`.
const NR_LOOPS_MAX: u64 = 8 << 20;
/// Folios that one iteration of a list visits.
const NR_VISITED_MAX: usize = 4096;
const FOREIGN: &str = "a foreign argument";
/// -1, as an `int`.
const FAILED: u64 = u64::MAX;

mod verdict {
    pub(super) const CONTINUE: u64 = 0;
    pub(super) const EVICT: u64 = 2;
}

/// `BPF_LOCAL_STORAGE_GET_F_CREATE`.
const CREATE: u64 = 1;
/// `NR_ANON_MAPPED`, `NR_SHMEM` and `NR_FILE_PAGES` of the header.
const ANON: u64 = 0;
const SHMEM: u64 = 1;
const FILE: u64 = 2;

type Done<T> = Result<T, &'static str>;

/// `struct cache_ext_iterate_opts`, as words.
#[derive(Clone, Copy)]
struct IterateOpts([u64; ITERATE_OPTS_WORDS]);

impl PolicyRun<'_> {
    pub(super) fn call(&mut self, nr: i64) -> Done<()> {
        let [_, one, two, three, four, five, ..] = self.registers;
        let value = match nr {
            helper::WINDOW => {
                let (start, nr_pages, nr_ahead, order) = (one, two, three, four);
                self.window = Some(Window { start, nr_pages, nr_ahead, order });
                0
            }
            helper::MAP_LOOKUP | helper::MAP_UPDATE | helper::MAP_DELETE => {
                self.call_map(nr, [one, two, three, four])?
            }
            helper::LOOP => self.repeat([one, two, three, four])?,
            helper::CGROUP_STORAGE => self.cgroup_entry([one, two, four])?,
            helper::LIST_ITERATE => self.iterate([one, two, three], None)?,
            helper::LIST_ITERATE_EXTENDED => self.iterate_extended([one, two, three, four])?,
            helper::LIST_SAMPLE => self.sample([one, two, three, four])?,
            _ => {
                self.spend(INSNS_OF_HELPER)?;
                self.call_simple(nr, [one, two, three, five])?
            }
        };
        self.registers[0] = value;
        Ok(())
    }

    fn call_map(&mut self, nr: i64, [map, key, value, flags]: [u64; 4]) -> Done<u64> {
        let number = Self::map_number(map)?;
        let spec = self.state.maps.get(number).ok_or(FOREIGN)?.spec();
        let (key_bytes, value_bytes) = (spec.key_bytes, spec.value_bytes);
        let nr_bytes = key_bytes + if nr == helper::MAP_UPDATE { value_bytes } else { 0 };
        self.spend(INSNS_OF_HELPER + (nr_bytes / BYTES_OF_INSN) as u64)?;
        let key = self.bytes(key, key_bytes).ok_or(FOREIGN)?;
        if nr == helper::MAP_LOOKUP {
            let offset = self.state.maps[number].lookup(key);
            return Ok(offset.map_or(0, |offset| self.entry_address(number, offset)));
        }
        let key = key.to_vec();
        let status = if nr == helper::MAP_DELETE {
            self.state.maps[number].delete(&key)
        } else {
            let value = self.bytes(value, value_bytes).ok_or(FOREIGN)?.to_vec();
            self.state.maps[number].update(&key, &value, flags)
        };
        Ok(status as u64)
    }

    fn map_number(map: u64) -> Done<usize> {
        let number = (map >> REGION_SHIFT).checked_sub(MAP_FIRST);
        number.and_then(|number| usize::try_from(number).ok()).ok_or(FOREIGN)
    }

    fn entry_address(&self, map: usize, offset: usize) -> u64 {
        let region = DATA_FIRST + (self.state.data.len() + map) as u64;
        (region << REGION_SHIFT) + offset as u64
    }

    fn repeat(&mut self, [nr, function, passed, flags]: [u64; 4]) -> Done<u64> {
        let nr = u64::from(nr as u32);
        if flags != 0 {
            return Ok(errno::EINVAL as u64);
        }
        if nr > NR_LOOPS_MAX {
            return Ok(errno::E2BIG as u64);
        }
        for index in 0..nr {
            self.spend(INSNS_OF_CALL)?;
            if self.call_function(function, [index, passed])? != 0 {
                return Ok(index + 1);
            }
        }
        Ok(nr)
    }

    /// The entry of a cgroup, which is created if the flags ask for it.
    fn cgroup_entry(&mut self, [map, cgroup, flags]: [u64; 3]) -> Done<u64> {
        let (number, group) = (Self::map_number(map)?, number_of(Kind::Cgroup, cgroup)?);
        let map = self.state.maps.get_mut(number).ok_or(FOREIGN)?;
        let value_bytes = map.spec().value_bytes;
        let key = (group as u32).to_le_bytes();
        if map.lookup(&key).is_none() && flags & CREATE > 0 {
            let _ = map.update(&key, &vec![0; value_bytes], 1);
        }
        let offset = map.lookup(&key);
        self.spend(INSNS_OF_HELPER + (value_bytes / BYTES_OF_INSN) as u64)?;
        Ok(offset.map_or(0, |offset| self.entry_address(number, offset)))
    }

    fn call_simple(&mut self, nr: i64, [one, two, three, _]: [u64; 4]) -> Done<u64> {
        let group = self.question.context.group;
        let cached = &mut self.state.cached;
        let done = |is_done: bool| if is_done { 0 } else { FAILED };
        Ok(match nr {
            helper::RING_RESERVE
            | helper::PUT_MEM_CGROUP
            | helper::FLUSH_CGROUP
            | helper::FLUSH_MEM_CGROUP => 0,
            helper::LIST_NEW => cached.add_list(number_of(Kind::MemCgroup, one)?),
            helper::LIST_ADD | helper::LIST_ADD_TAIL => {
                let end = if nr == helper::LIST_ADD { End::Head } else { End::Tail };
                done(cached.add(group, one, number_of(Kind::Folio, two)?, end))
            }
            helper::LIST_MOVE => {
                // A bool: one byte.
                let end = if three as u8 == 0 { End::Head } else { End::Tail };
                done(cached.move_to(group, one, number_of(Kind::Folio, two)?, end))
            }
            helper::LIST_DEL => done(cached.delete(number_of(Kind::Folio, one)?)),
            helper::GET_MEM_CGROUP => Kind::MemCgroup.address(number_of(Kind::Cgroup, one)?),
            helper::CGROUP_STALL => self.question.context.group_stall_ns / 1_000_000,
            helper::PAGE_STATE => self.page_state(two as u32),
            _ => return Err("an unknown helper"),
        })
    }

    /// Bytes of a cgroup's memory of one kind; all ones if the kind is not known.
    fn page_state(&self, item: u32) -> u64 {
        let context = self.question.context;
        let pages = match u64::from(item) {
            ANON => context.group_anon - context.group_shmem.min(context.group_anon),
            SHMEM => context.group_shmem,
            FILE => context
                .group_pages
                .saturating_sub(context.group_anon)
                .saturating_add(context.group_shmem),
            _ => return u64::MAX,
        };
        pages << (context.page_shift & 63)
    }

    /// Visits the list's folios from the head on.
    fn iterate(
        &mut self,
        [memcg, list, function]: [u64; 3],
        opts: Option<&mut IterateOpts>,
    ) -> Done<u64> {
        self.spend(INSNS_OF_HELPER)?;
        let group = number_of(Kind::MemCgroup, memcg)?;
        if !self.state.cached.has_list(group, list) {
            return Ok(FAILED);
        }
        let mut in_place = IterateOpts([0; 6]);
        let opts = opts.unwrap_or(&mut in_place);
        let [continue_list, continue_mode, evict_list, evict_mode, ..] = opts.0;
        let visited = self.state.cached.first(list, NR_VISITED_MAX);
        for (index, folio) in (0..).zip(visited) {
            if self.state.cached.has_enough() {
                break;
            }
            self.spend(INSNS_OF_CALL)?;
            let node = Kind::ListNode.address(folio);
            // An int: the upper half is not defined.
            let verdict = u64::from(self.call_function(function, [index, node])? as u32);
            let (to, mode) = match verdict {
                verdict::CONTINUE => {
                    opts.0[4] += 1;
                    (continue_list, continue_mode)
                }
                verdict::EVICT => {
                    self.state.cached.propose(folio);
                    opts.0[5] += 1;
                    (evict_list, evict_mode)
                }
                _ => break,
            };
            let to = if to == 0 { list } else { to };
            match mode {
                1 => drop(self.state.cached.move_to(group, to, folio, End::Head)),
                2 => drop(self.state.cached.move_to(group, to, folio, End::Tail)),
                _ => {}
            }
        }
        Ok(0)
    }

    fn iterate_extended(&mut self, [memcg, list, function, opts]: [u64; 4]) -> Done<u64> {
        let mut words = IterateOpts([0; 6]);
        for (at, word) in (0..).zip(&mut words.0) {
            *word = self.load(opts + 8 * at, 8).ok_or(FOREIGN)?;
        }
        let group = number_of(Kind::MemCgroup, memcg)?;
        let [continue_list, continue_mode, evict_list, evict_mode, ..] = words.0;
        for (to, mode) in [(continue_list, continue_mode), (evict_list, evict_mode)] {
            // A folio that changes its list needs an end of it.
            let is_known = to == 0 || mode != 0 && self.state.cached.has_list(group, to);
            if !is_known || mode > 2 {
                return Ok(FAILED);
            }
        }
        let value = self.iterate([memcg, list, function], Some(&mut words))?;
        for (at, word) in (0..).zip(words.0) {
            self.store(opts + 8 * at, 8, word).ok_or(FOREIGN)?;
        }
        Ok(value)
    }

    /// Proposes the folio with the lowest score of each group of folios.
    fn sample(&mut self, [memcg, list, function, opts]: [u64; 4]) -> Done<u64> {
        self.spend(INSNS_OF_HELPER)?;
        let group = number_of(Kind::MemCgroup, memcg)?;
        let nr_each = self.load(opts, 4).ok_or(FOREIGN)?;
        if !self.state.cached.has_list(group, list) || nr_each == 0 {
            return Ok(FAILED);
        }
        let cached = &self.state.cached;
        let nr_wanted = cached.nr_requested().saturating_sub(cached.nr_proposed());
        let nr = nr_wanted.saturating_mul(nr_each).min(NR_VISITED_MAX as u64) as usize;
        let visited = self.state.cached.first(list, nr);
        for few in visited.chunks(nr_each as usize) {
            let mut best: Option<(i64, u64)> = None;
            for &folio in few {
                self.spend(INSNS_OF_CALL)?;
                let node = Kind::ListNode.address(folio);
                let score = self.call_function(function, [node, 0])? as i64;
                if best.is_none_or(|(lowest, _)| score < lowest) {
                    best = Some((score, folio));
                }
            }
            for &folio in few {
                let _ = self.state.cached.move_to(group, list, folio, End::Tail);
            }
            if let Some((_, folio)) = best {
                self.state.cached.propose(folio);
            }
        }
        Ok(0)
    }
}

/// A thing's number, if it has this kind.
fn number_of(kind: Kind, address: u64) -> Done<u64> {
    let place = Place::of(address).filter(|place| place.kind == kind && place.offset == 0);
    place.map(|place| place.number).ok_or(FOREIGN)
}
