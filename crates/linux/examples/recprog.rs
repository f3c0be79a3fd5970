use largefolio_linux::crosscheck::*;
fn main() {
    let mut args = std::env::args_os().skip(1);
    let fs = args.next().unwrap().into_string().unwrap();
    let window_kb = args.next().unwrap().into_string().unwrap().parse().unwrap();
    let disk = if args.next().unwrap() == "loop" { Disk::Later } else { Disk::Within };
    let out = args.next().unwrap();
    let plan = ProgramPlan { command: args.collect(), filesystem: Filesystem::named(&fs).unwrap(), window_kb, disk };
    let r = ProgramRecorder::new(Facts::of_host(), "sudo").unwrap().record(&plan).unwrap();
    println!("removed {} {:?} files {} unknown {:?}", r.nr_removed, r.status, r.nr_files, r.unknown);
    std::fs::write(out, r.text).unwrap();
}
