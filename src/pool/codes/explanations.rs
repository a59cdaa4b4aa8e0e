//! The pages of all codes of this module.

use super::{env_file, hostfile, selection, world_info};
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
    use crate::pool::codes::{COUNT_ABOVE_LIMIT, LINE_TOO_LONG, TOO_MANY_HOSTS};

    #[test]
    fn explanations_quote_limits_of_the_code() {
        let page = |code| {
            let found = hostfile::EXPLANATIONS.iter().find(|found| found.code == code).unwrap();
            found.text.to_owned() + found.title
        };
        assert!(page(COUNT_ABOVE_LIMIT).contains(&crate::pool::SLOTS_MAX.to_string()));
        assert!(page(TOO_MANY_HOSTS).contains(&crate::pool::HOSTS_MAX.to_string()));
        assert!(page(LINE_TOO_LONG).contains(&crate::pool::LINE_BYTES_MAX.to_string()));
    }
}
