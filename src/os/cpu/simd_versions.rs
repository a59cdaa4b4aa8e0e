//! Functions compiled for several instruction sets, with dispatch at run time.
//!
//! The binary is copied between machines, so it cannot be built for the newest of them. The
//! functions are element-wise, or add in a fixed order of lanes, and no version fuses a product and
//! a sum into one rounding, so all versions return the same bits.

/// Defines a function, generic over at most one type, together with its versions.
///
/// The body is inlined into one copy per instruction set; functions that it calls in its inner
/// loops must be `#[inline(always)]`, otherwise they are compiled for the baseline.
macro_rules! versions {
    ($(
        $(#[$meta:meta])*
        $visibility:vis fn $name:ident $(<$generic:ident: $bound:path>)?
            ($($argument:ident: $kind:ty),* $(,)?) $(-> $output:ty)?
        $body:block
    )*) => {$(
        $(#[$meta])*
        $visibility fn $name $(<$generic: $bound>)? ($($argument: $kind),*) $(-> $output)? {
            #[inline(always)]
            fn body $(<$generic: $bound>)? ($($argument: $kind),*) $(-> $output)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2 $(<$generic: $bound>)? ($($argument: $kind),*) $(-> $output)? {
                    body($($argument),*)
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512 $(<$generic: $bound>)? ($($argument: $kind),*) $(-> $output)? {
                    body($($argument),*)
                }
                match $crate::os::cpu::simd::level() {
                    // SAFETY: `level` has detected these features on this processor.
                    $crate::os::cpu::simd::Level::Avx512 => unsafe { avx512($($argument),*) },
                    // SAFETY: as above.
                    $crate::os::cpu::simd::Level::Avx2 => unsafe { avx2($($argument),*) },
                    $crate::os::cpu::simd::Level::Baseline => body($($argument),*),
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            body($($argument),*)
        }
    )*};
}
pub(crate) use versions;
