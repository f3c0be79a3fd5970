#![allow(warnings, clippy::all, clippy::pedantic)]
use largefolio_sim::crosscheck::files::FileSteps;
use largefolio_sim::crosscheck::{Aspect, Recording, read_all};
use std::collections::BTreeMap;
fn main() {
    let verbose = std::env::var("V").is_ok();
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut rows: BTreeMap<String, (usize, usize, usize, Vec<String>)> = BTreeMap::new();
    for path in std::env::args().skip(1) {
        let mut all = Vec::new();
        read_all::<FileSteps>(std::path::Path::new(&path), &mut |r| all.push(r)).unwrap();
        for one in all {
            if !one.name.contains(&only) {
                continue;
            }
            let v = one.check(None).unwrap();
            let same = v.differences.iter().all(|d| d.aspect == Aspect::Group);
            let row = rows
                .entry(format!("{} {}", one.header.variant, one.lists_under_limit().unwrap_or("-")))
                .or_default();
            row.0 += 1;
            row.1 += usize::from(same);
            row.2 += usize::from(v.is_equal());
            if !same {
                row.3.push(
                    one.name.rsplit('/').next().unwrap().replace("limit-", "").replace(".txt", ""),
                );
            }
            if verbose {
                for d in v.differences.iter() {
                    println!("{} [{} evictions]: {d}", one.name, v.nr_compared(Aspect::Evictions));
                }
            }
        }
    }
    for (k, r) in rows {
        println!("{k}: {} of {} same sequence, {} counts too; {}", r.1, r.0, r.2, r.3.join(" "));
    }
}
