//! Tables and JSON documents of plans, hosts, findings and runs, for programs.

pub mod config;
pub mod findings;
pub mod plan;
mod plan_settings;
pub mod record;
pub mod world;

pub use plan_settings::{
    ElasticSettings, OptionDocument, PlanSettings, StreamSetDocument, StreamSettings,
};
