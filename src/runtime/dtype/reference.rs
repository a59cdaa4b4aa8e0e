//! Functions in f64 with which tests and checks compare. Pure.

/// Returns the error function, by its series of positive terms, where that is well conditioned.
pub(crate) fn erf(z: f64) -> f64 {
    let mut term = 2.0 / std::f64::consts::PI.sqrt() * (-z * z).exp() * z;
    let mut sum = term;
    for n in 1..200 {
        term *= 2.0 * z * z / f64::from(2 * n + 1);
        sum += term;
    }
    sum
}
