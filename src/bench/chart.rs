//! Charts of results as SVG: bus bandwidth over size with a curve for each run, and pairs as a heat map.
//! Pure.

use std::path::{Path, PathBuf};

use super::document::{Document, EarlierResults};
use super::pairs::Pairs;
use super::row::Row;
use super::table::{show_bytes_short, show_ranks};
use crate::base::chart::Canvas;
use crate::base::chart::Point;
use crate::base::chart::ticks;
use crate::base::order;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 58.0;
/// Colours of curves, and dash patterns: the next pattern begins each time the colours are used up.
const COLOURS: [&str; 8] =
    ["#0969da", "#bc4c00", "#1a7f37", "#8250df", "#cf222e", "#9a6700", "#1b7c83", "#57606a"];
const DASHES: [&str; 5] = ["none", "7 4", "2 3", "10 3 2 3", "14 5"];
/// Names in a column of the legend, and the width of the line before a name.
const LEGEND_ROWS: usize = 20;
const LEGEND_LINE: f64 = 56.0;
/// Number and width of the cells of the colour scale.
const SCALE_CELLS: usize = 40;
const SCALE_CELL: f64 = 5.0;
/// Approximate width of a letter.
const LETTER: f64 = 7.0;

/// Range of the bandwidth axis, as exponents of ten: from a whole power to 1, 2 or 5 times one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct DecadeRange {
    low: f64,
    high: f64,
}

/// Multiples of a power of ten that have a grid line.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];
/// Number of powers of ten up to which all multiples have a grid line; above, only the powers do.
const STEPS_POWERS_MAX: f64 = 3.0;

impl DecadeRange {
    fn around(least: f64, best: f64) -> Self {
        let low = least.log10().floor();
        let power = 10.0_f64.powf(best.log10().floor());
        let step = STEPS.iter().find(|step| best <= **step * power * 1.001).unwrap_or(&10.0);
        Self { low, high: (step * power).log10().max(low + STEPS[1].log10()) }
    }

    /// Values that have a grid line, with their labels.
    fn ticks(self) -> Vec<(f64, String)> {
        let steps = if self.high - self.low <= STEPS_POWERS_MAX { &STEPS[..] } else { &STEPS[..1] };
        let powers = self.low as i32..=self.high.floor() as i32;
        let tick = |power: i32| {
            let decimals = usize::try_from(-power).unwrap_or(0);
            let all = steps.iter().map(move |step| step * 10.0_f64.powi(power));
            all.map(move |gbs| (gbs, format!("{gbs:.decimals$}")))
        };
        let ticks = powers.flat_map(tick);
        ticks.filter(|(gbs, _)| gbs.log10() <= self.high + 1e-9).collect()
    }
}

/// Ranges of the axes: sizes as powers of two, bandwidths as powers of ten, so that the curves of
/// small sizes do not lie on the axis.
#[derive(Clone, Copy, Debug)]
struct Frame {
    sizes: (f64, f64),
    gbs: DecadeRange,
}

/// Whether a row can be shown on logarithmic axes.
fn is_plottable(row: &Row) -> bool {
    0 < row.bytes && 0.0 < row.busbw_gbs && row.busbw_gbs.is_finite()
}

impl Frame {
    fn around(series: &[Series<'_>]) -> Option<Self> {
        let rows = || series.iter().flat_map(|one| &one.rows).filter(|row| is_plottable(row));
        let first = rows().map(|row| row.bytes).min()? as f64;
        let last = rows().map(|row| row.bytes).max()? as f64;
        let best = rows().map(|row| row.busbw_gbs).fold(0.0, f64::max);
        let least = rows().map(|row| row.busbw_gbs).fold(best, f64::min);
        let sizes = (first.log2(), last.log2().max(first.log2() + 1.0));
        Some(Self { sizes, gbs: DecadeRange::around(least, best) })
    }

    fn at(&self, row: &Row) -> Point {
        (self.x((row.bytes as f64).log2()), self.y(row.busbw_gbs))
    }

    fn x(&self, power: f64) -> f64 {
        let share = (power - self.sizes.0) / (self.sizes.1 - self.sizes.0);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, gbs: f64) -> f64 {
        let share = (gbs.log10() - self.gbs.low) / (self.gbs.high - self.gbs.low);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }
}

/// Chart of bus bandwidth over size, with a curve for each run, type and reduction.
pub fn show_results(document: &Document, earlier: &[EarlierResults]) -> String {
    let Document { collective, backend, world_size, .. } = document;
    let here = format!("{}, {backend}", show_ranks(*world_size));
    let now = if earlier.is_empty() { here.clone() } else { format!("now, {here}") };
    let mut runs = vec![(now, &document.rows)];
    let comparable: Vec<_> = earlier.iter().map(|one| comparable(&document.rows, one)).collect();
    runs.extend(run_names(earlier).into_iter().zip(&comparable));
    let title = format!("{collective}, {here}: bus bandwidth by size");
    show_curves(&title, &series_of(&runs))
}

/// Earlier rows of the types and reductions that this run has measured.
fn comparable(now: &[Row], earlier: &EarlierResults) -> Vec<Row> {
    let kinds = order::set(now.iter().map(kind_of));
    let is_one = |row: &&Row| {
        let kind = kind_of(row);
        kind.is_empty() || kinds.contains(&kind)
    };
    earlier.rows.iter().filter(is_one).cloned().collect()
}

/// Names of earlier runs: the file name, with its directory where the name alone is ambiguous, and
/// the number of ranks.
fn run_names(earlier: &[EarlierResults]) -> Vec<String> {
    let stem = |file: &Path| file.with_extension("").file_name().map(PathBuf::from);
    let short = |file: &Path| stem(file).unwrap_or_else(|| file.to_owned());
    let long = |file: &Path| match file.parent().and_then(Path::file_name) {
        Some(directory) => Path::new(directory).join(short(file)),
        None => short(file),
    };
    let is_only = |name: &PathBuf, named: &dyn Fn(&Path) -> PathBuf| {
        earlier.iter().filter(|other| named(Path::new(&other.file)) == *name).count() == 1
    };
    let name = |one: &EarlierResults| {
        let file = Path::new(&one.file);
        let names = [short(file), long(file)].into_iter().zip([&short as &dyn Fn(&_) -> _, &long]);
        let mut only = names.filter(|(name, named)| is_only(name, named)).map(|(name, _)| name);
        let name = only.next().unwrap_or_else(|| file.to_owned());
        let ranks = one.world_size.map_or_else(|| "ranks unknown".to_owned(), show_ranks);
        format!("{}, {ranks}", name.display())
    };
    earlier.iter().map(name).collect()
}

/// Type and reduction of a row, such as `f32 sum`; empty where a table does not name them.
fn kind_of(row: &Row) -> String {
    let op = if row.op == "none" { "" } else { &row.op };
    format!("{} {op}", row.dtype).trim().to_owned()
}

/// Curves of all runs, types and reductions, named by what differs between them.
fn series_of<'a>(runs: &[(String, &'a Vec<Row>)]) -> Vec<Series<'a>> {
    let mut found: Vec<(&str, String, Vec<&Row>)> = Vec::new();
    for (run, rows) in runs {
        for row in *rows {
            let kind = kind_of(row);
            match found.iter_mut().find(|one| one.0 == run && one.1 == kind) {
                Some((_, _, rows)) => rows.push(row),
                None => found.push((run, kind, vec![row])),
            }
        }
    }
    let kinds = found.iter().map(|one| &one.1).filter(|kind| !kind.is_empty());
    let is_one_kind = order::set(kinds).len() < 2;
    let is_one_run = runs.len() == 1;
    let series = found.into_iter().map(|(run, kind, rows)| {
        let name = match (is_one_run, is_one_kind) {
            _ if kind.is_empty() => run.to_owned(),
            (_, true) => run.to_owned(),
            (true, false) => kind,
            (false, false) => format!("{run}: {kind}"),
        };
        Series { name, rows }
    });
    series.collect()
}

/// Name and points of one curve.
#[derive(Clone, Debug)]
struct Series<'a> {
    name: String,
    rows: Vec<&'a Row>,
}

fn show_curves(title: &str, series: &[Series<'_>]) -> String {
    let longest = series.iter().map(|one| one.name.chars().count()).max().unwrap_or(0);
    let legend = LEGEND_LINE + LETTER * longest as f64;
    let columns = series.len().div_ceil(LEGEND_ROWS) as f64;
    let mut canvas = Canvas::new((WIDTH + columns * legend, HEIGHT), &style());
    canvas.text((LEFT, 30.0), "start", "title", title);
    let frame = Frame::around(series);
    match frame {
        Some(frame) => axes(&mut canvas, frame),
        None => {
            canvas.text(
                (WIDTH / 2.0, HEIGHT / 2.0),
                "middle",
                "label",
                "no bandwidth above 0 GB/s",
            );
        }
    }
    for (index, one) in series.iter().enumerate() {
        if let Some(frame) = frame {
            curve(&mut canvas, frame, index, one);
        }
        let (column, row) = ((index / LEGEND_ROWS) as f64, (index % LEGEND_ROWS) as f64);
        let (x, y) = (WIDTH + column * legend, TOP + 10.0 + 18.0 * row);
        canvas.line_segment(&class_of(index), (x, y), (x + 28.0, y));
        canvas.text((x + 36.0, y + 4.0), "start", "label", &one.name);
    }
    canvas.finish()
}

/// CSS classes of a curve; colours vary first, then dash patterns.
fn class_of(index: usize) -> String {
    format!("run{} dash{}", index % COLOURS.len(), index / COLOURS.len() % DASHES.len())
}

fn style() -> String {
    let colour = |(index, colour): (usize, &&str)| {
        format!(
            ".run{index}{{fill:none;stroke:{colour};stroke-width:2.2;stroke-linejoin:round}}\
             .dot{index}{{fill:#fff;stroke:{colour};stroke-width:2}}"
        )
    };
    let dash = |(index, dash): (usize, &&str)| format!(".dash{index}{{stroke-dasharray:{dash}}}");
    let colours = COLOURS.iter().enumerate().map(colour);
    colours.chain(DASHES.iter().enumerate().map(dash)).collect()
}

fn axes(canvas: &mut Canvas, frame: Frame) {
    for (gbs, label) in frame.gbs.ticks() {
        let y = frame.y(gbs);
        canvas.line_segment("grid", (LEFT, y), (WIDTH - RIGHT, y));
        canvas.text((LEFT - 8.0, y + 4.0), "end", "label", &label);
    }
    let base = HEIGHT - BOTTOM;
    let powers = (frame.sizes.1 - frame.sizes.0).ceil();
    // The axis has room for the labels of about 12 sizes.
    let stride = (powers / 12.0).ceil().max(1.0);
    for power in ticks(frame.sizes.0, frame.sizes.1, stride) {
        let x = frame.x(power);
        canvas.line_segment("axis", (x, base), (x, base + 5.0));
        canvas.text((x, base + 19.0), "middle", "label", &show_bytes_short(power.exp2() as u64));
    }
    canvas.line_segment("axis", (LEFT, base), (WIDTH - RIGHT, base));
    let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
    canvas.text((middle, HEIGHT - 14.0), "middle", "label", "bytes");
    canvas.text((LEFT, TOP - 8.0), "end", "label", "GB/s");
}

fn curve(canvas: &mut Canvas, frame: Frame, index: usize, series: &Series<'_>) {
    let rows = series.rows.iter().filter(|row| is_plottable(row));
    let points: Vec<Point> = rows.map(|row| frame.at(row)).collect();
    canvas.polyline(&class_of(index), points.iter().copied());
    for point in points {
        canvas.dot(&format!("dot{}", index % COLOURS.len()), point);
    }
}

/// Heat map of pairs: the fastest is pale green, 0 GB/s is red.
pub fn show_heat_map(title: &str, pairs: &Pairs) -> String {
    let members = pairs.names.len();
    let side = (640.0 / members.max(1) as f64).clamp(4.0, 64.0);
    let longest = pairs.names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let names = 7.5 * longest as f64;
    // Column names that are wider than a cell are written vertically.
    let upright = side < names;
    let (left, top) = (28.0 + names, 62.0 + if upright { names } else { 0.0 });
    let end = (left + side * members as f64, top + side * members as f64);
    let size = ((end.0 + 40.0).max(left + SCALE_CELL * SCALE_CELLS as f64 + 110.0), end.1 + 70.0);
    let mut canvas =
        Canvas::new((size.0.max(420.0), size.1), ".digits{font-size:12px;fill:#1f2328}");
    canvas.text((16.0, 30.0), "start", "title", title);
    let high = pairs.rows().iter().map(|row| row.busbw_gbs).fold(0.0, f64::max);
    for (row, name) in pairs.names.iter().enumerate().filter(|_| 12.0 <= side) {
        let middle = side * row as f64 + side / 2.0 + 4.0;
        canvas.text((left - 8.0, top + middle), "end", "label", name);
        if upright {
            canvas.text_upright((left + middle, top - 6.0), "label", name);
        } else {
            canvas.text((left + middle - 4.0, top - 8.0), "middle", "label", name);
        }
    }
    for (row, name) in pairs.names.iter().enumerate() {
        for (column, other) in pairs.names.iter().enumerate() {
            let Some(gbs) = pairs.gbs(row, column) else { continue };
            let corner = (left + side * column as f64, top + side * row as f64);
            let hint = format!("{name} - {other}: {gbs:.2} GB/s");
            canvas.cell(corner, (side - 1.0, side - 1.0), &colour_of(gbs, high), &hint);
            if 40.0 <= side {
                let middle = (corner.0 + side / 2.0, corner.1 + side / 2.0 + 4.0);
                canvas.text(middle, "middle", "digits", &format!("{gbs:.2}"));
            }
        }
    }
    scale(&mut canvas, (left, end.1 + 20.0), high);
    canvas.finish()
}

/// Draws the colour scale, from 0 to the fastest pair.
fn scale(canvas: &mut Canvas, (x, y): Point, high: f64) {
    for cell in 0..SCALE_CELLS {
        let gbs = high * cell as f64 / (SCALE_CELLS - 1) as f64;
        let corner = (x + SCALE_CELL * cell as f64, y);
        let hint = format!("{gbs:.2} GB/s");
        canvas.cell(corner, (SCALE_CELL, 12.0), &colour_of(gbs, high), &hint);
    }
    let width = SCALE_CELL * SCALE_CELLS as f64;
    canvas.text((x, y + 28.0), "middle", "label", "0");
    canvas.text((x + width / 2.0, y + 28.0), "middle", "label", &format!("{:.2}", high / 2.0));
    canvas.text((x + width, y + 28.0), "middle", "label", &format!("{high:.2} GB/s"));
}

/// Colour of a bandwidth, from red at 0 to pale green at `high`; digits are legible on all of them.
fn colour_of(gbs: f64, high: f64) -> String {
    let share = if 0.0 < high { gbs / high } else { 1.0 };
    let mix = |slow: f64, fast: f64| (slow + share * (fast - slow)).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(240.0, 218.0), mix(128.0, 240.0), mix(116.0, 222.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn earlier(file: &str, rows: Vec<Row>) -> EarlierResults {
        EarlierResults { file: file.to_owned(), world_size: Some(4), rows }
    }

    fn row(bytes: u64, busbw_gbs: f64) -> Row {
        Row { busbw_gbs, ..Row::for_test(bytes, 1.0) }
    }

    #[test]
    fn chart_has_a_named_curve_for_each_run_type_and_reduction() {
        let max = |row: Row| Row { op: "max".to_owned(), ..row };
        let now = vec![row(0, 0.0), row(8, 0.0), row(8, 1.0), row(1 << 20, 9.0), max(row(8, 2.0))];
        let then = earlier("<then>.json", vec![row(64, 2.0)]);
        let names = run_names(std::slice::from_ref(&then));
        let of = |runs: &[(String, &Vec<Row>)]| {
            let series = series_of(runs).into_iter().map(|one| (one.name, one.rows.len()));
            series.collect::<Vec<_>>()
        };
        let runs = [("now".to_owned(), &now), (names[0].clone(), &then.rows)];
        let both = [
            ("now: f32 sum".to_owned(), 4),
            ("now: f32 max".to_owned(), 1),
            ("<then>, 4 ranks: f32 sum".to_owned(), 1),
        ];
        assert_eq!(of(&runs), both);
        assert_eq!(of(&runs[..1]), [("f32 sum".to_owned(), 4), ("f32 max".to_owned(), 1)]);
        assert_eq!(of(&runs[1..]), [("<then>, 4 ranks".to_owned(), 1)]);
        let svg = show_curves("all-reduce", &series_of(&runs));
        assert_eq!(svg.matches("<polyline").count(), 3);
        assert_eq!(svg.matches("<circle").count(), 4, "zeros cannot be shown on these axes");
        assert!(svg.contains("&lt;then>") && svg.contains(">1M<") && !svg.contains("NaN"));
        assert!(show_curves("nothing", &[]).contains("no bandwidth above 0"));
    }

    #[test]
    fn run_names_of_equal_files_have_their_directory() {
        #[track_caller]
        fn check(files: &[&str], expect: &[&str]) {
            let all: Vec<EarlierResults> =
                files.iter().map(|file| earlier(file, Vec::new())).collect();
            let expect: Vec<_> = expect.iter().map(|name| format!("{name}, 4 ranks")).collect();
            assert_eq!(run_names(&all), expect);
        }
        check(&["r1/bw.json", "r2/mpi.txt"], &["bw", "mpi"]);
        check(&["r1/bw.json", "/a/r2/bw.json", "x.json"], &["r1/bw", "r2/bw", "x"]);
        check(&["r/bw.json", "r/bw.txt"], &["r/bw.json", "r/bw.txt"]);
        let unknown = EarlierResults { world_size: None, ..earlier("mpi.txt", Vec::new()) };
        assert_eq!(run_names(&[unknown]), ["mpi, ranks unknown"]);
    }

    #[test]
    fn bandwidth_axis_has_round_numbers() {
        #[track_caller]
        fn check(least: f64, best: f64, expect: &[&str]) {
            let ticks = DecadeRange::around(least, best).ticks();
            assert_eq!(ticks.iter().map(|tick| &tick.1[..]).collect::<Vec<_>>(), expect);
        }
        check(0.3, 4.0, &["0.1", "0.2", "0.5", "1", "2", "5"]);
        check(0.00004, 9.0, &["0.00001", "0.0001", "0.001", "0.01", "0.1", "1", "10"]);
        check(1.0, 1.0, &["1", "2"]);
    }

    #[test]
    fn heat_map_colour_is_red_at_zero() {
        assert_eq!(colour_of(0.0, 3.0), "#f08074");
        assert_eq!(colour_of(3.0, 3.0), "#daf0de");
        assert_eq!(colour_of(0.0, 0.0), "#daf0de");
    }
}
