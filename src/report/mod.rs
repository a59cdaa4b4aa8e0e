//! L4: what people and machines see. Turns values into text; decides nothing.

pub mod diagnostic;
pub mod plan;
