//! [`DistributedSampler`]: assigns the rows of a data set to workers, in exactly torch's order.

use crate::runtime::comm::group::Group;

/// Options of a [`DistributedSampler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerOptions {
    /// Whether every epoch has a new random order.
    pub shuffle: bool,
    /// Seed of the order; the epoch number is added to it.
    pub seed: u64,
    /// Whether the last rows are dropped if the rows cannot be divided evenly; otherwise the first rows
    /// are repeated.
    pub drop_last: bool,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self { shuffle: true, seed: 0, drop_last: false }
    }
}

/// Sampler of one replica: every `replicas`-th row of the epoch's order, starting at `rank`.
///
/// ```
/// use remuda::runtime::DistributedSampler;
///
/// let sampler = DistributedSampler::new(10, 3, 0, Default::default());
/// assert_eq!(sampler.indices().collect::<Vec<_>>(), [4, 5, 0, 2]);
/// ```
#[derive(Clone, Debug)]
pub struct DistributedSampler {
    rows: usize,
    replicas: usize,
    rank: usize,
    options: SamplerOptions,
    epoch: u64,
}

impl DistributedSampler {
    /// Creates the sampler of replica `rank` of `replicas`.
    ///
    /// # Panics
    /// If `rank` is not less than `replicas`.
    pub fn new(rows: usize, replicas: usize, rank: usize, options: SamplerOptions) -> Self {
        assert!(
            rank < replicas,
            "rank {rank} is not less than the number of replicas ({replicas})"
        );
        Self { rows, replicas, rank, options, epoch: 0 }
    }

    /// Creates the samplers of this rank's lanes. A lane is one micro-batch of a step: a rank has
    /// `accumulate` lanes, and each of them is a replica of its own.
    pub fn lanes(rows: usize, group: &Group, accumulate: usize) -> Vec<Self> {
        Self::lanes_with(rows, group, accumulate, SamplerOptions::default())
    }

    /// Creates samplers like [`Self::lanes`], with options.
    pub fn lanes_with(
        rows: usize,
        group: &Group,
        accumulate: usize,
        options: SamplerOptions,
    ) -> Vec<Self> {
        let replicas = group.world_size() * accumulate;
        let first = group.rank() * accumulate;
        (first..first + accumulate).map(|lane| Self::new(rows, replicas, lane, options)).collect()
    }

    /// Sets the epoch, which determines the order of [`Self::indices`]. Call it before every epoch.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// Returns the number of rows in an epoch, which is the same for every replica.
    pub fn len(&self) -> usize {
        if self.options.drop_last {
            self.rows / self.replicas
        } else {
            self.rows.div_ceil(self.replicas)
        }
    }

    /// Returns whether an epoch has no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the rows of this epoch, in order.
    pub fn indices(&self) -> std::vec::IntoIter<usize> {
        let order = if self.options.shuffle {
            randperm(self.rows, self.options.seed.wrapping_add(self.epoch))
        } else {
            (0..self.rows).collect()
        };
        let positions = (0..self.len()).map(|nth| self.rank + nth * self.replicas);
        // After the end the order is repeated as often as needed.
        positions.map(|position| order[position % self.rows]).collect::<Vec<_>>().into_iter()
    }
}

/// Returns the permutation of `torch.randperm(n)` after `manual_seed(seed)`.
pub fn randperm(n: usize, seed: u64) -> Vec<usize> {
    let mut random = Mt19937::new(seed as u32);
    let mut order: Vec<usize> = (0..n).collect();
    for i in 0..n.saturating_sub(1) {
        let left = n - i;
        // With more rows, 32 random bits would favour the first ones.
        let z = if n < (u32::MAX / 20) as usize {
            random.next_u32() as usize % left
        } else {
            (random.next_u64() % left as u64) as usize
        };
        order.swap(i, i + z);
    }
    order
}

/// Constants `n` (words of state) and `m` (middle word) of the generator.
const STATE_WORDS: usize = 624;
const MIDDLE_WORD: usize = 397;

/// The Mersenne twister of 1998 by Matsumoto and Nishimura, 32-bit.
#[derive(Clone, Debug)]
struct Mt19937 {
    state: [u32; STATE_WORDS],
    next: usize,
}

impl Mt19937 {
    fn new(seed: u32) -> Self {
        let mut state = [seed; STATE_WORDS];
        for i in 1..STATE_WORDS {
            let previous = state[i - 1];
            state[i] =
                (previous ^ (previous >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        Self { state, next: STATE_WORDS }
    }

    fn next_u32(&mut self) -> u32 {
        if self.next == STATE_WORDS {
            self.twist();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    fn next_u64(&mut self) -> u64 {
        let high = u64::from(self.next_u32());
        high << 32 | u64::from(self.next_u32())
    }

    fn twist(&mut self) {
        for i in 0..STATE_WORDS {
            let upper = self.state[i] & 0x8000_0000;
            let lower = self.state[(i + 1) % STATE_WORDS] & 0x7fff_ffff;
            let word = upper | lower;
            let mask = if word & 1 == 0 { 0 } else { 0x9908_b0df };
            self.state[i] = self.state[(i + MIDDLE_WORD) % STATE_WORDS] ^ (word >> 1) ^ mask;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mersenne_twister_matches_published_output() {
        // Seed 5489 is the default of the paper; the C++ standard specifies the 10,000th output.
        let mut random = Mt19937::new(5489);
        let last = (0..10_000).map(|_| random.next_u32()).last();
        assert_eq!(last, Some(4_123_659_995));
    }
}
