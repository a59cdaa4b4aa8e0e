//! Charts as SVG text: a canvas, and round numbers for axes. Layout of text is left to the viewer.

use std::fmt::Write;

/// Approximate number of ticks on an axis.
const TICKS: f64 = 6.0;

/// Position in the picture, in pixels from its upper left corner.
pub type Point = (f64, f64);

/// A picture under construction.
#[derive(Debug)]
pub struct Canvas {
    svg: String,
}

impl Canvas {
    /// Creates an empty white picture; `style` is CSS for the classes that shapes will name, in
    /// addition to `title`, `label`, `grid` and `axis`.
    pub fn new((width, height): Point, style: &str) -> Self {
        const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#57606a}\
            .title{font-size:14px;font-weight:600;fill:#1f2328}.label{font-size:12px}\
            .grid{stroke:#d0d7de;stroke-width:1}.axis{stroke:#8c959f;stroke-width:1}";
        let mut canvas = Self { svg: String::new() };
        canvas.line(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\"><style>{STYLE}{style}</style><rect width=\"100%\" height=\"100%\" \
             fill=\"#fff\"/>"
        ));
        canvas
    }

    /// Completes the picture and returns its SVG text.
    pub fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }

    /// Draws a straight line.
    pub fn line_segment(&mut self, class: &str, (x1, y1): Point, (x2, y2): Point) {
        self.line(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// Draws text; `anchor` is `start`, `middle` or `end`.
    pub fn text(&mut self, (x, y): Point, anchor: &str, class: &str, content: &str) {
        let content = escape(content);
        self.line(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>"
        ));
    }

    /// Draws text from a point upwards.
    pub fn text_upright(&mut self, (x, y): Point, class: &str, content: &str) {
        let content = escape(content);
        self.line(format_args!(
            "<text class=\"{class}\" transform=\"translate({x:.1} {y:.1}) rotate(-90)\">{content}</text>"
        ));
    }

    /// Draws a line through points.
    pub fn polyline(&mut self, class: &str, points: impl IntoIterator<Item = Point>) {
        let points: Vec<_> = points.into_iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        self.line(format_args!("<polyline class=\"{class}\" points=\"{points}\"/>"));
    }

    /// Draws a small filled circle at a point.
    pub fn dot(&mut self, class: &str, (x, y): Point) {
        self.line(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\"/>"
        ));
    }

    /// Draws a filled rectangle with a tooltip.
    pub fn cell(&mut self, (x, y): Point, (width, height): Point, fill: &str, hint: &str) {
        let hint = escape(hint);
        self.line(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{fill}\"><title>{hint}</title></rect>"
        ));
    }

    fn line(&mut self, content: std::fmt::Arguments<'_>) {
        writeln!(self.svg, "{content}").expect("writing to a String cannot fail");
    }
}

fn escape(content: &str) -> String {
    content.replace('&', "&amp;").replace('<', "&lt;")
}

/// Distance between the ticks of an axis: 1, 2 or 5 times a power of ten.
pub fn tick_step(low: f64, high: f64) -> f64 {
    let raw = ((high - low) / TICKS).max(1e-6);
    let power = 10.0_f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| raw <= factor * power * 1.001);
    factor.unwrap_or(10.0) * power
}

/// The multiples of `step` from `low` to `high`.
pub fn ticks(low: f64, high: f64, step: f64) -> impl Iterator<Item = f64> {
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(move |i| i as f64 * step)
}

/// Label of a tick: at most four decimals, without trailing zeros.
pub fn tick_label(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_ticks(low: f64, high: f64, expected: &[&str]) {
        let step = tick_step(low, high);
        assert_eq!(ticks(low, high, step).map(tick_label).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn ticks_are_round_numbers() {
        check_ticks(1.5, 4.5, &["1.5", "2", "2.5", "3", "3.5", "4", "4.5"]);
        check_ticks(0.0, 1000.0, &["0", "200", "400", "600", "800", "1000"]);
        check_ticks(0.0, 0.012, &["0", "0.002", "0.004", "0.006", "0.008", "0.01", "0.012"]);
    }

    #[test]
    fn canvas_escapes_markup_in_text() {
        let mut canvas = Canvas::new((10.0, 10.0), "");
        canvas.text((0.0, 0.0), "start", "title", "a < b & c");
        canvas.cell((0.0, 0.0), (1.0, 1.0), "red", "<script>");
        let svg = canvas.finish();
        assert!(svg.contains("a &lt; b &amp; c") && svg.contains("&lt;script>"));
    }
}
