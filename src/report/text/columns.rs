//! Columns of equal width.

/// Side on which the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Formats rows with two spaces between columns; a line has no spaces at its end.
pub fn show_columns<const N: usize>(rows: &[[String; N]], align: [Align; N]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or_default());
    rows.iter().fold(String::new(), |mut text, row| {
        let cells = row.iter().zip(align).zip(widths).map(|((cell, align), width)| match align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = [["né", "8", ""], ["name", "16", "x"]].map(|row| row.map(str::to_owned));
        let shown = show_columns(&rows, [Align::Left, Align::Right, Align::Left]);
        assert_eq!(shown, "né     8\nname  16  x\n");
    }
}
