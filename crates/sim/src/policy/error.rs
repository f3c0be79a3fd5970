//! Reasons for refusing a policy.

use std::io;

use largefolio_trace::shown;

use super::limits::{MAPS, NR_INSNS_MAX, NR_MAPS_MAX, OBJECT_BYTES_MAX};

#[derive(Debug, thiserror::Error)]
pub enum PolicyFileError {
    #[error("cannot read the policy {}: {error}", shown(path))]
    Read { path: String, error: io::Error },
    #[error(
        "no policy is called '{}' (your own file must end in .o, and in a kernel's name its path \
         cannot contain '+' or ','); {hint}",
        shown(name)
    )]
    Unknown { name: String, hint: String },
    #[error(
        "two policies are called '{}', so results could not distinguish them; rename one",
        shown(.0)
    )]
    Twice(String),
    #[error("{}: a kernel has one policy; name it once", shown(.0))]
    Second(String),
    #[error("'{}' is not a valid policy name", shown(.0))]
    Name(String),
    #[error("policy {}: {cause}", shown(name))]
    Refused { name: String, cause: PolicyRefusal },
    #[error(
        "the policy {} is a Python object, which cannot be serialized; use a BPF object file \
         instead",
        shown(.0)
    )]
    NotAnObject(String),
}

#[derive(Debug, thiserror::Error)]
pub enum PolicyRefusal {
    #[error("the file has more than {OBJECT_BYTES_MAX} bytes")]
    TooLarge,
    #[error("it is not a BPF object file ({0}); compile it with clang -O2 -target bpf -c")]
    NotBpf(String),
    #[error("it has no section named folio/POINT; known points: \
             {points}", points = super::point_names())]
    NoProgram,
    #[error("struct_ops: {0}")]
    Posted(String),
    #[error(
        "it is written for {}, and a kernel has that interface only with the posted patches; \
         rewrite it with folio_policy.h",
        shown(.0)
    )]
    NotForKernel(String),
    #[error(
        "there is no point called {}; known points: \
         {points}", shown(.0), points = super::point_names()
    )]
    Point(String),
    #[error("section {} contains {} functions; use one function per point", shown(section), nr)]
    Functions { section: String, nr: usize },
    #[error(
        "section {} contains {nr} instructions; a program has 1 to \
             {NR_INSNS_MAX}",
        shown(section)
    )]
    Length { section: String, nr: usize },
    #[error("{section}, instruction {at}: {what}", section = shown(section))]
    Insn { section: String, at: usize, what: String },
    #[error("section {}: {what}", shown(section))]
    Section { section: String, what: String },
    #[error(
        "map {}: {what}; define maps with FOLIO_MAP from folio_policy.h (section {MAPS}, at most \
         {NR_MAPS_MAX})",
        shown(map)
    )]
    Map { map: String, what: String },
}
