//! One function, compiled for several instruction sets and chosen when it is called.
//!
//! The binary travels between machines, so it cannot be built for the newest of them. The functions are
//! element-wise, or add in an order written down in lanes, and no version fuses a product and a sum into
//! one rounding: all versions return the same bits.

use std::sync::OnceLock;

/// What the processor offers, as far as our loops care; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::train) enum Level {
    /// The instructions that the target was built for.
    Baseline,
    /// 256-bit integers and floats.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512-bit.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// The level of this machine.
pub(in crate::train) fn level() -> Level {
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

/// Defines a function generic over [`Float`](crate::train::Float) together with its versions.
///
/// The body is inlined into one copy per instruction set; everything it calls in its inner loops must
/// be `#[inline(always)]`, or it falls back to the baseline.
macro_rules! versions {
    ($(
        $(#[$meta:meta])*
        $visibility:vis fn $name:ident<$float:ident>($($argument:ident: $kind:ty),* $(,)?) $(-> $output:ty)?
        $body:block
    )*) => {$(
        $(#[$meta])*
        $visibility fn $name<$float: $crate::train::Float>($($argument: $kind),*) $(-> $output)? {
            #[inline(always)]
            fn body<$float: $crate::train::Float>($($argument: $kind),*) $(-> $output)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2<$float: $crate::train::Float>($($argument: $kind),*) $(-> $output)? {
                    body($($argument),*)
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512<$float: $crate::train::Float>($($argument: $kind),*) $(-> $output)? {
                    body($($argument),*)
                }
                match $crate::train::simd::level() {
                    // SAFETY: `level` saw these features on this processor.
                    $crate::train::simd::Level::Avx512 => unsafe { avx512($($argument),*) },
                    // SAFETY: as above.
                    $crate::train::simd::Level::Avx2 => unsafe { avx2($($argument),*) },
                    $crate::train::simd::Level::Baseline => body($($argument),*),
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            body($($argument),*)
        }
    )*};
}
pub(in crate::train) use versions;

#[cfg(test)]
pub(in crate::train) mod tests {
    use super::{Level, level};
    use std::cell::Cell;

    #[cfg(target_arch = "x86_64")]
    const LEVELS: &[Level] = &[Level::Baseline, Level::Avx2, Level::Avx512];
    #[cfg(not(target_arch = "x86_64"))]
    const LEVELS: &[Level] = &[Level::Baseline];

    thread_local! {
        /// The highest level that functions called from this thread may use.
        pub(super) static LIMIT: Cell<Level> = const { Cell::new(LEVELS[LEVELS.len() - 1]) };
    }

    /// Calls a function once for each level that this machine has.
    pub(in crate::train) fn at_every_level<T>(function: impl Fn() -> T) -> Vec<T> {
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
