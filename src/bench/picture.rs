//! Results as pictures: bus bandwidth over size, one curve a run, and pairs as a heat map. Pure.

use super::document::Row;
use super::pairs::Pairs;
use super::table::show_bytes_short;
use crate::base::svg::{Canvas, Point, short, tick_step, ticks};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 58.0;
/// Curves that can be told apart; a ninth looks like the first.
const COLOURS: [&str; 8] =
    ["#0969da", "#bc4c00", "#1a7f37", "#8250df", "#cf222e", "#9a6700", "#1b7c83", "#57606a"];

/// One curve.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    /// What the legend says.
    pub name: &'a str,
    /// Its sizes.
    pub rows: &'a [Row],
}

/// The part of the plane that is shown: sizes as powers of two, bandwidth from 0.
#[derive(Clone, Copy, Debug)]
struct Frame {
    sizes: (f64, f64),
    top_gbs: f64,
    step_gbs: f64,
}

impl Frame {
    fn around(series: &[Series<'_>]) -> Option<Self> {
        let rows = || series.iter().flat_map(|one| one.rows).filter(|row| 0 < row.bytes);
        let first = rows().map(|row| row.bytes).min()? as f64;
        let last = rows().map(|row| row.bytes).max()? as f64;
        let best = rows().map(|row| row.busbw_gbs).fold(0.0, f64::max);
        let step_gbs = tick_step(0.0, best);
        let top_gbs = ((best / step_gbs).ceil() * step_gbs).max(step_gbs);
        Some(Self { sizes: (first.log2(), last.log2().max(first.log2() + 1.0)), top_gbs, step_gbs })
    }

    fn at(&self, row: &Row) -> Point {
        (self.x((row.bytes as f64).log2()), self.y(row.busbw_gbs))
    }

    fn x(&self, power: f64) -> f64 {
        let share = (power - self.sizes.0) / (self.sizes.1 - self.sizes.0);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, gbs: f64) -> f64 {
        HEIGHT - BOTTOM - gbs / self.top_gbs * (HEIGHT - TOP - BOTTOM)
    }
}

/// Bus bandwidth over size.
pub fn show_curves(title: &str, series: &[Series<'_>]) -> String {
    let mut canvas = Canvas::new((WIDTH, HEIGHT), &style());
    canvas.text((LEFT, 30.0), "start", "title", title);
    match Frame::around(series) {
        Some(frame) => {
            axes(&mut canvas, frame);
            for (index, one) in series.iter().enumerate() {
                curve(&mut canvas, frame, index, one);
            }
        }
        None => canvas.text((WIDTH / 2.0, HEIGHT / 2.0), "middle", "label", "no sizes"),
    }
    canvas.finish()
}

fn style() -> String {
    let colours = COLOURS.iter().enumerate();
    let rule = |(index, colour): (usize, &&str)| {
        format!(
            ".run{index}{{fill:none;stroke:{colour};stroke-width:2.2;stroke-linejoin:round}}\
             .dot{index}{{fill:#fff;stroke:{colour};stroke-width:2}}"
        )
    };
    colours.map(rule).collect()
}

fn axes(canvas: &mut Canvas, frame: Frame) {
    for gbs in ticks((0.0, frame.top_gbs), frame.step_gbs) {
        let y = frame.y(gbs);
        canvas.rule("grid", (LEFT, y), (WIDTH - RIGHT, y));
        canvas.text((LEFT - 8.0, y + 4.0), "end", "label", &short(gbs));
    }
    let base = HEIGHT - BOTTOM;
    let powers = (frame.sizes.1 - frame.sizes.0).ceil();
    // As many sizes as have room side by side.
    let stride = (powers / 12.0).ceil().max(1.0);
    for power in ticks(frame.sizes, stride) {
        let x = frame.x(power);
        canvas.rule("axis", (x, base), (x, base + 5.0));
        canvas.text((x, base + 19.0), "middle", "label", &show_bytes_short(power.exp2() as u64));
    }
    canvas.rule("axis", (LEFT, base), (WIDTH - RIGHT, base));
    let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
    canvas.text((middle, HEIGHT - 14.0), "middle", "label", "bytes");
    canvas.text((LEFT, TOP - 8.0), "end", "label", "GB/s");
}

fn curve(canvas: &mut Canvas, frame: Frame, index: usize, series: &Series<'_>) {
    let colour = index % COLOURS.len();
    let points: Vec<Point> =
        series.rows.iter().filter(|row| 0 < row.bytes).map(|row| frame.at(row)).collect();
    canvas.polyline(&format!("run{colour}"), points.iter().copied());
    for point in points {
        canvas.dot(&format!("dot{colour}"), point);
    }
    let y = TOP + 14.0 + 20.0 * index as f64;
    canvas.rule(&format!("run{colour}"), (LEFT + 16.0, y), (LEFT + 40.0, y));
    canvas.text((LEFT + 48.0, y + 4.0), "start", "label", series.name);
}

/// Pairs as a heat map: pale is fast, red is slow.
pub fn show_heat(title: &str, pairs: &Pairs) -> String {
    let places = pairs.names.len();
    let side = (640.0 / places.max(1) as f64).clamp(4.0, 64.0);
    let longest = pairs.names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let (left, top) = (28.0 + 7.5 * longest as f64, 56.0);
    let size = (left + side * places as f64 + 40.0, top + side * places as f64 + 40.0);
    let size = (size.0.max(420.0), size.1);
    let mut canvas = Canvas::new(size, "");
    canvas.text((16.0, 30.0), "start", "title", title);
    let all: Vec<f64> = pairs.rows().iter().map(|row| row.busbw_gbs).collect();
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(0.0, f64::max);
    for (row, name) in pairs.names.iter().enumerate() {
        let y = top + side * row as f64;
        if 12.0 <= side {
            canvas.text((left - 8.0, y + side / 2.0 + 4.0), "end", "label", name);
        }
        for (column, other) in pairs.names.iter().enumerate() {
            let Some(gbs) = pairs.gbs(row, column) else { continue };
            let corner = (left + side * column as f64, y);
            let hint = format!("{name} - {other}: {gbs:.2} GB/s");
            canvas.cell(corner, (side - 1.0, side - 1.0), &colour_of(gbs, low, high), &hint);
            if 40.0 <= side {
                let middle = (corner.0 + side / 2.0, y + side / 2.0 + 4.0);
                canvas.text(middle, "middle", "label", &format!("{gbs:.2}"));
            }
        }
    }
    canvas.finish()
}

/// From red, the slowest, to a pale green, the fastest.
fn colour_of(gbs: f64, low: f64, high: f64) -> String {
    let share = if low < high { (gbs - low) / (high - low) } else { 1.0 };
    let mix = |slow: f64, fast: f64| (slow + share * (fast - slow)).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(224.0, 218.0), mix(82.0, 240.0), mix(72.0, 222.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_a_curve_and_a_name() {
        let row = |bytes, busbw_gbs| Row { busbw_gbs, ..Row::for_test(bytes, 1.0) };
        let (now, then) = ([row(0, 0.0), row(8, 1.0), row(1 << 20, 9.0)], [row(64, 2.0)]);
        let series = [Series { name: "now", rows: &now }, Series { name: "<then>", rows: &then }];
        let svg = show_curves("all-reduce", &series);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 3, "a size of 0 has no place on this axis");
        assert!(svg.contains("&lt;then>") && svg.contains(">1M<") && !svg.contains("NaN"));
        assert!(show_curves("nothing", &[]).contains("no sizes"));
    }

    #[test]
    fn the_slowest_pair_is_the_reddest() {
        assert_eq!(colour_of(1.0, 1.0, 3.0), "#e05248");
        assert_eq!(colour_of(3.0, 1.0, 3.0), "#daf0de");
        assert_eq!(colour_of(1.0, 1.0, 1.0), "#daf0de");
    }
}
