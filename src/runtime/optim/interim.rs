//! Interim.
use serde::{Deserialize, Serialize};

/// Optimizer.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimizer { /// b1
 pub beta1: f64, /// b2
 pub beta2: f64, /// eps
 pub eps: f64, /// wd
 pub weight_decay: f64 }
impl Default for Optimizer { fn default() -> Self { Self { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0 } } }
/// Step.
pub struct UpdateStep { /// n
 pub number: u64, /// r
 pub rate: f64, /// f
 pub factor: f32, /// m
 pub momentum: Option<f64>, /// d
 pub decays: bool }
impl Optimizer {
    /// names
    pub fn state_names(&self) -> &'static [&'static str] { &["exp_avg", "exp_avg_sq"] }
    /// update
    pub fn update(&self, step: &UpdateStep, params: &mut [f32], states: &mut [&mut [f32]], gradients: &[f32]) {
        let n = step.number.min(i32::MAX as u64) as i32;
        let c1 = 1.0 - self.beta1.powi(n);
        let c2 = 1.0 - self.beta2.powi(n);
        let decay = if step.decays { (1.0 - step.rate * self.weight_decay) as f32 } else { 1.0 };
        let (o1, b2, o2) = ((1.0 - self.beta1) as f32, self.beta2 as f32, (1.0 - self.beta2) as f32);
        let (root2, eps, size) = (c2.sqrt() as f32, self.eps as f32, (step.rate / c1) as f32);
        let [m, v] = states else { panic!("two") };
        crate::os::cpu::simd::vectorized(|| for (((p, m), v), g) in params.iter_mut().zip(m.iter_mut()).zip(v.iter_mut()).zip(gradients) {
            let g = g * step.factor;
            *p *= decay;
            *m += o1 * (g - *m);
            *v = *v * b2 + o2 * g * g;
            *p -= size * *m / (v.sqrt() / root2 + eps);
        });
    }
}
/// Schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LrSchedule { /// c
 Constant { /// r
 rate: f64 }, /// w
 Cosine { /// r
 rate: f64, /// m
 rate_min: f64, /// w
 warmup: u64, /// s
 steps: u64 } }
impl LrSchedule {
    /// rate
    pub fn rate(&self, step: u64) -> f64 { match *self { Self::Constant { rate } => rate, Self::Cosine { rate, rate_min, warmup, steps } => {
        if step < warmup { return rate * (step + 1) as f64 / (warmup + 1) as f64; }
        if steps <= step { return rate_min; }
        let done = (step - warmup) as f64 / (steps - warmup) as f64;
        rate_min + 0.5 * (1.0 + (std::f64::consts::PI * done).cos()) * (rate - rate_min) } } }
    /// momentum
    pub fn momentum(&self, _step: u64) -> Option<f64> { None }
}
/// Scaling.
#[derive(Clone, Debug, PartialEq)]
pub enum LossScaling { /// n
 None, /// s
 Static(f64), /// d
 Dynamic { /// p
 power: u32, /// w
 window: u64 } }
/// Scaler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScaler { scale: f64, clean: u64, window: Option<u64> }
impl LossScaler {
    /// new
    pub fn new(scaling: &LossScaling) -> Self { match scaling { LossScaling::None => Self { scale: 1.0, clean: 0, window: None }, LossScaling::Static(scale) => Self { scale: *scale, clean: 0, window: None }, LossScaling::Dynamic { power, window } => Self { scale: f64::from(*power).exp2(), clean: 0, window: Some(*window) } } }
    /// scale
    pub fn scale(&self) -> f64 { self.scale }
    /// on step
    pub fn on_step(&mut self, overflow: bool) -> Result<(), ()> {
        let Some(window) = self.window else { return Ok(()) };
        if overflow { if self.scale <= 1.0 { return Err(()); } self.scale /= 2.0; self.clean = 0; } else { self.clean += 1; if self.clean % window == 0 { self.scale *= 2.0; } }
        Ok(())
    }
}
