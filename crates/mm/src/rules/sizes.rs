//! Per-size control of page-cache folios: never, always, exec or always+exec (docs/behaviour
//! K.1.4).
//!
//! Differs: proposed in the discussion of series 000; no kernel has this. A control sets the sizes
//! that file reads and writes can use, and the single size for executable mappings. It is only a
//! preference: if no allowed size fits, base pages (the mapping's smallest folio) are used without
//! an error.
//!
//! ```text
//!   area's preferred size      advice of the loader or the program     vma::Advice::preferred
//!     over the filesystem's    +sizes.xfs=64K:exec                     FileSizes
//!       over the machine's     +sizes=2M:exec/64K:always               FileSizes
//!         over the kernel      every size, its own exec rule           FileOrders::KERNEL
//! ```
//!
//! Owns the values, their text form and the orders that they represent. `readahead/issue.rs`,
//! `fault/readahead.rs` and `io/write.rs` follow them.
//!
//! Invariants:
//! - I1: a size is named once and is a power of two in bytes; at most one size is marked exec.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::anon::Orders;
use crate::units::{Order, PageSize, parse_bytes};

/// Use of one folio size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeUse {
    /// Not used.
    Never,
    /// All reads and writes.
    Always,
    /// Executable mappings are read in folios of this size.
    Exec,
    /// Both.
    AlwaysExec,
}

impl SizeUse {
    const ALL: [(&'static str, Self); 4] = [
        ("never", Self::Never),
        ("always", Self::Always),
        ("exec", Self::Exec),
        ("always+exec", Self::AlwaysExec),
    ];

    /// Word in the text form.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    fn is_always(self) -> bool {
        matches!(self, Self::Always | Self::AlwaysExec)
    }

    fn is_exec(self) -> bool {
        matches!(self, Self::Exec | Self::AlwaysExec)
    }
}

/// Uses of the folio sizes of one filesystem, or of all.
///
/// ```
/// use largefolio_mm::rules::sizes::SizeControl;
/// let control: SizeControl = "64K:always+exec/2M:always".parse()?;
/// assert_eq!(control.to_string(), "64K:always+exec/2M:always");
/// assert!("64K:exec/2M:exec".parse::<SizeControl>().is_err());
/// # Ok::<(), largefolio_mm::rules::sizes::SizesError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SizeControl {
    sizes: BTreeMap<u64, SizeUse>,
    others: SizeUse,
}

/// The machine's controls; none = the kernel's own rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSizes {
    /// Applies to every filesystem without its own control.
    #[serde(default)]
    pub machine: Option<SizeControl>,
    /// By filesystem.
    #[serde(default)]
    pub filesystems: BTreeMap<String, SizeControl>,
}

/// Why a control is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizesError {
    /// Not `SIZE:USE`.
    #[error("'{0}' is not SIZE:USE; expected sizes and uses, such as 64K:exec/2M:always")]
    Form(String),
    /// Not a folio size.
    #[error("'{0}' is not a folio size; expected a power of two, such as 64K, or `others`")]
    Size(String),
    /// An unknown word.
    #[error("'{0}' is not a use for a size; expected never, always, exec or always+exec")]
    Use(String),
    /// A size named twice.
    #[error("{0} is given twice; give each size once")]
    Twice(String),
    /// More than one size for executable mappings.
    #[error("{0} and {1} are both marked exec; expected at most one size with exec or always+exec")]
    TwoExec(String, String),
    /// All other sizes, marked exec.
    #[error("`others` cannot be marked exec: expected others:never or others:always")]
    OthersExec,
    /// A size below the base page.
    #[error("{size} is smaller than the base page size, {page}; expected {page} to {max}")]
    BelowPage {
        /// The size.
        size: String,
        /// Base page.
        page: PageSize,
        /// Largest folio.
        max: String,
    },
    /// A size above the page cache's largest.
    #[error(
        "with {page} base pages the page cache has no folios of {size}; expected {page} to {max}"
    )]
    AboveMax {
        /// The size.
        size: String,
        /// Base page.
        page: PageSize,
        /// Largest folio.
        max: String,
    },
    /// The base page, forbidden.
    #[error(
        "{0} is the base page size, which must stay available for when no other size fits; \
         expected a use other than never"
    )]
    BaseNever(String),
}

impl SizeControl {
    /// Checks that a kernel with base pages of `page` has all these sizes.
    ///
    /// # Errors
    /// The first size that it does not have.
    pub fn check(&self, page: PageSize, max: Order) -> Result<(), SizesError> {
        let max_bytes = page.bytes() << max.get();
        for (&bytes, &size_use) in &self.sizes {
            let (size, max) = (size_name(bytes), size_name(max_bytes));
            if bytes < page.bytes() {
                return Err(SizesError::BelowPage { size, page, max });
            } else if bytes > max_bytes {
                return Err(SizesError::AboveMax { size, page, max });
            } else if bytes == page.bytes() && size_use == SizeUse::Never {
                return Err(SizesError::BaseNever(size));
            }
        }
        Ok(())
    }

    /// The use of a folio of `bytes`.
    #[must_use]
    pub fn use_of(&self, bytes: u64) -> SizeUse {
        self.sizes.get(&bytes).copied().unwrap_or(self.others)
    }

    /// The size marked exec, in bytes.
    #[must_use]
    pub fn exec_bytes(&self) -> Option<u64> {
        self.sizes.iter().find(|(_, size_use)| size_use.is_exec()).map(|(bytes, _)| *bytes)
    }

    fn orders(&self, page: PageSize, max: Order) -> FileOrders {
        let bytes = |order: Order| page.bytes() << order.get();
        let orders = (0..=max.get()).map(Order::new);
        let always = orders.filter(|&order| self.use_of(bytes(order)).is_always());
        let exec = self.exec_bytes().map(|exec| (exec, page.order_of_bytes(exec)));
        // An exec size that the filesystem does not have is ignored.
        let is_had = |&(exec, order): &(u64, Order)| bytes(order) == exec && order <= max;
        FileOrders {
            always: always.fold(Orders::NONE.with(Order::ZERO), Orders::with),
            exec: exec.filter(is_had).map(|(_, order)| order),
        }
    }
}

impl FromStr for SizeControl {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<Self, SizesError> {
        let mut control = Self { sizes: BTreeMap::new(), others: SizeUse::Never };
        let mut are_others_named = false;
        for part in text.split('/') {
            let (size, word) =
                part.split_once(':').ok_or_else(|| SizesError::Form(part.to_owned()))?;
            let known = SizeUse::ALL.into_iter().find(|(name, _)| *name == word);
            let (_, size_use) = known.ok_or_else(|| SizesError::Use(word.to_owned()))?;
            let is_again = if size == OTHERS {
                if size_use.is_exec() {
                    return Err(SizesError::OthersExec);
                }
                control.others = size_use;
                std::mem::replace(&mut are_others_named, true)
            } else {
                let bytes = parse_bytes(size).filter(|bytes| bytes.is_power_of_two());
                let bytes = bytes.ok_or_else(|| SizesError::Size(size.to_owned()))?;
                if let (Some(exec), true) = (control.exec_bytes(), size_use.is_exec())
                    && exec != bytes
                {
                    return Err(SizesError::TwoExec(size_name(exec), size_name(bytes)));
                }
                control.sizes.insert(bytes, size_use).is_some()
            };
            if is_again {
                return Err(SizesError::Twice(size.to_owned()));
            }
        }
        Ok(control)
    }
}

const OTHERS: &str = "others";

impl fmt::Display for SizeControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.sizes.iter().map(|(&bytes, size_use)| (size_name(bytes), *size_use));
        let others = (self.others != SizeUse::Never).then(|| (OTHERS.to_owned(), self.others));
        for (nr, (size, size_use)) in named.chain(others).enumerate() {
            let separator = if nr == 0 { "" } else { "/" };
            write!(f, "{separator}{size}:{}", size_use.name())?;
        }
        Ok(())
    }
}

impl TryFrom<String> for SizeControl {
    type Error = SizesError;

    fn try_from(text: String) -> Result<Self, SizesError> {
        text.parse()
    }
}

impl From<SizeControl> for String {
    fn from(control: SizeControl) -> Self {
        control.to_string()
    }
}

impl FileSizes {
    /// Checks that a kernel with base pages of `page` has all sizes of every control.
    ///
    /// # Errors
    /// The first size that it does not have.
    pub fn check(&self, page: PageSize, max: Order) -> Result<(), SizesError> {
        self.machine.iter().chain(self.filesystems.values()).try_for_each(|c| c.check(page, max))
    }

    /// The orders for a file of `filesystem` with folios up to order `max`.
    #[must_use]
    pub fn orders(&self, filesystem: &str, page: PageSize, max: Order) -> FileOrders {
        let control = self.filesystems.get(filesystem).or(self.machine.as_ref());
        control.map_or(FileOrders::KERNEL, |control| control.orders(page, max))
    }
}

/// A control's meaning for one file.
///
/// Invariants: no order exceeds the mapping's largest; order 0 is always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOrders {
    /// Orders that all reads and writes can use.
    pub always: Orders,
    /// Order in which executable mappings are read; `None` = the kernel's rule.
    pub exec: Option<Order>,
}

impl FileOrders {
    /// No control: every order, and the kernel's own exec rule.
    pub const KERNEL: Self = Self { always: Orders::ALL, exec: None };
}

/// `64K`, `2M`: in the largest unit that divides the size.
#[must_use]
pub fn size_name(bytes: u64) -> String {
    match bytes.trailing_zeros() {
        40.. if bytes > 0 => format!("{}T", bytes >> 40),
        30.. if bytes > 0 => format!("{}G", bytes >> 30),
        20.. if bytes > 0 => format!("{}M", bytes >> 20),
        10.. if bytes > 0 => format!("{}K", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(text: &str) -> SizeControl {
        text.parse().unwrap()
    }

    fn orders(text: &str, page: PageSize, max: u8) -> (Vec<u8>, Option<u8>) {
        let machine = Some(control(text));
        let sizes = FileSizes { machine, ..FileSizes::default() };
        let FileOrders { always, exec } = sizes.orders("xfs", page, Order::new(max));
        let mut always: Vec<u8> = always.descending().map(Order::get).collect();
        always.reverse();
        (always, exec.map(Order::get))
    }

    #[test]
    fn a_control_becomes_orders_of_the_base_page() {
        assert_eq!(orders("64K:exec", PageSize::K4, 9), (vec![0], Some(4)));
        assert_eq!(orders("64K:always+exec/2M:always", PageSize::K4, 9), (vec![0, 4, 9], Some(4)));
        assert_eq!(orders("64K:exec", PageSize::K16, 9), (vec![0], Some(2)));
        assert_eq!(orders("64K:exec", PageSize::K64, 9), (vec![0], Some(0)));
        let all = (0..=9).collect::<Vec<_>>();
        assert_eq!(orders("64K:always+exec/others:always", PageSize::K4, 9), (all, Some(4)));
        let but_64k = vec![0, 1, 2, 3, 5, 6];
        assert_eq!(orders("64K:exec/others:always", PageSize::K4, 6), (but_64k, Some(4)));
    }

    #[test]
    fn a_size_the_filesystem_has_not_is_as_if_not_named() {
        assert_eq!(orders("2M:exec/256K:always", PageSize::K4, 6), (vec![0, 6], None));
        assert_eq!(orders("64K:always+exec", PageSize::K4, 0), (vec![0], None));
        // Sizes below the base page have no effect, although `check` rejects them earlier.
        assert_eq!(orders("16K:exec", PageSize::K64, 9), (vec![0], None));
    }

    #[test]
    fn a_filesystem_of_its_own_comes_before_the_machine() {
        let filesystems = [("xfs".to_owned(), control("2M:exec"))].into();
        let sizes = FileSizes { machine: Some(control("64K:exec")), filesystems };
        let exec = |fs| sizes.orders(fs, PageSize::K4, Order::new(9)).exec.map(Order::get);
        assert_eq!([exec("xfs"), exec("ext4")], [Some(9), Some(4)]);
        let none = FileSizes::default().orders("xfs", PageSize::K4, Order::new(9));
        assert_eq!(none, FileOrders::KERNEL);
    }

    #[test]
    fn errors_name_the_cause_and_the_form() {
        let message = |text: &str| text.parse::<SizeControl>().unwrap_err().to_string();
        assert!(message("64K:exec/2M:always+exec").starts_with("64K and 2M are both marked exec"));
        assert!(message("64K:exce").contains(
            "'exce' is not a use for a size; expected never, \
                                           always"
        ));
        assert!(message("64K").contains("such as 64K:exec/2M:always"));
        assert!(message("").contains("is not SIZE:USE"));
        assert!(message("96K:exec").contains("'96K' is not a folio size"));
        assert!(message("64K:exec/64K:never").contains("64K is given twice"));
        assert!(message("others:always/others:never").contains("others is given twice"));
        assert!(message("others:exec").contains("`others` cannot be marked exec"));
        let check = |text: &str, page: PageSize| {
            control(text).check(page, page.pmd_order().min(Order::new(11))).unwrap_err().to_string()
        };
        assert_eq!(
            check("16K:exec", PageSize::K64),
            "16K is smaller than the base page size, 64K; expected 64K to 128M"
        );
        assert!(
            check("4M:always", PageSize::K4).contains("has no folios of 4M; expected 4K to 2M")
        );
        assert!(check("4K:never", PageSize::K4).contains("4K is the base page"));
        assert_eq!(control("4K:exec").check(PageSize::K4, Order::new(9)), Ok(()));
    }

    #[test]
    fn the_text_form_is_read_back() {
        for text in ["64K:exec", "4K:always/64K:always+exec/2M:never/others:always"] {
            assert_eq!(control(text).to_string(), text);
        }
    }
}
