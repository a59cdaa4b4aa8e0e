//! SIMD instruction sets of the processor, and loops that are compiled for several of them.
//!
//! The same binary runs on different machines, so it cannot be built for the newest of them.

use std::sync::OnceLock;

/// Instruction sets that remuda's loops use; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// The instructions that the target was built for.
    Baseline,
    /// 256-bit integers and floats.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512-bit integers and floats.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Returns the level of this machine.
pub(crate) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    let level = *LEVEL.get_or_init(detect);
    #[cfg(test)]
    let level = level.min(tests::LIMIT.get());
    level
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    if avx512 {
        Level::Avx512
    } else if is_x86_feature_detected!("avx2") {
        Level::Avx2
    } else {
        Level::Baseline
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Baseline
}

/// Runs a loop in the version for this processor. Functions that the loop calls must be
/// `#[inline(always)]`, or they are compiled for the baseline. No version fuses a product and a sum
/// into one rounding: all return the same bits.
///
/// There is no version for 512 bits: within the caches it was no faster, and beyond them slower.
#[inline(always)]
pub(crate) fn vectorized(run: impl FnOnce()) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2(run: impl FnOnce()) {
            run();
        }
        match level() {
            // SAFETY: `level` saw this feature on this processor.
            Level::Avx2 | Level::Avx512 => unsafe { avx2(run) },
            Level::Baseline => run(),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    run();
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Level, level};
    use std::cell::Cell;

    #[cfg(target_arch = "x86_64")]
    const LEVELS: &[Level] = &[Level::Baseline, Level::Avx2, Level::Avx512];
    #[cfg(not(target_arch = "x86_64"))]
    const LEVELS: &[Level] = &[Level::Baseline];

    thread_local! {
        /// The highest level that functions called from this thread may use.
        pub(crate) static LIMIT: Cell<Level> = const { Cell::new(LEVELS[LEVELS.len() - 1]) };
    }

    /// Calls a function once for each level that this machine has.
    pub(crate) fn at_every_level<T>(function: impl Fn() -> T) -> Vec<T> {
        let own = level();
        let run = |&limit: &Level| {
            let before = LIMIT.replace(limit);
            let result = function();
            LIMIT.set(before);
            result
        };
        LEVELS.iter().filter(|&&level| level <= own).map(run).collect()
    }
}
