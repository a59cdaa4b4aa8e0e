//! Findings about the files that a job needs: working directory, program, script, Python.

use crate::base::{NodeRank, Severity};
use crate::doctor::codes;
use crate::doctor::facts::{ClusterFacts, ExaminedNode, Finding};
use crate::doctor::judge::outliers::outliers;
use crate::wire::{CheckResult, TORCH};

pub(super) fn findings(cluster: &ClusterFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    for (rank, _, examined) in cluster.examined_nodes() {
        let report = &examined.report;
        let missing = |code, looked| missing(code, rank, looked, 1 < cluster.nodes.len());
        found.extend(missing(codes::CWD, Some(&report.cwd)));
        // If the directory is missing, so are its files and the paths relative to it.
        let of_cwd = |looked: Option<_>| looked.filter(|_| report.cwd.is_ok());
        found.extend(missing(codes::PROGRAM, of_cwd(report.program.as_ref())));
        found.extend(missing(codes::SCRIPT, of_cwd(report.script.as_ref())));
        found.extend(broken_python(rank, examined));
    }
    found.extend(versions(cluster));
    found.extend(versions_of_torch(cluster));
    found
}

fn missing(
    code: &'static str,
    rank: NodeRank,
    looked: Option<&CheckResult>,
    has_others: bool,
) -> Option<Finding> {
    let problem = looked?.as_ref().err()?;
    let finding = Finding::new(code, Severity::Error, rank, problem.message.clone());
    Some(match &problem.help {
        Some(help) => finding.help(help.clone()),
        None if has_others => finding.help("the path must exist on every node"),
        None => finding,
    })
}

/// Finding for a Python that does not run; a missing one is reported as a missing program.
fn broken_python(rank: NodeRank, examined: &ExaminedNode) -> Option<Finding> {
    let why = examined.report.python.as_ref()?.version.as_ref().err()?;
    let is_there = matches!(examined.report.program, Some(Ok(())));
    is_there.then(|| {
        Finding::new(codes::PYTHON, Severity::Error, rank, "its Python does not work")
            .detail(why.clone())
            .help("run it there by hand: the environment may be made for another machine")
    })
}

fn versions(cluster: &ClusterFacts) -> Vec<Finding> {
    let version = |(rank, _, examined): (_, _, &ExaminedNode)| {
        let python = examined.report.python.as_ref()?;
        Some((rank, python.version.clone().ok()?))
    };
    let versions: Vec<_> = cluster.examined_nodes().filter_map(version).collect();
    let Some((usual, odd)) = outliers(&versions) else { return Vec::new() };
    let finding = |(rank, version)| {
        let message = format!("Python {version}, most have {usual}");
        Finding::new(codes::PYTHON, Severity::Warning, rank, message)
            .help("give the same interpreter to all nodes: `--python FILE`")
    };
    odd.into_iter().map(finding).collect()
}

/// Findings for nodes whose Python has another torch than that of most nodes, or none.
fn versions_of_torch(cluster: &ClusterFacts) -> Vec<Finding> {
    let version = |(rank, _, examined): (_, _, &ExaminedNode)| {
        let has_python = examined.report.python.as_ref()?.version.is_ok();
        has_python.then(|| (rank, torch_of(examined).map(str::to_owned)))
    };
    let versions: Vec<_> = cluster.examined_nodes().filter_map(version).collect();
    let Some((usual, odd)) = outliers(&versions) else { return Vec::new() };
    let show = |version: &Option<String>| match version {
        Some(version) => format!("torch {version}"),
        None => "no torch".to_owned(),
    };
    let finding = |(rank, version)| {
        let message = format!("{}, most have {}", show(&version), show(&usual));
        Finding::new(codes::OTHER_TORCH, Severity::Warning, rank, message)
            .help("give all nodes the same environment; `--json` shows the path of each torch")
    };
    odd.into_iter().map(finding).collect()
}

/// Returns the version of the torch that workers of a node import.
pub(in crate::doctor) fn torch_of(examined: &ExaminedNode) -> Option<&str> {
    let torch = examined.report.libraries.iter().find(|library| library.name == TORCH)?;
    torch.version.as_deref()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, cluster, examined_mut};
    use super::*;
    use crate::base::Status;
    use crate::wire::{LibraryReport, Problem, Python};

    #[test]
    fn doctor_reports_missing_paths_with_the_node_message() {
        let problem = |message: &str| Err(Problem::new(Status::NoInput, message));
        let mut one = cluster(2);
        examined_mut(&mut one, 1).report.cwd =
            problem("cannot use the working directory `/x`: gone");
        check(&one, &["error[D009] n2: cannot use the working directory `/x`: gone"]);
        let mut one = cluster(2);
        examined_mut(&mut one, 0).report.program =
            Some(problem("program `python3` is not in PATH"));
        examined_mut(&mut one, 0).report.python =
            Some(Python { version: Err("cannot start".to_owned()) });
        check(&one, &["error[D010] n1: program `python3` is not in PATH"]);
        let mut one = cluster(2);
        examined_mut(&mut one, 0).report.script = Some(problem("cannot read script `a.py`: gone"));
        check(&one, &["error[D011] n1: cannot read script `a.py`: gone"]);
    }

    #[test]
    fn doctor_reports_broken_and_different_pythons() {
        let version = |version: &str| Some(Python { version: Ok(version.to_owned()) });
        let mut one = cluster(3);
        for (node, number) in ["3.11.2", "3.9.1", "3.11.2"].iter().enumerate() {
            examined_mut(&mut one, node).report.python = version(number);
        }
        check(&one, &["warning[D012] n2: Python 3.9.1, most have 3.11.2"]);
        examined_mut(&mut one, 1).report.python =
            Some(Python { version: Err("it failed".to_owned()) });
        examined_mut(&mut one, 1).report.program = Some(Ok(()));
        check(&one, &["error[D012] n2: its Python does not work"]);
    }

    #[test]
    fn doctor_reports_different_and_missing_torch() {
        let mut one = cluster(4);
        for (node, version) in ["2.4.1", "2.5.0", "", "2.4.1"].iter().enumerate() {
            let report = &mut examined_mut(&mut one, node).report;
            report.python = Some(Python { version: Ok("3.11.2".to_owned()) });
            let version = (!version.is_empty()).then(|| (*version).to_owned());
            report.libraries = version
                .map(|version| LibraryReport {
                    name: TORCH.to_owned(),
                    version: Some(version),
                    path: String::new(),
                })
                .into_iter()
                .collect();
        }
        let expect = [
            "warning[D038] n2: torch 2.5.0, most have torch 2.4.1",
            "warning[D038] n3: no torch, most have torch 2.4.1",
        ];
        check(&one, &expect);
        // A job without Python needs no torch.
        for node in 0..4 {
            examined_mut(&mut one, node).report.python = None;
        }
        check(&one, &[]);
    }
}
