//! Tests of the memory manager through its public interface.

#![expect(clippy::unwrap_used, reason = "a test panics on an unexpected error")]
#![expect(clippy::cast_possible_truncation, reason = "test worlds are small")]

mod anon;
mod collapse;
mod ends;
mod hugetlb;
mod numa;
mod populate;
mod shmem;
mod source;
mod writers;
