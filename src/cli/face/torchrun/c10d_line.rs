//! The line to type in the place of one whose nodes cannot meet: the same with a c10d rendezvous.

use super::args::TorchrunArgs;
use super::rendezvous::RendezvousBackend;
use crate::base::shell::quoted;
use crate::cli::line::CommandLine;

/// Says what to type in the place of a line whose nodes meet at a server of etcd: the first node is the address.
pub(super) fn line_without_etcd(args: &TorchrunArgs, typed: &CommandLine) -> String {
    if !typed.is_typed() {
        // It is a line of accelerate.
        return "write `c10d`, and the first node as the address: it needs no server".to_owned();
    }
    let replaced = ["rdzv-backend", "rdzv-endpoint", "rdzv-conf"];
    let line = c10d_line(args, typed, &replaced, Some("HOST"));
    format!("no server is needed, HOST is the first node: type `{line}` on every node")
}

/// Formats the line with a c10d rendezvous and without the options that are replaced; with a host, at its address.
pub(super) fn c10d_line(
    args: &TorchrunArgs,
    typed: &CommandLine,
    replaced: &[&str],
    host: Option<&str>,
) -> String {
    let at = typed.words.len() - args.program.script_and_args.len();
    let (options, script) = typed.words.split_at(at);
    let options = options.strip_suffix(&["--".into()]).unwrap_or(options);
    let given = replaced.iter().filter_map(|flag| typed.last(flag));
    let words = given.filter_map(|given| Some(given.name.word..=given.value.as_ref()?.1.word));
    let words: Vec<_> = words.collect();
    let is_replaced = |word: usize| words.iter().any(|range| range.contains(&word));
    let kept = options.iter().enumerate().filter(|(word, _)| !is_replaced(*word));
    let mut line: Vec<String> = kept.map(|(_, word)| quoted(word)).collect();
    line.push(format!("{} c10d", typed.option_name("rdzv-backend")));
    if let Some(host) = host {
        let port = RendezvousBackend::C10d.usual_port();
        let endpoint = typed.option_name("rdzv-endpoint");
        line.push(format!("{endpoint} {}", quoted(format!("{host}:{port}"))));
    }
    line.extend(script.iter().map(quoted));
    format!("{} {}", typed.program, line.join(" "))
}
