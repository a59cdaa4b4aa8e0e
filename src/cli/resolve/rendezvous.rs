//! Address and port in the environment, which the command line of DeepSpeed does not read.

use crate::base::env_vars;
use crate::base::shell::quoted;
use crate::cli::args::TransportArgs;
use crate::cli::resolve::ResolvedCluster;
use crate::plan::{MASTER_PORT, MasterAddr};

/// Variables that users of torch usually set, and the option that is read instead.
const NAMES: [(&str, &str); 2] =
    [(env_vars::MASTER_ADDR, "--master_addr"), (env_vars::MASTER_PORT, "--master_port")];

/// Returns a note about `MASTER_ADDR` and `MASTER_PORT` of the environment if they are set, differ
/// from the values of the job, and no option was typed.
pub(in crate::cli) fn unused_variables(
    args: &TransportArgs,
    cluster: &ResolvedCluster,
) -> Option<String> {
    let address = match (&cluster.master.addr, args.master_addr()) {
        (_, Some(_)) => Used::Typed,
        (MasterAddr::Given(address), None) => Used::Value(address.clone()),
        (MasterAddr::AskNode0, None) => Used::Value(
            cluster.nodes.first().map_or_else(String::new, |(host, _)| host.to_string()),
        ),
    };
    let port = match args.master_port {
        Some(_) => Used::Typed,
        None => Used::Value(cluster.master.port.unwrap_or(MASTER_PORT).to_string()),
    };
    note([address, port], NAMES.map(|(name, _)| env_vars::get_text(name)))
}

/// The value that a job uses.
enum Used {
    /// The value was typed.
    Typed,
    /// This value, because no option was typed.
    Value(String),
}

fn note(used: [Used; 2], set: [Option<String>; 2]) -> Option<String> {
    let unused = NAMES.into_iter().zip(used).zip(set).filter_map(|((names, used), set)| {
        let (Used::Value(used), Some(set)) = (used, set) else { return None };
        (used != set).then_some((names, set))
    });
    let (variables, options): (Vec<_>, Vec<_>) = unused
        .map(|((name, option), value)| {
            let value = quoted(&value);
            (format!("{name}={value}"), format!("{option} {value}"))
        })
        .unzip();
    let is = match variables.len() {
        0 => return None,
        1 => "is",
        _ => "are",
    };
    let (variables, options) = (variables.join(" and "), options.join(" "));
    Some(format!("note: {variables} of the environment {is} not used; type `{options}`\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(used: [Option<&str>; 2], set: [&str; 2], expect: Option<&str>) {
        let used = used.map(|used| used.map_or(Used::Typed, |used| Used::Value(used.to_owned())));
        let set = set.map(|set| Some(set.to_owned()).filter(|set| !set.is_empty()));
        let expect = expect.map(|expect| format!("note: {expect}\n"));
        assert_eq!(note(used, set), expect);
    }

    #[test]
    fn different_variables_are_noted_unless_typed() {
        let usual = [Some("127.0.0.1"), Some("29500")];
        check(usual, ["", ""], None);
        check(usual, ["127.0.0.1", "29500"], None);
        let port = "MASTER_PORT=4000 of the environment is not used; type `--master_port 4000`";
        check(usual, ["", "4000"], Some(port));
        check(
            usual,
            ["n 1", "4000"],
            Some(
                "MASTER_ADDR='n 1' and MASTER_PORT=4000 of the environment are not used; type \
                 `--master_addr 'n 1' --master_port 4000`",
            ),
        );
        check([None, None], ["10.0.0.1", "4000"], None);
        check([None, Some("29500")], ["10.0.0.1", "4000"], Some(port));
    }
}
