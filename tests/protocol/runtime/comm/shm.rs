#[expect(dead_code, reason = "protocols use a part of it")]
#[path = "../../../../src/runtime/comm/shm/cells.rs"]
pub(crate) mod cells;
#[path = "../../../../src/runtime/comm/shm/flag.rs"]
pub(crate) mod flag;
