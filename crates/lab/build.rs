//! Compiles the programs of `crosscheck` (`probe/{probe,cow,script}.c`, no C library) for the target.

use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

/// As in `probe/Makefile`.
const FLAGS: [&str; 10] = [
    "-O2",
    "-ffreestanding",
    "-nostdlib",
    "-static",
    "-fno-stack-protector",
    "-fno-pie",
    "-no-pie",
    "-fno-builtin",
    "-fno-asynchronous-unwind-tables",
    "-mgeneral-regs-only",
];

fn main() {
    println!("cargo::rerun-if-changed=probe");
    println!("cargo::rerun-if-env-changed=CC");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let is_native = variable("HOST") == variable("TARGET");
    let compiler = env::var("CC").unwrap_or_else(|_| match variable("CARGO_CFG_TARGET_ARCH") {
        arch if is_native || arch == "x86_64" => "cc".to_owned(),
        arch => format!("{arch}-linux-gnu-gcc"),
    });
    for name in ["probe", "cow", "script"] {
        let out = PathBuf::from(variable("OUT_DIR")).join(name);
        let source = format!("probe/{name}.c");
        let built = Command::new(&compiler).args(FLAGS).arg("-o").arg(out).arg(&source).status();
        if !built.is_ok_and(|status| status.success()) {
            println!(
                "cargo::error=cannot build {source} with {compiler}; install a C compiler: apt-get install gcc"
            );
            exit(1);
        }
    }
}
