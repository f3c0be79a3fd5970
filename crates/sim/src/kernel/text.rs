//! A kernel as complete text, for replaying under the same rules on another host.

use toml::Table;

use super::load::from_table;
use super::{Kernel, KernelError};
use crate::datafile::parse;

impl Kernel {
    /// Returns a complete kernel file, edits included, without `based-on`. The same rules always
    /// give the same text. The name is not part of the text.
    ///
    /// ```
    /// use largefolio_sim::kernel::Kernel;
    /// let edited = Kernel::parse("6.12+exec-block=64K")?;
    /// let again = Kernel::from_toml(&edited.name, &edited.to_toml()?)?;
    /// assert_eq!(again, edited);
    /// # Ok::<(), largefolio_sim::kernel::KernelError>(())
    /// ```
    ///
    /// # Errors
    /// [`KernelError::BadFile`] if reading the text back does not reproduce the kernel.
    pub fn to_toml(&self) -> Result<String, KernelError> {
        let text = self.to_table()?.to_string();
        if Self::from_toml(&self.name, &text)? != *self {
            let message = "contains rules that its text does not reproduce".to_owned();
            return Err(KernelError::BadFile { origin: self.name.clone(), message });
        }
        Ok(text)
    }

    /// Creates the kernel `name` from the output of [`Kernel::to_toml`]. Reads no other file and
    /// applies no edits.
    ///
    /// # Errors
    /// As [`Kernel::parse`] for a bad file.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, KernelError> {
        let table: Table = parse(text, name)?;
        if table.contains_key("based-on") {
            let message = "a text of its own is based on no other".to_owned();
            return Err(KernelError::BadFile { origin: name.to_owned(), message });
        }
        from_table(name, table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_and_many_edits_survive_their_text() {
        let edits = [
            "page=64K",
            "exec-window=arch",
            "exec-block=64K+forced=final",
            "sizes=64K:always+exec/2M:always",
            "sizes.xfs=2M:exec",
            "anon-64K=always+thp=always",
            "max-ptes-none=0+max-ptes-swap=3+max-ptes-shared=4",
            "start-order=64K+fault-around=contpte",
            "clear=one-pass+preemption=on",
        ];
        // A version may lack the subject of an edit; the newest supports all of them.
        for edit in edits {
            Kernel::parse(&format!("7.3+{edit}")).unwrap();
        }
        for base in Kernel::names() {
            let names = std::iter::once(base.to_owned())
                .chain(edits.iter().map(|edit| format!("{base}+{edit}")));
            for kernel in names.filter_map(|name| Kernel::parse(&name).ok()) {
                let text = kernel.to_toml().unwrap();
                assert_eq!(Kernel::from_toml(&kernel.name, &text).unwrap(), kernel);
                assert_eq!(kernel.clone().to_toml().unwrap(), text, "the same text");
            }
        }
    }

    #[test]
    fn a_text_reads_no_other_file() {
        let error = Kernel::from_toml("x", "based-on = \"6.12\"\ndescription = \"\"").unwrap_err();
        assert!(error.to_string().contains("based on no other"), "{error}");
    }
}
