//! The loss curve as an SVG picture: axes with round numbers, the training loss of every step in the
//! background, its running mean in front, and the held-out loss as points.

use std::fmt::Write;

/// Size of the picture and of the frame around the curve, in pixels.
const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 450.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 52.0;
/// Points of a curve; more could not be told apart.
const POINTS_MAX: usize = 1600;
/// Numbers on an axis, about.
const TICKS: f64 = 6.0;

/// What is drawn: losses by the number of steps done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Loss of every step.
    pub train: Vec<(u64, f64)>,
    /// Loss on the held-out part, where it was evaluated.
    pub held_out: Vec<(u64, f64)>,
}

impl Curve {
    /// Adds a step.
    pub fn push(&mut self, step: u64, loss: f64, held_out: Option<f64>) {
        self.train.push((step, loss));
        self.held_out.extend(held_out.map(|loss| (step, loss)));
    }
}

/// The part of the plane that is shown.
#[derive(Clone, Copy, Debug)]
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
    /// Distance between the numbers on the y axis; the frame begins and ends on one.
    y_step: f64,
}

impl Frame {
    /// A frame that holds every finite point.
    fn around(curve: &Curve) -> Option<Self> {
        let finite = |point: &&(u64, f64)| point.1.is_finite();
        let points: Vec<_> = curve.train.iter().chain(&curve.held_out).filter(finite).collect();
        let first = points.iter().map(|point| point.0).min()?;
        let last = points.iter().map(|point| point.0).max()?;
        let low = points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
        let high = points.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
        let step = tick_step(low, high);
        let y = ((low / step).floor() * step, (high / step).ceil() * step);
        let y = if y.0 < y.1 { y } else { (y.0, y.0 + step) };
        let x = (first as f64, (last as f64).max(first as f64 + 1.0));
        Some(Self { x, y, y_step: step })
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (value - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// The distance between numbers on an axis: 1, 2 or 5 times a power of ten.
fn tick_step(low: f64, high: f64) -> f64 {
    let raw = ((high - low) / TICKS).max(1e-6);
    let power = 10.0_f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| raw <= factor * power * 1.001);
    factor.unwrap_or(10.0) * power
}

/// The multiples of `step` from `low` to `high`.
fn ticks((low, high): (f64, f64), step: f64) -> impl Iterator<Item = f64> {
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(move |i| i as f64 * step)
}

/// Draws the curve.
pub fn show_svg(title: &str, curve: &Curve) -> String {
    let mut svg = String::new();
    header(&mut svg, title);
    match Frame::around(curve) {
        Some(frame) => {
            axes(&mut svg, frame);
            curves(&mut svg, frame, curve);
            legend(&mut svg, !curve.held_out.is_empty());
        }
        None => text(&mut svg, (WIDTH / 2.0, HEIGHT / 2.0), "middle", "label", "no steps"),
    }
    svg.push_str("</svg>\n");
    svg
}

fn header(svg: &mut String, title: &str) {
    const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#57606a}\
        .title{font-size:14px;font-weight:600;fill:#1f2328}.label{font-size:12px}\
        .grid{stroke:#d0d7de;stroke-width:1}.axis{stroke:#8c959f;stroke-width:1}\
        .steps{fill:none;stroke:#0969da;stroke-opacity:.22;stroke-width:1}\
        .mean{fill:none;stroke:#0969da;stroke-width:2.2;stroke-linejoin:round}\
        .held{fill:none;stroke:#bc4c00;stroke-width:1.6;stroke-dasharray:5 3}\
        .point{fill:#fff;stroke:#bc4c00;stroke-width:2}";
    line(
        svg,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             role=\"img\"><style>{STYLE}</style><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
        ),
    );
    text(svg, (LEFT, 30.0), "start", "title", title);
}

fn axes(svg: &mut String, frame: Frame) {
    for value in ticks(frame.y, frame.y_step) {
        let y = frame.y(value);
        rule(svg, "grid", (LEFT, y), (WIDTH - RIGHT, y));
        text(svg, (LEFT - 8.0, y + 4.0), "end", "label", &short(value));
    }
    let base = HEIGHT - BOTTOM;
    for value in ticks(frame.x, tick_step(frame.x.0, frame.x.1)) {
        let x = frame.x(value);
        rule(svg, "axis", (x, base), (x, base + 5.0));
        text(svg, (x, base + 19.0), "middle", "label", &short(value));
    }
    rule(svg, "axis", (LEFT, base), (WIDTH - RIGHT, base));
    text(svg, (LEFT + (WIDTH - LEFT - RIGHT) / 2.0, HEIGHT - 12.0), "middle", "label", "step");
}

fn curves(svg: &mut String, frame: Frame, curve: &Curve) {
    polyline(svg, frame, "steps", &curve.train);
    polyline(svg, frame, "mean", &running_mean(&curve.train));
    polyline(svg, frame, "held", &curve.held_out);
    for &(step, loss) in curve.held_out.iter().filter(|point| point.1.is_finite()) {
        let (x, y) = (frame.x(step as f64), frame.y(loss));
        line(svg, format_args!("<circle class=\"point\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\"/>"));
    }
}

fn legend(svg: &mut String, held_out: bool) {
    let mut x = WIDTH - RIGHT - if held_out { 230.0 } else { 118.0 };
    let mut entry = |class: &str, name: &str, room: f64| {
        rule(svg, class, (x, TOP + 18.0), (x + 22.0, TOP + 18.0));
        text(svg, (x + 28.0, TOP + 22.0), "start", "label", name);
        x += room;
    };
    entry("mean", "training loss", 116.0);
    if held_out {
        entry("held", "held-out loss", 0.0);
    }
}

/// The curve smoothed by a window that grows with the run: a fiftieth of it on either side.
fn running_mean(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let reach = points.len() / 50;
    let mut sums = vec![0.0];
    for point in points {
        sums.push(sums[sums.len() - 1] + point.1);
    }
    let mean = |(i, point): (usize, &(u64, f64))| {
        // The beginning of a run is steep, so a window never reaches farther ahead than back; its end
        // is flat, so there it may reach farther back than ahead.
        let reach = reach.min(i);
        let (begin, end) = (i - reach, (i + reach + 1).min(points.len()));
        (point.0, (sums[end] - sums[begin]) / (end - begin) as f64)
    };
    points.iter().enumerate().map(mean).collect()
}

fn polyline(svg: &mut String, frame: Frame, class: &str, points: &[(u64, f64)]) {
    let stride = points.len().div_ceil(POINTS_MAX).max(1);
    let mut shown = String::new();
    for &(step, loss) in points.iter().step_by(stride).filter(|point| point.1.is_finite()) {
        line(&mut shown, format_args!("{:.1},{:.1} ", frame.x(step as f64), frame.y(loss)));
    }
    let points = shown.replace('\n', "");
    line(svg, format_args!("<polyline class=\"{class}\" points=\"{}\"/>", points.trim_end()));
}

fn rule(svg: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    line(
        svg,
        format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ),
    );
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, class: &str, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    line(
        svg,
        format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>"
        ),
    );
}

fn line(svg: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(svg, "{content}").expect("a string takes everything");
}

/// A number of an axis, without the digits that the step of the ticks does not need.
fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_ticks(low: f64, high: f64, expected: &[&str]) {
        let step = tick_step(low, high);
        assert_eq!(ticks((low, high), step).map(short).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn axes_have_round_numbers() {
        check_ticks(1.5, 4.5, &["1.5", "2", "2.5", "3", "3.5", "4", "4.5"]);
        check_ticks(0.0, 1000.0, &["0", "200", "400", "600", "800", "1000"]);
        check_ticks(0.0, 0.012, &["0", "0.002", "0.004", "0.006", "0.008", "0.01", "0.012"]);
    }

    #[test]
    fn the_picture_holds_every_curve() {
        let train = (1..=200).map(|step| (step, 4.0 / (step as f64).sqrt())).collect();
        let curve = Curve { train, held_out: vec![(100, 1.0), (200, f64::NAN)] };
        let svg = show_svg("a < b", &curve);
        assert_eq!(svg.matches("<polyline").count(), 3);
        assert_eq!(svg.matches("<circle").count(), 1, "what is not a number is not drawn");
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }

    #[test]
    fn a_run_without_steps_has_a_picture_too() {
        assert!(show_svg("nothing", &Curve::default()).contains("no steps"));
        let once = Curve { train: vec![(7, 2.0)], held_out: Vec::new() };
        assert!(!show_svg("one step", &once).contains("NaN"));
    }

    #[test]
    fn the_mean_of_a_line_is_the_line() {
        let points: Vec<_> = (0..500).map(|i| (i, 3.0 - i as f64 * 0.001)).collect();
        // The last window has nothing after it.
        for (mean, point) in running_mean(&points).iter().zip(&points).take(490) {
            assert!((mean.1 - point.1).abs() < 1e-9, "{mean:?} {point:?}");
        }
    }
}
