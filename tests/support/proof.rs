//! Shared code of the proofs: the number of cases, random numbers with a printed seed, and reports
//! of tests that could not run.

/// The number of cases of a proof: `PROVE_COUNT`, else `few`, the number of a normal test run.
pub(crate) fn proof_cases(few: usize) -> usize {
    let count = remuda::base::env_vars::get_text("PROVE_COUNT");
    count.map_or(few, |count| count.parse().expect("PROVE_COUNT is a number"))
}

/// A random number generator for a proof, seeded from `PROVE_SEED` or with a fixed seed; the seed
/// is printed when the proof fails.
pub(crate) struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    pub(crate) fn from_seed() -> Self {
        let seed = remuda::base::env_vars::get_text("PROVE_SEED");
        Self::new(seed.map_or(1, |seed| seed.parse().expect("PROVE_SEED is a number")))
    }

    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// A number below `bound` (SplitMix64).
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % bound as u64) as usize
    }
}

impl Drop for Random {
    fn drop(&mut self) {
        if std::thread::panicking() {
            panic_note(self.seed);
        }
    }
}

#[expect(clippy::disallowed_macros, reason = "a failing proof prints how to repeat it")]
fn panic_note(seed: u64) {
    eprintln!("seed: PROVE_SEED={seed}");
}

/// Whether a component of `scripts/test` is available: it is, unless `--without` names it. A skip
/// is reported.
pub(crate) fn has(component: &str, test: &str) -> bool {
    let without = remuda::base::env_vars::get_text("REMUDA_TEST_WITHOUT").unwrap_or_default();
    let is_without = without.split(',').any(|name| name == component);
    if is_without {
        skip(component, test);
    }
    !is_without
}

/// Reports that a test could not run here; `scripts/test` prints and counts the reports. On a machine that must have the
/// component, the test fails: `scripts/gpu` names it.
pub(crate) fn skip(component: &str, test: &str) {
    use std::io::Write;
    let required = remuda::base::env_vars::get_text("REMUDA_TEST_REQUIRED").unwrap_or_default();
    assert!(required.split(',').all(|name| name != component), "{test} needs: {component}");
    let Some(path) = remuda::base::env_vars::get("REMUDA_TEST_SKIPS") else {
        return;
    };
    let file = std::fs::File::options().append(true).create(true).open(path);
    let noted = file.and_then(|mut file| writeln!(file, "{component}: {test}"));
    noted.expect("the file of skips can be written");
}
