//! The codes of problems in environment files (`E…`), hostfiles (`H…`), selections (`S…`) and world
//! infos (`W…`), each with its page of `remuda explain`.

mod env_file;
mod hostfile;
mod selection;
mod world_info;

pub use env_file::*;
pub use hostfile::*;
pub use selection::*;
pub use world_info::*;

use crate::base::Explanation;

/// The `remuda explain` pages of every code of this module.
pub const EXPLANATIONS: [&[Explanation]; 4] = [
    env_file::EXPLANATIONS,
    hostfile::EXPLANATIONS,
    selection::EXPLANATIONS,
    world_info::EXPLANATIONS,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanations_quote_limits_of_the_code() {
        let story = |code| {
            let found = hostfile::EXPLANATIONS.iter().find(|found| found.code == code).unwrap();
            found.text.to_owned() + found.title
        };
        assert!(story(COUNT_ABOVE_LIMIT).contains(&super::super::SLOTS_MAX.to_string()));
        assert!(story(TOO_MANY_HOSTS).contains(&super::super::HOSTS_MAX.to_string()));
        assert!(story(LINE_TOO_LONG).contains(&super::super::LINE_BYTES_MAX.to_string()));
    }
}
