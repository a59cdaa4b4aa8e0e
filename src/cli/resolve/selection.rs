//! Findings about a selection of hosts and slots, at the options of the command line.

use crate::base::{Diagnostic, Findings, Span};
use crate::cli::line::CommandLine;

/// Moves findings to the options in the command line: the number of `-n 9`, or both of two options
/// that contradict each other. Other findings keep the text of the selector.
pub(super) fn with_line_spans(findings: Findings, typed: &CommandLine) -> Findings {
    contradiction(&findings, typed).unwrap_or_else(|| number(findings, typed))
}

/// Returns the finding for `--include` beside `--num_gpus`, with both places in one excerpt of the
/// line, if both were typed.
fn contradiction(findings: &Findings, typed: &CommandLine) -> Option<Findings> {
    let [problem] = &findings.diagnostics[..] else { return None };
    let [(first, label)] = &problem.related[..] else { return None };
    let flag = |span: Span| findings.source.text[span.start..span.end].strip_prefix("--");
    let places = [typed.name_span(flag(*first)?)?, typed.name_span(flag(problem.span?)?)?];
    let problem = problem.clone();
    let related = |span| vec![(span, label.clone())];
    let make =
        |spans: &[Span]| Diagnostic { span: Some(spans[1]), related: related(spans[0]), ..problem };
    Some(typed.refuse(&places, make).findings)
}

fn number(findings: Findings, typed: &CommandLine) -> Findings {
    let flag = findings.source.name.strip_prefix("--").filter(|flag| flag.starts_with("num_"));
    let (Some(flag), [problem]) = (flag, &findings.diagnostics[..]) else { return findings };
    let typed_flag = match flag {
        "num_gpus" if typed.last(flag).is_none() => "nproc-per-node",
        "num_nodes" if typed.last(flag).is_none() => "nnodes",
        _ => flag,
    };
    let Some(place) = typed.value_span(typed_flag) else { return findings };
    let mut problem = problem.clone();
    if typed_flag != flag {
        // torchrun has other names for the two numbers.
        problem.message = problem.message.replacen(flag, typed_flag, 1);
    }
    typed.refuse(&[place], |spans| Diagnostic { span: Some(spans[0]), ..problem }).findings
}
