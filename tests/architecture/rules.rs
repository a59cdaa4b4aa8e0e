//! The rules: each returns the violations of a file. Each is also tested with planted violations.

use crate::source::{Source, Token, tokens};
use crate::{BANS, Ban, LAYERS, NARROW, RUNTIME_LAYERS, Tests, UNSAFE_NAMES};

pub(crate) fn layer_violations(file: &Source) -> Vec<String> {
    let Some(module) = module_of(&file.path) else { return Vec::new() };
    let Some(own) = layer_of(module) else {
        return vec![file.violation(0, format_args!("`{module}` is not in the layer table"))];
    };
    let mut found = Vec::new();
    for (at, import) in crate_imports(&file.tokens()) {
        let Some(layer) = layer_of(import) else {
            found.push(file.violation(at, format_args!("`{import}` is not in the layer table")));
            continue;
        };
        if import != module && (own <= layer || !may_import(module, import)) {
            let message = format!("`{module}` (L{own}) must not import `{import}` (L{layer})");
            found.push(file.violation(at, message));
        }
    }
    let message = "`super` reaches the crate root; write `crate::`";
    found.extend(climbs(file, depth_of(&file.path), 1, message));
    found
}

/// Imports of a module of `runtime` that are not of a lower layer. The root of `runtime` re-exports, so
/// modules import each other by their paths.
pub(crate) fn runtime_violations(file: &Source) -> Vec<String> {
    let Some(inside) = file.path.strip_prefix("src/runtime/") else { return Vec::new() };
    if inside == "mod.rs" {
        return Vec::new();
    }
    let inside: Vec<&str> = inside.trim_end_matches(".rs").split('/').collect();
    let Some((own, module)) = runtime_module_of(&inside) else {
        return vec![file.violation(0, format_args!("`{}` is not a module of runtime", inside[0]))];
    };
    let tests = file.test_regions();
    // Other modules are beside the files of `comm` itself.
    let kept = module.split("::").count() + usize::from(module == "comm");
    let depth = depth_of(&file.path) - 1;
    let message = "`super` leaves the module of the layer table; write `crate::runtime::`";
    let mut found = climbs(file, depth, kept, message);
    for (at, path) in runtime_paths(&file.tokens()) {
        if tests.iter().any(|range| range.contains(&at)) {
            continue;
        }
        match runtime_module_of(&path) {
            None => found
                .push(file.violation(at, format_args!("`{}` is not a module of runtime", path[0]))),
            Some((layer, import)) if import != module && own <= layer => {
                let message = format!("`{module}` (R{own}) must not import `{import}` (R{layer})");
                found.push(file.violation(at, message));
            }
            Some(_) => {}
        }
    }
    found
}

pub(crate) fn ban_violations(file: &Source) -> Vec<String> {
    let code = file.tokens();
    let tests = file.test_regions();
    let mut found = Vec::new();
    for ban in BANS.iter().filter(|ban| holds_in(ban, &file.path)) {
        let banned = tokens(ban.tokens);
        for at in occurrences(&code, &banned) {
            let exempt =
                ban.tests == Tests::Exempt && tests.iter().any(|range| range.contains(&at));
            if !exempt {
                found.push(file.violation(at, format_args!("`{}`: {}", ban.tokens, ban.reason)));
            }
        }
    }
    found
}

pub(crate) fn unsafe_violations(file: &Source) -> Vec<String> {
    let code = file.tokens();
    let mut found = Vec::new();
    for pair in code.windows(2).filter(|pair| pair[0].text == "unsafe") {
        let at = pair[0].at;
        if file.path.starts_with("src/") && !may_be_unsafe(&file.path) {
            found.push(file.violation(at, "`unsafe` outside os, shm, mmap, simd and ffi files"));
        }
        if matches!(pair[1].text, "{" | "impl") && !has_safety_comment(file, at) {
            found.push(file.violation(at, "`unsafe` without a SAFETY comment above it"));
        }
    }
    found
}

/// `pool` for `src/pool/hostfile.rs`; `None` for the roots and for files outside of `src`.
fn module_of(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("src/")?;
    match inside.split_once('/') {
        Some((module, _)) => Some(module),
        None => inside.strip_suffix(".rs").filter(|name| !matches!(*name, "lib" | "main")),
    }
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Layer and name of the module of `runtime` that a path below it is in.
fn runtime_module_of(path: &[&str]) -> Option<(usize, &'static str)> {
    let modules = || {
        RUNTIME_LAYERS
            .iter()
            .enumerate()
            .flat_map(|(layer, modules)| modules.iter().map(move |module| (layer, *module)))
    };
    let named = |name: &str| modules().find(|(_, module)| *module == name);
    named(&path[..path.len().min(2)].join("::")).or_else(|| named(path[0]))
}

/// The segments after `crate::runtime::`, up to two.
fn runtime_paths<'a>(tokens: &[Token<'a>]) -> Vec<(usize, Vec<&'a str>)> {
    let mut found = Vec::new();
    for at in occurrences(tokens, &crate::source::tokens("crate::runtime::")) {
        let start = tokens.partition_point(|token| token.at < at) + 4;
        let mut path = vec![tokens[start].text];
        if let [separator, next, ..] = &tokens[start + 1..]
            && separator.text == "::"
        {
            path.push(next.text);
        }
        found.push((at, path));
    }
    found
}

fn may_import(module: &str, import: &str) -> bool {
    NARROW.iter().all(|(narrow, allowed)| *narrow != module || allowed.contains(&import))
}

/// First segments after `crate::`, with those of a group `crate::{a, b::{c, d}}`.
fn crate_imports<'a>(tokens: &[Token<'a>]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for (index, pair) in tokens.windows(3).enumerate() {
        if pair[0].text != "crate" || pair[1].text != "::" {
            continue;
        }
        match pair[2].text {
            "{" => found.extend(group_heads(&tokens[index + 3..])),
            name => found.push((pair[2].at, name)),
        }
    }
    found
}

fn group_heads<'a>(tokens: &[Token<'a>]) -> Vec<(usize, &'a str)> {
    let mut heads = Vec::new();
    let mut depth = 0usize;
    let mut at_head = true;
    for token in tokens {
        match token.text {
            "}" if depth == 0 => break,
            "}" => depth -= 1,
            "{" => depth += 1,
            "," if depth == 0 => at_head = true,
            name if at_head => {
                heads.push((token.at, name));
                at_head = false;
            }
            _ => {}
        }
    }
    heads
}

/// Chains of `super` that leave the first `kept` of the modules in which a file lies, of which there are
/// `depth`: the checks of paths do not see them.
fn climbs(file: &Source, depth: usize, kept: usize, message: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inline = InlineModules::default();
    let code = file.tokens();
    for (index, token) in code.iter().enumerate() {
        inline.feed(&code[..=index]);
        let is_path = code.get(index + 1).is_some_and(|next| next.text == "::");
        let starts_chain =
            token.text == "super" && is_path && (index < 2 || code[index - 2].text != "super");
        if starts_chain && depth + inline.open.len() < kept + supers(&code[index..]) {
            found.push(file.violation(token.at, message));
        }
    }
    found
}

/// The `mod name { … }` blocks that are open at a token.
#[derive(Default)]
struct InlineModules {
    depth: usize,
    open: Vec<usize>,
}

impl InlineModules {
    fn feed(&mut self, read: &[Token<'_>]) {
        match read {
            [.., module, _, brace] if module.text == "mod" && brace.text == "{" => {
                self.depth += 1;
                self.open.push(self.depth);
            }
            [.., brace] if brace.text == "{" => self.depth += 1,
            [.., brace] if brace.text == "}" => {
                self.open.retain(|depth| *depth != self.depth);
                self.depth = self.depth.saturating_sub(1);
            }
            _ => {}
        }
    }
}

fn supers(tokens: &[Token<'_>]) -> usize {
    tokens.chunks(2).take_while(|pair| pair[0].text == "super").count()
}

/// How many `super` lead from a file to the crate root: 1 for `src/pool/mod.rs`.
fn depth_of(path: &str) -> usize {
    let inside = path.trim_start_matches("src/");
    inside.trim_end_matches("/mod.rs").split('/').count()
}

fn holds_in(ban: &Ban, path: &str) -> bool {
    let matches = |prefixes: &[&str]| prefixes.iter().any(|prefix| path.starts_with(prefix));
    matches(ban.within) && !matches(ban.except)
}

pub(crate) fn occurrences(code: &[Token<'_>], banned: &[Token<'_>]) -> Vec<usize> {
    let same = |window: &[Token<'_>]| window.iter().zip(banned).all(|(a, b)| a.text == b.text);
    code.windows(banned.len()).filter(|window| same(window)).map(|window| window[0].at).collect()
}

fn may_be_unsafe(path: &str) -> bool {
    path.starts_with("src/os/")
        || path.split('/').any(|part| UNSAFE_NAMES.iter().any(|name| part.starts_with(name)))
}

/// Whether there is a SAFETY comment above the statement at a byte.
fn has_safety_comment(file: &Source, at: usize) -> bool {
    for line in file.text[..at].rsplit('\n').skip(1).map(str::trim) {
        let ends_a_statement = line.ends_with([';', '{', '}', ',']) || line.is_empty();
        match line {
            _ if line.starts_with("//") && line.contains("SAFETY:") => return true,
            _ if line.starts_with("//") || line.starts_with("#[") => {}
            _ if ends_a_statement => return false,
            _ => {}
        }
    }
    false
}

/// Asserts the message of the first violation; `-` if there is none.
#[track_caller]
pub(crate) fn check(rule: fn(&Source) -> Vec<String>, path: &str, text: &str, expect: &str) {
    let found = rule(&Source::new(path, text));
    assert_eq!(found.first().map_or("-", String::as_str), expect, "for `{text}`");
}

#[test]
fn planted_import_is_found() {
    let rule = layer_violations;
    check(rule, "src/plan/a.rs", "use crate::pool::Pool;", "-");
    check(rule, "src/plan/a.rs", "// use crate::cli::A;", "-");
    check(rule, "src/plan/a.rs", "use crate::plan::b;", "-");
    check(rule, "src/main.rs", "fn main() { crate::cli::main() }", "-");
    let upward = "src/pool/a.rs:1: `pool` (L1) must not import `plan` (L2)";
    check(rule, "src/pool/a.rs", "use crate::plan::JobSpec;", upward);
    check(rule, "src/pool/a.rs", "use crate::{base::Span, plan::{self, JobSpec}};", upward);
    check(rule, "src/pool/a.rs", "fn f() -> crate::plan::JobSpec { todo }", upward);
    check(rule, "src/pool/a.rs", "macro_rules! a { () => { $crate::plan::b() } }", upward);
    check(
        rule,
        "src/pool.rs",
        "use crate::os::x;",
        "src/pool.rs:1: `pool` (L1) must not import `os` (L1)",
    );
    let narrow = "src/runtime/a.rs:2: `runtime` (L4) must not import `wire` (L3)";
    check(rule, "src/runtime/a.rs", "use crate::os::x;\nuse crate::wire::y;", narrow);
    check(rule, "src/new/a.rs", "", "src/new/a.rs:1: `new` is not in the layer table");
    check(rule, "src/cli/a.rs", "crate::new::b", "src/cli/a.rs:1: `new` is not in the layer table");
}

#[test]
fn planted_import_of_a_higher_module_is_found() {
    let rule = runtime_violations;
    check(rule, "src/runtime/comm/host/a.rs", "use crate::runtime::comm::tcp::mesh::Mesh;", "-");
    check(rule, "src/runtime/comm/host/a.rs", "use crate::runtime::comm::host::b::C;", "-");
    check(rule, "src/runtime/comm/group.rs", "use crate::runtime::comm::work::Work;", "-");
    check(rule, "src/runtime/mod.rs", "pub use crate::runtime::comm::work::Work;", "-");
    let upward = "src/runtime/comm/tcp/a.rs:1: `comm::tcp` (R3) must not import `comm` (R6)";
    check(rule, "src/runtime/comm/tcp/a.rs", "use crate::runtime::comm::group::Group;", upward);
    let sibling =
        "src/runtime/comm/shm/a.rs:1: `comm::shm` (R2) must not import `comm::store` (R2)";
    check(rule, "src/runtime/comm/shm/a.rs", "use crate::runtime::comm::store::b;", sibling);
    let root = "src/runtime/data/a.rs:1: `Group` is not a module of runtime";
    check(rule, "src/runtime/data/a.rs", "use crate::runtime::Group;", root);
    check(
        rule,
        "src/runtime/new/a.rs",
        "",
        "src/runtime/new/a.rs:1: `new` is not a module of runtime",
    );
}

#[test]
fn planted_climb_is_found() {
    let rule = layer_violations;
    let found = "src/pool/a.rs:1: `super` reaches the crate root; write `crate::`";
    check(rule, "src/pool/a.rs", "use super::b;", "-");
    check(rule, "src/pool/a.rs", "mod tests { use super::super::b; }", "-");
    check(rule, "src/pool/a.rs", "use super::super::plan;", found);
    check(rule, "src/pool/a.rs", "mod t { fn f() {} } use super::super::plan;", found);
    check(rule, "src/pool/mod.rs", "use super::plan;", &found.replace("a.rs", "mod.rs"));
}

#[test]
fn planted_climb_out_of_a_module_of_runtime_is_found() {
    #[track_caller]
    fn check_climb(path: &str, text: &str, expect: &str) {
        check(runtime_violations, path, text, expect);
    }
    let found = |path| {
        format!("{path}:1: `super` leaves the module of the layer table; write `crate::runtime::`")
    };
    let (file, root) = ("src/runtime/comm/host/a.rs", "src/runtime/flat/mod.rs");
    check_climb(file, "use super::b;", "-");
    check_climb(file, "pub(super) fn f() {}", "-");
    check_climb(file, "use super::super::device::b;", &found(file));
    check_climb(file, "mod t { use super::super::b; }", "-");
    check_climb("src/runtime/parallel/zero/a.rs", "use super::super::ddp::b;", "-");
    check_climb(root, "use super::engine::b;", &found(root));
    let error = "src/runtime/error.rs";
    check_climb(error, "use super::engine::b;", &found(error));
    let group = "src/runtime/comm/group.rs";
    check_climb(group, "use super::device::b;", &found(group));
}

#[test]
fn planted_ban_is_found() {
    let rule = ban_violations;
    check(rule, "src/job/a.rs", "let now = clock_now();", "-");
    check(rule, "src/job/a.rs", "\"Instant::now\" // Instant::now", "-");
    check(
        rule,
        "src/launch/a.rs",
        "\nlet a = Instant :: now ();",
        "src/launch/a.rs:2: `Instant::now`: use base::clock::now",
    );
    check(rule, "src/base/clock.rs", "Instant::now()", "-");
    check(
        rule,
        "src/agent/a.rs",
        "std::env::var(\"A\")",
        "src/agent/a.rs:1: `env::var`: use base::env_vars::get",
    );
    check(
        rule,
        "src/agent/a.rs",
        "println!()",
        "src/agent/a.rs:1: `println!`: only report writes to the terminal",
    );
    check(rule, "src/report/a.rs", "println!()", "-");
    let import = "use crate::runtime::comm::tcp::mesh::Mesh;";
    check(rule, "src/runtime/comm/host/inter_node.rs", import, "-");
    let found = "src/runtime/comm/host/a.rs:1: `comm::tcp`: an algorithm names no connection";
    check(rule, "src/runtime/comm/host/a.rs", import, found);
    check(
        rule,
        "src/launch/a.rs",
        "a().unwrap();",
        "src/launch/a.rs:1: `.unwrap()`: handle the error, or state with expect why it cannot occur",
    );
    check(rule, "src/launch/a.rs", "#[cfg(test)] mod tests { fn f() { a().unwrap() } }", "-");
    check(
        rule,
        "src/plan/a.rs",
        "use clap::Parser;",
        "src/plan/a.rs:1: `clap`: only cli knows clap",
    );
    check(
        rule,
        "src/job/a.rs",
        "tokio::spawn(a)",
        "src/job/a.rs:1: `tokio`: no async runtime here",
    );
    check(
        rule,
        "src/cli/a.rs",
        "std::process::exit(1)",
        "src/cli/a.rs:1: `process::exit`: return a base::Status",
    );
    check(
        rule,
        "tests/a.rs",
        "#[allow(dead_code)]",
        "tests/a.rs:1: `#[allow(`: use #[expect(…, reason = \"…\")]",
    );
    check(
        rule,
        "src/a.rs",
        "#[cfg(test)] mod t { #[ignore] fn f() {} }",
        "src/a.rs:1: `#[ignore`: run the test or remove it",
    );
    check(
        rule,
        "examples/a.rs",
        "println!(); todo!()",
        "examples/a.rs:1: `todo!`: write the missing code",
    );
}

#[test]
fn planted_unsafe_is_found() {
    let rule = unsafe_violations;
    let undocumented = "src/os/a.rs:2: `unsafe` without a SAFETY comment above it";
    check(rule, "src/os/a.rs", "// SAFETY: b\nunsafe { c() }", "-");
    check(rule, "src/os/a.rs", "// SAFETY: b,\n// and c\nlet d =\n    unsafe { e() };", "-");
    check(rule, "src/os/a.rs", "// SAFETY: b\n#[inline]\nunsafe impl Send for C {}", "-");
    check(rule, "src/os/a.rs", "a();\nunsafe { c() }", undocumented);
    check(rule, "src/os/a.rs", "\nunsafe { b() }\n// SAFETY: too late", undocumented);
    check(rule, "src/os/a.rs", "// SAFETY: b\nunsafe fn c() {}", "-");
    check(rule, "src/runtime/shm_segment.rs", "// SAFETY: b\nunsafe { c() }", "-");
    check(
        rule,
        "src/launch/a.rs",
        "// SAFETY: b\nunsafe { c() }",
        "src/launch/a.rs:2: `unsafe` outside os, shm, mmap, simd and ffi files",
    );
}
