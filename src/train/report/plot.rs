//! Chart of the loss curve as SVG: axes with round numbers, the training loss of every step in the
//! background, its running mean in front, and the held-out loss as points.

use crate::base::chart::Canvas;
use crate::base::chart::Point;
use crate::base::chart::tick_label;
use crate::base::chart::tick_step;
use crate::base::chart::ticks;

/// Size of the picture and of the frame around the curve, in pixels.
const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 450.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 52.0;
/// Largest number of points of a curve; more could not be distinguished.
const POINTS_MAX: usize = 1600;
/// CSS of the training loss, its running mean and the held-out loss.
const STYLE: &str = ".steps{fill:none;stroke:#0969da;stroke-opacity:.22;stroke-width:1}\
    .mean{fill:none;stroke:#0969da;stroke-width:2.2;stroke-linejoin:round}\
    .held{fill:none;stroke:#bc4c00;stroke-width:1.6;stroke-dasharray:5 3}\
    .point{fill:#fff;stroke:#bc4c00;stroke-width:2}";

/// Data of the chart: losses by the number of completed steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Training loss of every step.
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

/// Ranges of the axes.
#[derive(Clone, Copy, Debug)]
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
    /// Distance between the ticks of the y axis; the frame begins and ends at a tick.
    y_step: f64,
}

impl Frame {
    /// A frame that contains every finite point.
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

    fn at(&self, (step, loss): (u64, f64)) -> Point {
        (self.x(step as f64), self.y(loss))
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (value - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// Draws the curve.
pub fn show_svg(title: &str, curve: &Curve) -> String {
    let mut canvas = Canvas::new((WIDTH, HEIGHT), STYLE);
    canvas.text((LEFT, 30.0), "start", "title", title);
    match Frame::around(curve) {
        Some(frame) => {
            axes(&mut canvas, frame);
            curves(&mut canvas, frame, curve);
            legend(&mut canvas, !curve.held_out.is_empty());
        }
        None => canvas.text((WIDTH / 2.0, HEIGHT / 2.0), "middle", "label", "no steps"),
    }
    canvas.finish()
}

fn axes(canvas: &mut Canvas, frame: Frame) {
    for value in ticks(frame.y.0, frame.y.1, frame.y_step) {
        let y = frame.y(value);
        canvas.line_segment("grid", (LEFT, y), (WIDTH - RIGHT, y));
        canvas.text((LEFT - 8.0, y + 4.0), "end", "label", &tick_label(value));
    }
    let base = HEIGHT - BOTTOM;
    for value in ticks(frame.x.0, frame.x.1, tick_step(frame.x.0, frame.x.1)) {
        let x = frame.x(value);
        canvas.line_segment("axis", (x, base), (x, base + 5.0));
        canvas.text((x, base + 19.0), "middle", "label", &tick_label(value));
    }
    canvas.line_segment("axis", (LEFT, base), (WIDTH - RIGHT, base));
    canvas.text((LEFT + (WIDTH - LEFT - RIGHT) / 2.0, HEIGHT - 12.0), "middle", "label", "step");
}

fn curves(canvas: &mut Canvas, frame: Frame, curve: &Curve) {
    polyline(canvas, frame, "steps", &curve.train);
    polyline(canvas, frame, "mean", &running_mean(&curve.train));
    polyline(canvas, frame, "held", &curve.held_out);
    for point in curve.held_out.iter().filter(|point| point.1.is_finite()) {
        canvas.dot("point", frame.at(*point));
    }
}

fn legend(canvas: &mut Canvas, held_out: bool) {
    let mut x = WIDTH - RIGHT - if held_out { 230.0 } else { 118.0 };
    let mut entry = |class: &str, name: &str, width: f64| {
        canvas.line_segment(class, (x, TOP + 18.0), (x + 22.0, TOP + 18.0));
        canvas.text((x + 28.0, TOP + 22.0), "start", "label", name);
        x += width;
    };
    entry("mean", "training loss", 116.0);
    if held_out {
        entry("held", "held-out loss", 0.0);
    }
}

/// Running mean of a curve, over a window of a fiftieth of the run on either side.
fn running_mean(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let reach = points.len() / 50;
    let mut sums = vec![0.0];
    for point in points {
        sums.push(sums[sums.len() - 1] + point.1);
    }
    let mean = |(i, point): (usize, &(u64, f64))| {
        // The beginning of a curve is steep, so a window never reaches farther ahead than back; its
        // end is flat, so there a window may reach farther back than ahead.
        let reach = reach.min(i);
        let (begin, end) = (i - reach, (i + reach + 1).min(points.len()));
        (point.0, (sums[end] - sums[begin]) / (end - begin) as f64)
    };
    points.iter().enumerate().map(mean).collect()
}

fn polyline(canvas: &mut Canvas, frame: Frame, class: &str, points: &[(u64, f64)]) {
    let stride = points.len().div_ceil(POINTS_MAX).max(1);
    let finite = points.iter().step_by(stride).filter(|point| point.1.is_finite());
    canvas.polyline(class, finite.map(|point| frame.at(*point)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_contains_every_curve() {
        let train = (1..=200).map(|step| (step, 4.0 / (step as f64).sqrt())).collect();
        let curve = Curve { train, held_out: vec![(100, 1.0), (200, f64::NAN)] };
        let svg = show_svg("a < b", &curve);
        assert_eq!(svg.matches("<polyline").count(), 3);
        assert_eq!(svg.matches("<circle").count(), 1, "a NaN is not drawn");
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }

    #[test]
    fn chart_of_a_run_without_steps_is_valid() {
        assert!(show_svg("nothing", &Curve::default()).contains("no steps"));
        let once = Curve { train: vec![(7, 2.0)], held_out: Vec::new() };
        assert!(!show_svg("one step", &once).contains("NaN"));
    }

    #[test]
    fn running_mean_of_a_line_is_the_line() {
        let points: Vec<_> = (0..500).map(|i| (i, 3.0 - i as f64 * 0.001)).collect();
        // The window of the last point contains only points before it.
        for (mean, point) in running_mean(&points).iter().zip(&points).take(490) {
            assert!((mean.1 - point.1).abs() < 1e-9, "{mean:?} {point:?}");
        }
    }
}
