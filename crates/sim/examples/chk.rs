use largefolio_sim::crosscheck::*;
fn main() {
    for path in std::env::args().skip(1) {
        read_all(path.as_ref(), &mut |r| {
            let mut files = std::collections::BTreeMap::new();
            for s in &r.steps { for i in &s.insertions { *files.entry(i.0).or_insert(0u32) += 1; } }
            let v = check(&r, None).unwrap();
            println!("{} {} steps {}/{} waits {} files {} folios {} {:?}", v.is_equal(), v.name, v.nr_steps, r.steps.len(), v.nr_waits, files.len(), files.values().sum::<u32>(), v.compared);
            for d in &v.differences { println!("  {d}"); }
        }).unwrap();
    }
}
