//! Links the static unwinder, so the library does not need `libgcc_s.so.1`.
//!
//! The library never panics, but rustc links std into every cdylib that may unwind, and std refers
//! to the unwinder. Every process loads this library, so it must not bring in a second one. A
//! linker script named `-lgcc_s` redirects to the static unwinder.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let is_linux = env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "linux");
    let Some(folder) = env::var_os("OUT_DIR").filter(|_| is_linux && has_static_unwinder()) else {
        return Ok(());
    };
    let folder = PathBuf::from(folder);
    fs::write(folder.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc -lc)\n")?;
    println!("cargo::rustc-link-search=native={}", folder.display());
    Ok(())
}

/// Returns whether the linking C compiler knows `libgcc_eh.a`. If not, it prints the bare name.
fn has_static_unwinder() -> bool {
    let is_native = env::var_os("HOST") == env::var_os("TARGET");
    let asked = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output();
    is_native
        && asked.is_ok_and(|answer| {
            Path::new(String::from_utf8_lossy(&answer.stdout).trim()).is_absolute()
        })
}
