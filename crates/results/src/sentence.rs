//! An answer in one sentence for text and page: figures and the words between them.

use largefolio_report::html::markup::Markup;

pub(crate) enum Piece {
    Words(String),
    Figure(String),
}

pub(crate) fn words(text: impl Into<String>) -> Piece {
    Piece::Words(text.into())
}

pub(crate) fn figure(figure: impl Into<String>) -> Piece {
    Piece::Figure(figure.into())
}

pub(crate) fn plain(sentence: &[Piece]) -> String {
    sentence.iter().map(|(Piece::Words(text) | Piece::Figure(text))| text.as_str()).collect()
}

pub(crate) fn marked(sentence: &[Piece]) -> Markup {
    let mut answer = Markup::new();
    answer.raw("<p class=\"answer\">");
    for piece in sentence {
        match piece {
            Piece::Words(text) => answer.text(text),
            Piece::Figure(text) => answer.element("b", text),
        };
    }
    answer.raw("</p>");
    answer
}
