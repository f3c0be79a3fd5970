//! Splits a command line into words with shell quoting.

use std::ffi::OsString;

use anyhow::{Result, bail};

/// Splits at white space; `'..'`, `".."` and `\\` quote. Nothing is expanded.
pub(super) fn split(text: &str) -> Result<Vec<OsString>> {
    let (mut args, mut arg, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = text.chars();
    while let Some(c) = letters.next() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (Some('\''), c) => arg.get_or_insert_default().push(c),
            (_, '\\') => match letters.next() {
                Some(next) => arg.get_or_insert_default().push(next),
                None => bail!("--server: the command ends with a backslash"),
            },
            (None, '\'' | '"') => {
                quote = Some(c);
                arg.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => args.extend(arg.take().map(OsString::from)),
            (_, c) => arg.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        bail!("--server: a quote is not closed");
    }
    args.extend(arg.map(OsString::from));
    if args.first().is_none_or(|first| first.is_empty()) {
        bail!("--server: expected a command; for more than one, use sh -c '..'");
    }
    Ok(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_in_a_shell() {
        let of = |text: &str| split(text).unwrap();
        assert_eq!(of(" redis-server --save \"\" a\\ b "), ["redis-server", "--save", "", "a b"]);
        assert_eq!(of("sh -c 'echo \"x\" \\n'"), ["sh", "-c", "echo \"x\" \\n"]);
        assert_eq!(of("a\"b c\\\"\"d"), ["ab c\"d"]);
        for broken in ["", "  ", "'a", "a \\", "'' b"] {
            assert!(split(broken).is_err(), "{broken}");
        }
    }
}
