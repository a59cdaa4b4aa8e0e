//! SIMD instruction sets of the processor, and loops that are compiled for several of them.
//!
//! The same binary runs on different machines, so it cannot be built for the newest of them.

#[cfg(any(target_arch = "x86_64", test))]
use std::sync::OnceLock;

/// Instruction sets that remuda's loops use; each includes those before it. Targets without versions have loops for
/// the target alone.
#[cfg(any(target_arch = "x86_64", test))]
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
#[cfg(any(target_arch = "x86_64", test))]
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

#[cfg(all(not(target_arch = "x86_64"), test))]
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

/// Bytes from which a copy does not leave the choice of instructions to the C library.
#[cfg(target_arch = "x86_64")]
const LONG_COPY: usize = 2048;

/// Copies `len` elements, as [`std::ptr::copy_nonoverlapping`] does.
///
/// The C library may copy long ranges with `rep movsb`. On an EPYC of AMD with glibc 2.36, collectives on ranges
/// of 256 KiB and more took two to six times as long with it as with vector instructions.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline]
pub(crate) unsafe fn copy_nonoverlapping<T>(from: *const T, to: *mut T, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if LONG_COPY <= len * size_of::<T>() && Level::Avx2 <= level() {
        // SAFETY: `level` saw this feature on this processor; the caller gives the rest.
        return unsafe { copy_with_avx2(from.cast(), to.cast(), len * size_of::<T>()) };
    }
    // SAFETY: the caller gives it.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

/// Copies bytes in blocks of four vectors; the compiler would replace a loop over single vectors by a call of
/// `memcpy`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn copy_with_avx2(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};
    const BLOCK: usize = 4 * size_of::<__m256i>();
    let blocks = bytes / BLOCK;
    for block in 0..blocks {
        // SAFETY: the block lies inside both ranges, which the caller gives.
        unsafe {
            let from: *const __m256i = from.add(block * BLOCK).cast();
            let to: *mut __m256i = to.add(block * BLOCK).cast();
            let vectors = [0, 1, 2, 3].map(|at| _mm256_loadu_si256(from.add(at)));
            for (at, vector) in vectors.into_iter().enumerate() {
                _mm256_storeu_si256(to.add(at), vector);
            }
        }
    }
    let done = blocks * BLOCK;
    // SAFETY: as above; less than a block is left.
    unsafe { std::ptr::copy_nonoverlapping(from.add(done), to.add(done), bytes - done) };
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Level, copy_nonoverlapping, level};
    use std::cell::Cell;

    #[test]
    fn copies_of_every_length_and_alignment_are_equal() {
        let source: Vec<u8> = (0..9000u32).map(|at| (at * 31 % 251) as u8).collect();
        for len in [0, 1, 2047, 2048, 2049, 2175, 2176, 2303, 4096, 8191] {
            for (from, to) in [(0, 0), (1, 0), (0, 3), (17, 45)] {
                let copies = at_every_level(|| {
                    let mut target = vec![0xee; 9000];
                    // SAFETY: both ranges are inside their vectors, and the vectors are not the same.
                    unsafe {
                        copy_nonoverlapping(
                            source.as_ptr().add(from),
                            target.as_mut_ptr().add(to),
                            len,
                        );
                    }
                    target
                });
                for target in copies {
                    assert_eq!(target[to..to + len], source[from..from + len]);
                    assert!(target[..to].iter().chain(&target[to + len..]).all(|b| *b == 0xee));
                }
            }
        }
    }

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
