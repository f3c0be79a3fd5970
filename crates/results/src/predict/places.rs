//! The names of places in a program: blocks of its memory, and pages of its code.

use largefolio_sim::replay::detail::AreaKind;
use largefolio_sim::replay::regions::{Block, CodePage};

use crate::figures::printable;
use crate::predict::functions::Functions;

/// Longest name of a function in a line.
const NAME_CHARS_MAX: usize = 40;

pub(super) fn block_label(block: &Block) -> String {
    let name = match block.kind {
        AreaKind::File => file_name(&block.path),
        AreaKind::Heap => "heap".to_owned(),
        AreaKind::Stack => "stack".to_owned(),
        AreaKind::Private => "memory".to_owned(),
    };
    format!("{name} at {:#x}", block.start)
}

pub(super) fn file_name(path: &str) -> String {
    printable(path.rsplit('/').next().unwrap_or(path))
}

/// Names a page of code by its functions, or by its place in the file.
pub(super) fn code_label(functions: &[Functions], page: &CodePage) -> String {
    if page.path.is_empty() {
        return format!("code at {:#x}", page.start);
    }
    let file = file_name(&page.path);
    let known = functions.iter().find(|it| it.path == page.path && it.pos == page.pos);
    let Some(names) = known.map(|known| &known.names).filter(|names| !names.is_empty()) else {
        return format!("{file}+{:#x}", page.pos);
    };
    let mut first = printable(&names[0]);
    if first.chars().count() > NAME_CHARS_MAX {
        first = first.chars().take(NAME_CHARS_MAX - 2).chain("..".chars()).collect();
    }
    match names.len() - 1 {
        0 => format!("{file}: {first}"),
        nr => format!("{file}: {first}, {nr} more"),
    }
}
