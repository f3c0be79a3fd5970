//! Architectures of programs that can be recorded.
//!
//! Owns what differs between them for an emulator. Both crates compile this one file
//! (`largefolio-linux` has a link to it, because a cdylib cannot be a dependency).

/// Of a program, not of the machine that records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    X86_64,
    Arm64,
}

impl Arch {
    pub(crate) const ALL: [Self; 2] = [Self::X86_64, Self::Arm64];

    /// By the number in an ELF header (`e_machine`).
    pub(crate) fn of_machine(machine: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.machine() == machine)
    }

    const fn machine(self) -> u16 {
        match self {
            Self::X86_64 => 62,
            Self::Arm64 => 183,
        }
    }

    /// What QEMU calls it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// By QEMU's name.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.name().as_bytes() == name)
    }

    /// QEMU's options for the CPU of the program: one without SVE and `FEAT_MOPS`, of whose loads and
    /// stores QEMU tells a plugin nothing.
    pub(crate) const fn options(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &[],
            Self::Arm64 => &["-cpu", "neoverse-n1"],
        }
    }
}
