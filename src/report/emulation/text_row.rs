//! One row of a terminal screen: cells with a character and its style. Pure.

use anstyle::{AnsiColor, Color, Effects, Reset, RgbColor, Style};
use smol_str::SmolStr;
use unicode_width::UnicodeWidthChar;

/// Most bytes of a character with its combining marks; further marks are dropped.
const CLUSTER_BYTES_MAX: usize = 22;

/// The columns of one row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TextRow {
    cells: Vec<Cell>,
}

#[derive(Clone, Debug, PartialEq)]
struct Cell {
    content: Content,
    style: Style,
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    /// A character with its combining marks. Empty: the second column of the character before.
    Text(SmolStr),
    /// A byte that is not text, such as a control character.
    Byte(u8),
}

const BLANK: Content = Content::Text(SmolStr::new_inline(" "));
const CONTINUED: Content = Content::Text(SmolStr::new_inline(""));

impl TextRow {
    /// Writes a character at a column; returns the column behind it.
    pub(super) fn put(&mut self, column: usize, character: char, style: Style) -> usize {
        let width = character.width().unwrap_or(1);
        if width == 0 {
            self.combine(column, character);
            return column;
        }
        let mut buffer = [0; 4];
        let text = SmolStr::new(character.encode_utf8(&mut buffer));
        self.set(column, Cell { content: Content::Text(text), style });
        for next in 1..width {
            self.set(column + next, Cell { content: CONTINUED, style });
        }
        column + width
    }

    /// Writes a byte that is not text; returns the column behind it.
    pub(super) fn put_byte(&mut self, column: usize, byte: u8, style: Style) -> usize {
        self.set(column, Cell { content: Content::Byte(byte), style });
        column + 1
    }

    fn set(&mut self, column: usize, cell: Cell) {
        let blank = Cell { content: BLANK, style: Style::new() };
        if self.cells.len() <= column {
            self.cells.resize(column + 1, blank.clone());
        }
        let is_continued = |cell: &Cell| cell.content == CONTINUED;
        // A character of two columns that loses one of them is removed.
        if cell.content != CONTINUED && is_continued(&self.cells[column]) && 0 < column {
            self.cells[column - 1] = blank.clone();
        }
        self.cells[column] = cell;
        if let Some(next) = self.cells.get_mut(column + 1).filter(|next| is_continued(next)) {
            *next = blank;
        }
    }

    /// Adds a mark to the character before a column.
    fn combine(&mut self, column: usize, mark: char) {
        let end = column.min(self.cells.len());
        let before = self.cells[..end].iter_mut().rev();
        let base = before.map(|cell| &mut cell.content).find(|content| **content != CONTINUED);
        if let Some(Content::Text(text)) = base
            && text.len() + mark.len_utf8() <= CLUSTER_BYTES_MAX
        {
            *text = [text.as_str(), mark.encode_utf8(&mut [0; 4])].concat().into();
        }
    }

    /// Removes everything from a column on.
    pub(super) fn truncate(&mut self, column: usize) {
        self.blank_half(column);
        self.cells.truncate(column);
    }

    /// Blanks a two-column character whose second column is this one.
    fn blank_half(&mut self, column: usize) {
        let is_half = self.cells.get(column).is_some_and(|cell| cell.content == CONTINUED);
        if is_half && 0 < column {
            for cell in &mut self.cells[column - 1..=column] {
                *cell = Cell { content: BLANK, style: Style::new() };
            }
        }
    }

    /// Blanks everything before a column.
    pub(super) fn blank_before(&mut self, columns: usize) {
        self.blank_half(columns);
        for cell in self.cells.iter_mut().take(columns) {
            *cell = Cell { content: BLANK, style: Style::new() };
        }
    }

    /// Whether the row was never written, or its text was removed.
    pub(super) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Whether the row shows nothing.
    pub(super) fn is_blank(&self) -> bool {
        self.cells.iter().all(is_blank)
    }

    /// Number of columns in use.
    pub(super) fn width(&self) -> usize {
        self.cells.len()
    }

    /// Removes the blanks at the end of the row.
    pub(super) fn trim(&mut self) {
        let used = self.cells.iter().rposition(|cell| !is_blank(cell)).map_or(0, |last| last + 1);
        self.cells.truncate(used);
    }

    /// Text of the row, with colours.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (mut out, mut style) = (Vec::with_capacity(self.cells.len()), Style::new());
        for cell in &self.cells {
            push_style(&mut out, style, cell.style);
            style = cell.style;
            match &cell.content {
                Content::Text(text) => out.extend_from_slice(text.as_bytes()),
                Content::Byte(byte) => out.push(*byte),
            }
        }
        push_style(&mut out, style, Style::new());
        out
    }
}

fn is_blank(cell: &Cell) -> bool {
    cell.content == BLANK && cell.style == Style::new()
}

/// Appends the sequence that changes the style of the text that follows.
pub(super) fn push_style(out: &mut Vec<u8>, from: Style, to: Style) {
    use std::io::Write as _;
    if from == to {
        return;
    }
    if from != Style::new() {
        let _ = write!(out, "{Reset}");
    }
    let _ = write!(out, "{to}");
}

/// The style after a sequence `ESC [ parameters m`.
pub(super) fn apply_sgr(style: Style, parameters: &[u8]) -> Style {
    let text = std::str::from_utf8(parameters).unwrap_or_default();
    let mut numbers = text.split([';', ':']).map(|number| number.parse::<u8>().unwrap_or(0));
    let mut style = style;
    while let Some(number) = numbers.next() {
        style = match number {
            38 => style.fg_color(parse_extended_color(&mut numbers)),
            48 => style.bg_color(parse_extended_color(&mut numbers)),
            _ => with_attribute(style, number),
        };
    }
    style
}

fn with_attribute(style: Style, number: u8) -> Style {
    let on = |effect| style.effects(style.get_effects().insert(effect));
    let off = |effect| style.effects(style.get_effects().remove(effect));
    match number {
        0 => Style::new(),
        1 => on(Effects::BOLD),
        2 => on(Effects::DIMMED),
        3 => on(Effects::ITALIC),
        4 => on(Effects::UNDERLINE),
        5 => on(Effects::BLINK),
        7 => on(Effects::INVERT),
        8 => on(Effects::HIDDEN),
        9 => on(Effects::STRIKETHROUGH),
        22 => off(Effects::BOLD | Effects::DIMMED),
        23 => off(Effects::ITALIC),
        24 => off(Effects::UNDERLINE),
        25 => off(Effects::BLINK),
        27 => off(Effects::INVERT),
        28 => off(Effects::HIDDEN),
        29 => off(Effects::STRIKETHROUGH),
        30..=37 | 90..=97 => style.fg_color(Some(basic_color(number))),
        40..=47 | 100..=107 => style.bg_color(Some(basic_color(number - 10))),
        39 => style.fg_color(None),
        49 => style.bg_color(None),
        _ => style,
    }
}

fn basic_color(number: u8) -> Color {
    const COLOURS: [AnsiColor; 8] = [
        AnsiColor::Black,
        AnsiColor::Red,
        AnsiColor::Green,
        AnsiColor::Yellow,
        AnsiColor::Blue,
        AnsiColor::Magenta,
        AnsiColor::Cyan,
        AnsiColor::White,
    ];
    let colour = COLOURS[usize::from(number % 10)];
    if 90 <= number { colour.bright(true) } else { colour }.into()
}

/// Parses `5;N` or `2;R;G;B`.
fn parse_extended_color(numbers: &mut impl Iterator<Item = u8>) -> Option<Color> {
    match numbers.next()? {
        5 => Some(anstyle::Ansi256Color(numbers.next()?).into()),
        2 => Some(RgbColor(numbers.next()?, numbers.next()?, numbers.next()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(row: &TextRow, expect: &str) {
        assert_eq!(String::from_utf8_lossy(&row.to_bytes()), expect);
    }

    #[test]
    fn row_overwrites_by_columns() {
        let (mut row, plain) = (TextRow::default(), Style::new());
        for (column, character) in "漢字x".chars().scan(0, |at, character| {
            let column = *at;
            *at += character.width().unwrap_or(0);
            Some((column, character))
        }) {
            row.put(column, character, plain);
        }
        check(&row, "漢字x");
        row.put(1, 'a', plain);
        check(&row, " a字x");
        row.put(2, 'b', plain);
        check(&row, " ab x");
        row.put(5, '\u{301}', plain);
        check(&row, " ab x\u{301}");
        row.put(7, 'y', plain);
        check(&row, " ab x\u{301}  y");
        row.blank_before(5);
        row.truncate(7);
        assert!(row.is_blank() && !row.is_empty());
        row.trim();
        assert!(row.is_empty());
    }

    #[test]
    fn row_keeps_colours() {
        let mut row = TextRow::default();
        let red = apply_sgr(Style::new(), b"1;31");
        row.put(0, 'r', red);
        row.put(1, 'p', apply_sgr(red, b""));
        row.put(2, 'c', apply_sgr(Style::new(), b"38;5;208"));
        check(&row, "\x1b[1m\x1b[31mr\x1b[0mp\x1b[38;5;208mc\x1b[0m");
        assert_eq!(apply_sgr(red, b"22;39"), Style::new());
        assert_eq!(apply_sgr(red, b"38;2;1;2;3;48;5;7;99"), {
            let colour = RgbColor(1, 2, 3);
            red.fg_color(Some(colour.into())).bg_color(Some(anstyle::Ansi256Color(7).into()))
        });
    }
}
