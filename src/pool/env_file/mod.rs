//! Parser of a `.deepspeed_env`: its text becomes variables and all problems.
//!
//! Values are literal: nothing is expanded and nothing is executed, whatever a value looks like.
//! Blank lines, comments, `export` and one pair of quotes around a value are understood.

mod file;
mod line;
mod text;
mod value;

pub(crate) use file::NAME_AN_ENV_FILE;
pub use file::{EnvFile, Variable, read_env, shadowed};
pub use line::{loads_code_warning, variable_name_problem};
