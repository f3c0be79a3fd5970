//! Architectures of programs that can be recorded.
//!
//! Owns the differences that matter to an emulator. `largefolio-linux` compiles this file too,
//! through a symbolic link: a cdylib cannot be a dependency.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    X86_64,
    Arm64,
}

impl Arch {
    pub(crate) const ALL: [Self; 2] = [Self::X86_64, Self::Arm64];

    pub(crate) fn of_machine(machine: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.machine() == machine)
    }

    const fn machine(self) -> u16 {
        match self {
            Self::X86_64 => 62,
            Self::Arm64 => 183,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.name().as_bytes() == name)
    }

    /// Returns QEMU's options for the program's CPU. SVE and `FEAT_MOPS` are off, because QEMU does
    /// not report their loads and stores to a plugin.
    pub(crate) const fn options(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &[],
            Self::Arm64 => &["-cpu", "neoverse-n1"],
        }
    }
}
