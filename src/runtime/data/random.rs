//! Random number streams that are named by integers; a number does not depend on draws from other streams.

/// A stream of random numbers named by a tuple of integers, such as (seed, step, lane).
#[derive(Clone, Debug)]
pub struct RandomStream {
    state: u64,
}

impl RandomStream {
    /// Creates the stream with this name. Equal names give equal streams, different names unrelated ones.
    pub fn new(name: &[u64]) -> Self {
        let state = name.iter().fold(0x5851_f42d_4c95_7f2d, |state, &part| mix(state ^ mix(part)));
        Self { state }
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(WEYL);
        finish(self.state)
    }

    /// Returns a number in `0..bound`, by multiplication: biased by less than bound / 2⁶⁴.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(0 < bound, "the bound must be positive");
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// Returns a number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * 2.0_f64.powi(-53)
    }

    /// Returns a normally distributed number: mean 0, variance 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.unit()).cos()
    }
}

/// Step of a Weyl sequence: the fractional part of the golden ratio.
const WEYL: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(value: u64) -> u64 {
    finish(value.wrapping_add(WEYL))
}

/// The finalizer of SplitMix64.
fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_stream_depends_on_its_name() {
        let draw = |name: &[u64]| RandomStream::new(name).bits();
        assert_eq!(draw(&[1, 2, 3]), draw(&[1, 2, 3]));
        assert_ne!(draw(&[1, 2, 3]), draw(&[1, 3, 2]));
        assert_ne!(draw(&[1, 2]), draw(&[1, 2, 0]));
        assert_ne!(draw(&[0]), draw(&[1]));
    }

    #[test]
    fn normal_samples_have_the_expected_moments() {
        let mut stream = RandomStream::new(&[7]);
        let draws: Vec<f64> = (0..100_000).map(|_| stream.normal()).collect();
        let moment = |n| draws.iter().map(|x| x.powi(n)).sum::<f64>() / draws.len() as f64;
        assert!(
            moment(1).abs() < 0.02
                && (moment(2) - 1.0).abs() < 0.02
                && (moment(4) - 3.0).abs() < 0.1
        );
    }

    #[test]
    fn below_covers_the_range() {
        let mut stream = RandomStream::new(&[3]);
        let mut seen = [0; 5];
        (0..1000).for_each(|_| seen[stream.below(5)] += 1);
        assert!(seen.iter().all(|&count| 140 < count), "{seen:?}");
    }
}
