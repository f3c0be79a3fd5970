//! An answer in one sentence for text and page: figures and the words between them.

use crate::html::markup::Markup;

pub(crate) enum Piece {
    Text(String),
    Figure(String),
}

pub(crate) fn text(text: impl Into<String>) -> Piece {
    Piece::Text(text.into())
}

pub(crate) fn figure(figure: impl Into<String>) -> Piece {
    Piece::Figure(figure.into())
}

pub(crate) fn plain(sentence: &[Piece]) -> String {
    sentence.iter().map(|(Piece::Text(text) | Piece::Figure(text))| text.as_str()).collect()
}

pub(crate) fn marked(sentence: &[Piece]) -> Markup {
    let mut markup = Markup::new();
    markup.raw("<p class=\"answer\">");
    for piece in sentence {
        match piece {
            Piece::Text(text) => markup.text(text),
            Piece::Figure(text) => markup.element("b", text),
        };
    }
    markup.raw("</p>");
    markup
}
