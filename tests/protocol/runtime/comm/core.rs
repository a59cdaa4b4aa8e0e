#[expect(dead_code, reason = "protocols use a part of it")]
#[path = "../../../../src/runtime/comm/core/spin.rs"]
pub(crate) mod spin;

pub(crate) mod error {
    pub(crate) use remuda::runtime::Departure;
}
