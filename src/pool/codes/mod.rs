//! The codes of problems in environment files (`E…`), hostfiles (`H…`), selections (`S…`) and world
//! infos (`W…`), each with its page of `remuda explain`.

mod env_file;
mod explanations;
mod hostfile;
mod selection;
mod world_info;

pub use env_file::*;
pub use explanations::EXPLANATIONS;
pub use hostfile::*;
pub use selection::*;
pub use world_info::*;
