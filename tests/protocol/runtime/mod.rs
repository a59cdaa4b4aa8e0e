//! The files that are proved, and the names that they need beside them.

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
