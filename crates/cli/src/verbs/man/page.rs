//! One manual page.
//!
//! `clap_mangen` renders title, name and options. This module writes the other sections: synopsis
//! as in `--help`, examples, exit status, environment, files, see also.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::facts;
use super::parts::{Parts, joined};

/// The text about the exit status if the help has none.
const EXIT_STATUS: &str = "0 on success, 2 on error.";

/// The page's name: `folio-trace-gen`.
pub(super) fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Renders the page in roff. `command` must be built; `verbs_of_all` are the verbs of `folio`.
pub(super) fn render(command: &Command, verbs_of_all: &[String]) -> Result<Vec<u8>> {
    let page = Man::new(command.clone())
        .title(name(command).to_uppercase())
        .date(env!("FOLIO_DATE"))
        .source(concat!("largefolio ", env!("CARGO_PKG_VERSION")))
        .manual("Large folios");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    synopsis(command).to_writer(&mut text)?;
    description(command).to_writer(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        text.extend(options(&page)?);
    }
    let parts = parts(command);
    other_sections(command, &parts, verbs_of_all).to_writer(&mut text)?;
    Ok(text)
}

/// Renders the options, and reduces the blank lines that `clap_mangen` puts before a list of values
/// to a single one.
fn options(page: &Man) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    page.render_options_section(&mut text)?;
    let text = String::from_utf8(text)?;
    Ok(text.replace("\n.br\n\n.br\n", "\n.sp\n").into_bytes())
}

fn parts(command: &Command) -> Parts {
    let text = command.get_after_long_help().or_else(|| command.get_after_help());
    Parts::of(&text.map(ToString::to_string).unwrap_or_default())
}

/// The usage forms of `--help`, one per line.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let own = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut roff = section("SYNOPSIS");
    for (nr, form) in usage.trim_start_matches("Usage:").lines().map(str::trim).enumerate() {
        if nr > 0 {
            roff.control("br", []);
        }
        match form.strip_prefix(own) {
            Some(rest) => roff.text([bold(own), roman(rest)]),
            None => roff.text([roman(form)]),
        };
    }
    roff
}

/// The long text without its first sentence, which is already the page's name.
fn description(command: &Command) -> Roff {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let long = command.get_long_about().map_or_else(|| about.clone(), ToString::to_string);
    let rest = long.strip_prefix(about.as_str()).map(str::trim).filter(|rest| !rest.is_empty());
    let mut roff = section("DESCRIPTION");
    for (nr, paragraph) in rest.unwrap_or(&long).split("\n\n").enumerate() {
        if nr > 0 {
            roff.control("PP", []);
        }
        roff.text(inline(&joined(paragraph)));
    }
    roff
}

fn other_sections(command: &Command, parts: &Parts, verbs_of_all: &[String]) -> Roff {
    let mut roff = Roff::new();
    verbs(&mut roff, command);
    if !parts.notes.is_empty() {
        roff.control("SH", ["NOTES"]);
    }
    for (nr, note) in parts.notes.iter().enumerate() {
        if nr > 0 {
            roff.control("PP", []);
        }
        roff.text(inline(note));
    }
    roff.control("SH", ["EXIT STATUS"]);
    roff.text(inline(&exit_status(parts)));
    let own = command.get_bin_name().unwrap_or_else(|| command.get_name());
    terms(&mut roff, "ENVIRONMENT", facts::environment(own));
    terms(&mut roff, "FILES", facts::files(own));
    examples(&mut roff, &parts.examples);
    see_also(&mut roff, command, verbs_of_all);
    roff
}

fn exit_status(parts: &Parts) -> String {
    match &parts.exit_status {
        Some(line) if line.starts_with("Of ") => format!("{EXIT_STATUS} {line}"),
        Some(status) => status.clone(),
        None => EXIT_STATUS.to_owned(),
    }
}

fn verbs(roff: &mut Roff, command: &Command) {
    let shown: Vec<&Command> = command.get_subcommands().filter(|v| !v.is_hide_set()).collect();
    if shown.is_empty() {
        return;
    }
    roff.control("SH", ["VERBS"]);
    for verb in shown {
        roff.control("TP", []);
        roff.text([bold(name(verb)), roman("(1)")]);
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        roff.text([roman(joined(&about))]);
    }
}

fn terms(roff: &mut Roff, title: &str, terms: Vec<facts::Fact>) {
    if !terms.is_empty() {
        roff.control("SH", [title]);
    }
    for (term, text) in terms {
        roff.control("TP", []);
        roff.text([if title == "FILES" { italic(term) } else { bold(term) }]);
        roff.text(inline(text));
    }
}

fn examples(roff: &mut Roff, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    roff.control("SH", ["EXAMPLES"]);
    roff.control("EX", []);
    for line in lines {
        roff.text([roman(line.as_str())]);
    }
    roff.control("EE", []);
}

fn see_also(roff: &mut Roff, command: &Command, verbs_of_all: &[String]) {
    let own = name(command);
    let mut pages: BTreeSet<String> = BTreeSet::new();
    let full_name = command.get_bin_name().unwrap_or(own);
    if let Some((above, _)) = full_name.rsplit_once(' ') {
        pages.insert(above.replace(' ', "-"));
        pages.insert("folio".to_owned());
    }
    pages.extend(facts::mentioned(&texts(command), verbs_of_all));
    let below = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    pages.extend(below.map(|verb| name(verb).to_owned()));
    pages.remove(own);
    let mut list: Vec<Inline> = Vec::new();
    let own_pages = pages.into_iter().map(|page| (page, "(1)".to_owned()));
    let others = facts::pages(full_name).into_iter();
    let others = others.map(|(page, section)| (page.to_owned(), format!("({section})")));
    for (page, section) in own_pages.chain(others) {
        if !list.is_empty() {
            list.push(roman(", "));
        }
        list.extend([bold(page), roman(section)]);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text(list);
}

fn texts(command: &Command) -> String {
    let long = [command.get_long_about(), command.get_after_long_help(), command.get_after_help()];
    long.into_iter().flatten().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn section(title: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    roff
}

/// A paragraph with words between backticks in bold.
fn inline(text: &str) -> Vec<Inline> {
    let pieces = text.split('`').enumerate();
    pieces.map(|(nr, piece)| if nr % 2 == 1 { bold(piece) } else { roman(piece) }).collect()
}
