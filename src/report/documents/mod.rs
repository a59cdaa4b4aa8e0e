//! Tables and JSON documents of plans, hosts, findings and runs, for programs.

pub mod findings;
pub mod plan;
pub mod record;
pub mod world;
