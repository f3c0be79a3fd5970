//! Why memory has no larger folios.

macro_rules! reasons {
    ($($name:ident = $code:literal: $text:expr,)*) => {
        /// Why memory has no larger folios. The numbers are those of `largefolio.h`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum Reason {
            $($name = $code,)*
        }

        impl Reason {
            #[must_use]
            pub const fn all() -> &'static [Self] {
                &[$(Self::$name,)*]
            }

            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Returns the text, which ends with a zero byte in memory.
            #[must_use]
            pub fn c_text(self) -> &'static core::ffi::CStr {
                let text: &[u8] = match self {
                    $(Self::$name => concat!($text, "\0").as_bytes(),)*
                };
                core::ffi::CStr::from_bytes_until_nul(text).unwrap_or_default()
            }
        }
    };
}

reasons! {
    Complete = 0: "all memory that fits is in the largest folios that the kernel gives",
    NotVisible = 1: "folios below the PMD size are visible only to root (CAP_SYS_ADMIN)",
    Unmapped = 2: "a part of the range is not mapped",
    NotTouched = 3: "the memory is not used yet: it gets folios when it is written",
    OnlyRead = 4: "the memory was only read, so the kernel mapped its zero page",
    Swapped = 5: "the memory is swapped out",
    NoThp = 6: "the kernel is built without large folios for private memory",
    SettingOff = 7: "the settings below /sys/kernel/mm/transparent_hugepage allow no size",
    NeedsAdvice = 8: "the settings give folios only to memory with MADV_HUGEPAGE",
    AdvisedAgainst = 9: "the memory has the advice MADV_NOHUGEPAGE",
    ProcessOff = 10: "large folios are disabled for the process (PR_SET_THP_DISABLE)",
    TooShort = 11: "the memory is shorter than the smallest folio that would be an improvement",
    Misaligned = 12: "no naturally aligned block lies in the memory: reserve it with alignment",
    NotPrivate = 13: "the memory is a file's or shared, for which other settings decide",
    Hugetlb = 14: "the memory is in hugetlb pages, which are no folios of this kind",
    SmallFolios = 15: "the memory was used before the advice, or no larger folio was free then",
    NoFreeFolio = 16: "the kernel had no free folio: memory is fragmented or scarce",
    Busy = 17: "pages are in use by the kernel (pinned, locked, or moving): try again",
    CgroupLimit = 18: "the control group's memory limit leaves no space for a folio",
    NotCollapsible = 19: "the kernel does not collapse this memory",
    OldKernel = 20: "the kernel cannot collapse on request (MADV_COLLAPSE, Linux 6.1)",
    Advised = 21: "the memory has the advice, and no setting of private memory prevents large folios",
    SettingHidden = 22: "the settings below /sys/kernel/mm/transparent_hugepage are not visible",
}

pub(crate) const NR_REASONS: usize = Reason::all().len();

/// Bytes by reason. The reason with most bytes is the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares([u64; NR_REASONS]);

impl Shares {
    pub(crate) const fn new() -> Self {
        Self([0; NR_REASONS])
    }

    pub(crate) fn add(&mut self, reason: Reason, bytes: usize) {
        if let Some(sum) = self.0.get_mut(reason as usize) {
            *sum = sum.saturating_add(bytes as u64);
        }
    }

    /// Moves at most `bytes` from one reason to another. Returns how many.
    pub(crate) fn replace(&mut self, from: Reason, to: Reason, bytes: usize) -> usize {
        let Some(sum) = self.0.get_mut(from as usize) else { return 0 };
        let moved = usize::try_from(*sum).unwrap_or(usize::MAX).min(bytes);
        *sum -= moved as u64;
        self.add(to, moved);
        moved
    }

    /// Returns the reason of most bytes, the first of them if several have as many.
    pub(crate) fn main(&self) -> Reason {
        let mut best = (Reason::Complete, 0);
        for &reason in Reason::all() {
            let bytes = self.0.get(reason as usize).copied().unwrap_or(0);
            if reason != Reason::Complete && bytes > best.1 {
                best = (reason, bytes);
            }
        }
        best.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_up_and_texts_are_equal_in_c() {
        for (at, reason) in Reason::all().iter().enumerate() {
            assert_eq!(*reason as usize, at);
            assert_eq!(reason.c_text().to_str().unwrap(), reason.text());
        }
    }

    #[test]
    fn the_reason_of_most_bytes_is_the_answer() {
        let mut shares = Shares::new();
        assert_eq!(shares.main(), Reason::Complete);
        shares.add(Reason::Complete, 1 << 30);
        shares.add(Reason::NotTouched, 4096);
        shares.add(Reason::Swapped, 8192);
        assert_eq!(shares.main(), Reason::Swapped);
        assert_eq!(shares.replace(Reason::Swapped, Reason::Busy, 5000), 5000);
        assert_eq!(shares.main(), Reason::Busy);
        assert_eq!(shares.replace(Reason::Swapped, Reason::Busy, 1 << 20), 3192);
    }
}
