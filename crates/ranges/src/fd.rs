//! A descriptor, closed when it is dropped.

use core::ffi::{CStr, c_int};

use crate::sys::{Errno, Result, call, i32_word, word};

#[derive(Debug)]
pub struct Fd(usize);

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor was opened by this type and is not used after this.
        let _ = unsafe { call(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}

impl Fd {
    /// Opens a file by its absolute path. It is closed on exec.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &CStr, flags: c_int) -> Result<Self> {
        Self::open_from(i32_word(libc::AT_FDCWD), path, flags, 0)
    }

    /// Opens a file in this directory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_at(&self, name: &CStr, flags: c_int, mode: u32) -> Result<Self> {
        Self::open_from(self.0, name, flags, mode)
    }

    fn open_from(directory: usize, path: &CStr, flags: c_int, mode: u32) -> Result<Self> {
        // O_NONBLOCK: if a pipe replaced the file, opening it must not block the program.
        let flags = flags | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
        let (path, flags) = (path.as_ptr().addr(), i32_word(flags));
        // SAFETY: `path` is a C string that outlives the call.
        let fd = unsafe { call(libc::SYS_openat, [directory, path, flags, mode as usize, 0, 0]) };
        fd.map(Self)
    }

    /// The descriptor as a system call's argument.
    #[must_use]
    pub const fn word(&self) -> usize {
        self.0
    }

    /// The descriptor's number.
    #[must_use]
    pub fn raw(&self) -> c_int {
        c_int::try_from(self.0).unwrap_or(-1)
    }

    /// Reads at `offset` until `buffer` is full or the file ends. Returns the number of bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        // SAFETY: the buffer is ours to write.
        unsafe { self.read_to(buffer.as_mut_ptr().addr(), buffer.len(), offset) }
    }

    /// Reads `len` bytes at `offset` to `address`, fewer at the end of the file.
    ///
    /// # Safety
    /// `len` bytes at `address` are the caller's to write.
    ///
    /// # Errors
    /// The kernel's.
    pub unsafe fn read_to(&self, address: usize, len: usize, offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < len {
            let at = [self.0, address + done, len - done, word(offset) + done, 0, 0];
            // SAFETY: the rest of the caller's bytes.
            match unsafe { call(libc::SYS_pread64, at) } {
                Ok(0) => break,
                Ok(nr) => done += nr,
                Err(Errno(libc::EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reads until `buffer` is full or the file ends. Returns the number of bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = [self.0, rest.as_mut_ptr().addr(), rest.len(), 0, 0, 0];
            // SAFETY: `rest` is ours to write.
            match unsafe { call(libc::SYS_read, at) } {
                Ok(0) => break,
                Ok(nr) => done += nr,
                Err(Errno(libc::EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reads 64-bit numbers from number `first` on. Returns how many the file has.
    pub(crate) fn read_words(&self, first: u64, words: &mut [u64]) -> Result<usize> {
        let offset = first.checked_mul(8).ok_or(Errno(libc::EOVERFLOW))?;
        // SAFETY: the words are ours to write, and any bytes are valid numbers.
        let nr = unsafe { self.read_to(words.as_mut_ptr().addr(), size_of_val(words), offset) }?;
        Ok(nr / 8)
    }
}
