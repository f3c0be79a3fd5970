use largefolio_linux::crosscheck::*;
fn main() {
    let mut args = std::env::args_os().skip(1);
    let fs = args.next().unwrap().into_string().unwrap();
    let window_kib = args.next().unwrap().into_string().unwrap().parse().unwrap();
    let disk = if args.next().unwrap() == "loop" { DiskKind::Loop } else { DiskKind::Synchronous };
    let out = args.next().unwrap();
    let plan = ProgramPlan { command: args.collect(), filesystem: fs, window_kib, disk };
    let r = record_program(&plan).unwrap();
    eprintln!("removed {} {:?} files {} unknown {:?}", r.nr_removed, r.status, r.nr_files, r.unknown);
    std::fs::write(out, r.text).unwrap();
}
