#![allow(warnings, clippy::all, clippy::pedantic)]
use largefolio_mm::core::groups::GroupLimits;
use largefolio_mm::core::observed::Observed;
use largefolio_mm::fault::Access;
use largefolio_mm::folio::lru::{Age, ListId, LruKind};
use largefolio_mm::io::Fadvice;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::rules::reclaim::*;
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::*;
use largefolio_mm::vma::Prot;
use std::collections::HashMap;

fn main() {
    let verbose = std::env::var("V").is_ok();
    let (mut n, mut good) = (0, 0);
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.rsplit('/').next().unwrap().trim_end_matches(".txt").to_owned();
        let head: HashMap<&str, &str> =
            text.lines().next().unwrap()[2..].split(' ').filter_map(|w| w.split_once('=')).collect();
        let kernel = head["kernel"];
        let major: f64 = {
            let mut it = kernel.split('.');
            let a: f64 = it.next().unwrap().parse().unwrap();
            let b: f64 = it.next().unwrap().parse().unwrap();
            a + b / 100.0
        };
        let mut rules = Rules::example();
        rules.readahead_bytes = head["ra_pages"].parse::<u64>().unwrap() * 4096;
        rules.io_bytes = head["max_sectors_kb"].parse::<u64>().unwrap() * 1024;
        rules.fault_around_bytes = head["fault_around_bytes"].parse().unwrap();
        rules.reclaim.lru = if head["lru"] == "generations" { LruRule::Generations } else { LruRule::Lists };
        rules.reclaim.folio_batch = if major < 6.09 { 15 } else { 31 };
        rules.reclaim.generations = if major < 6.07 { GenerationRule::First } else if major < 6.14 { GenerationRule::Protected } else if major < 7.02 { GenerationRule::Reworked } else { GenerationRule::Bounded };
        let mut memory = Memory::new(rules, &Config::new(Arch::X86_64)).unwrap();
        let file = memory.add_file(head["file_bytes"].parse().unwrap(), "ext4-encrypt");
        let open = memory.open(file);
        let mm = memory.new_space();
        let group = memory.add_group(GroupLimits::max(head["limit"].parse::<u64>().unwrap() / 4096));
        memory.join_group(mm, group);
        memory.enter_group(group);
        memory.watch();
        let (mut want, mut got): (Vec<(u64, u64)>, Vec<(u64, u64)>) = (vec![], vec![]);
        let mut step = 0u64;
        let mut stats: HashMap<String, u64> = HashMap::new();
        let mut shift: HashMap<String, (u64, u64)> = HashMap::new();
        for line in text.lines().skip(1) {
            let w: Vec<&str> = line.split(' ').collect();
            let num = |i: usize| w[i].parse::<u64>().unwrap();
            match w[0] {
                "N" => {
                    let kv: HashMap<&str, &str> = w.iter().filter_map(|x| x.split_once('=')).collect();
                    let prot = match kv["prot"] { "r" => Prot::READ, "rx" => Prot::READ_EXEC, "rw" => Prot::READ_WRITE, _ => continue };
                    let addr = u64::from_str_radix(kv["addr"].trim_start_matches("0x"), 16).unwrap();
                    let mut map = Map::file(open, 0, num_of(kv["pages"]) * 4096, prot).at(Vaddr(addr));
                    if kv["map"] == "shared" { map = map.shared(); }
                    memory.mmap(mm, map).unwrap();
                    let range = AddrRange { addr: Vaddr(addr), len_bytes: num_of(kv["pages"]) * 4096 };
                    if kv["advice"] == "random" { memory.madvise(mm, Vaddr(addr), range.len_bytes, Madvice::Random).unwrap(); }
                    shift.insert("addr".into(), (addr, 0));
                    shift.insert(if kv["prot"] == "rx" { "x".into() } else { "r".into() }, (1, 1));
                }
                "L" => memory.fadvise(open, ByteRange { pos: 0, len_bytes: 0 }, Fadvice::Random),
                "T" => {
                    step += 1;
                    memory.flush_group_stats(group);
                    let addr = shift["addr"].0 + num(1) * 4096;
                    let how = if w.len() > 3 && w[3] == "w" { Access::Write } else if shift.contains_key("x") { Access::Exec } else { Access::Read };
                    let how = if std::env::var("READ").is_ok() && how == Access::Exec { Access::Read } else { how };
                    if let Err(e) = memory.touch(mm, Vaddr(addr), how) { println!("{e}"); }
                }
                "B" => {
                    step += 1;
                    memory.flush_group_stats(group);
                    if let Err(e) = memory.pread(open, num(1) * 4096 + num(2), if w.len() > 3 { num(3) } else { head["pattern"].trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap() }) { println!("{e}"); }
                }
                "D" => {
                    let size = 1u64 << num(2);
                    let n = w.get(3).map_or(1, |x| x[1..].parse::<u64>().unwrap());
                    for i in 0..n { want.push((step, num(1) + i * size)); }
                }
                "=" => { stats.insert(w[1].into(), num(2)); }
                _ => {}
            }
            if matches!(w[0], "T" | "B") {
                for o in memory.take_observed() {
                    if let Observed::Removal { index, .. } = o { got.push((step, index.0)); }
                }
            }
        }
        n += 1;
        memory.drain_batches();
        let i = want.iter().zip(&got).take_while(|(a, b)| a == b).count();
        let ok = i == want.len() && i == got.len();
        good += ok as u64;
        println!("{name:28} {} want {} got {} equal {} of {} steps", if ok { "EQUAL" } else { "DIFF " }, want.len(), got.len(), i, step);
        let vec = memory.group(group).vec;
        if !ok || verbose {
            if !ok {
                println!("    want {:?}", &want[i.saturating_sub(1)..want.len().min(i + 8)]);
                println!("    got  {:?}", &got[i.saturating_sub(1)..got.len().min(i + 8)]);
            }
            let g = |k: &str| stats.get(k).copied().unwrap_or(0);
            println!("    pgscan {} {} pgsteal {} {} refault {} {} activate {} {} restore {} {} inactive {} {} active {} {} max {} {} pgactivate {} {} pgdeact {} {}",
                g("pgscan"), vec.counters.pgscan, g("pgsteal"), vec.counters.pgsteal,
                g("workingset_refault_file"), vec.counters.refaults[1], g("workingset_activate_file"), vec.counters.activated[1],
                g("workingset_restore_file"), vec.counters.restored[1],
                g("inactive_file") / 4096, vec.nr_pages(ListId::new(LruKind::File, Age::Inactive)), g("active_file") / 4096, vec.nr_pages(ListId::new(LruKind::File, Age::Active)),
                g("max"), memory.group(group).group.events.max, g("pgactivate"), memory.counters().reclaim.pgactivate, g("pgdeactivate"), memory.counters().reclaim.pgdeactivate);
        }
    }
    println!("{good} of {n}");
}
fn num_of(s: &str) -> u64 { s.parse().unwrap() }
