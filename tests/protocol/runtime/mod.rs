//! The source files under test, and the modules that they import.

#[expect(dead_code, reason = "protocols use a part of it")]
#[path = "../../../src/runtime/cells.rs"]
pub(crate) mod cells;
#[expect(dead_code, reason = "protocols use a part of it")]
#[path = "../../../src/runtime/flag.rs"]
pub(crate) mod flag;

pub(crate) mod error {
    use remuda::base::Rank;
    pub(crate) use remuda::runtime::Departure;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Loss {
        pub(crate) rank: Rank,
        pub(crate) how: Departure,
    }
}
