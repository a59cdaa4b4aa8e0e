//! Comparison of `remuda.h` with the code.

use std::collections::BTreeMap;

use crate::capi::call_error::CallErrorKind;
use crate::capi::{ABI_VERSION, CallOptions, CallerStore, FOREVER, IN_PROGRESS, PeerMessage};
use crate::runtime::{Dtype, ReduceOp, ReduceOrder};

const HEADER: &str = include_str!("remuda.h");

/// Files that define functions of the interface.
const FILES: &[&str] = &[
    include_str!("ffi_collective.rs"),
    include_str!("ffi_device.rs"),
    include_str!("ffi_error.rs"),
    include_str!("ffi_group.rs"),
    include_str!("ffi_meet.rs"),
    include_str!("ffi_memory.rs"),
    include_str!("ffi_message.rs"),
    include_str!("ffi_work.rs"),
];

/// Names of the functions of a text, each with the number of its parameters.
fn functions(text: &str, before: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (at, _) in text.match_indices(before) {
        let rest = &text[at + before.len() - "remuda_".len()..];
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let name: String = rest.chars().take_while(|c| is_name(*c)).collect();
        let Some(parameters) = rest[name.len()..].strip_prefix('(') else { continue };
        let parameters = parameters.split_once(')').expect("parentheses are closed").0.trim();
        let parameters = parameters.trim_end_matches(',');
        let is_empty = parameters.is_empty() || parameters == "void";
        found.insert(name, if is_empty { 0 } else { parameters.split(',').count() });
    }
    found
}

/// Values of `#define REMUDA_…`.
fn constants() -> BTreeMap<&'static str, &'static str> {
    let lines = HEADER.lines().filter_map(|line| line.strip_prefix("#define REMUDA_"));
    lines.filter_map(|line| line.split_once(' ')).collect()
}

#[test]
fn header_declares_the_functions_of_the_code() {
    let mut code = BTreeMap::new();
    for file in FILES {
        code.extend(functions(file, "extern \"C\" fn remuda_"));
    }
    let declarations: String =
        HEADER.lines().filter(|line| !line.starts_with(['/', ' ']) || line.contains(';')).collect();
    let mut declared = functions(&HEADER.replace("*remuda_", "* remuda_"), " remuda_");
    declared.retain(|name, _| declarations.contains(&format!("{name}(")));
    assert!(30 <= code.len(), "{code:?}");
    assert_eq!(declared, code);
}

#[test]
fn header_has_the_constants_of_the_code() {
    let mut expected = vec![("ABI", ABI_VERSION.to_string()), ("OK", "0".to_owned())];
    expected.push(("IN_PROGRESS", IN_PROGRESS.to_string()));
    assert_eq!(FOREVER, u64::MAX);
    expected.push(("FOREVER", "UINT64_MAX".to_owned()));
    let kinds = [
        "ARGUMENT",
        "DEADLINE",
        "PEER_LOST",
        "MISMATCH",
        "ABORTED",
        "TRANSPORT",
        "SYSTEM",
        "ENVIRONMENT",
        "PANIC",
    ];
    let kinds = kinds.into_iter().zip(CallErrorKind::ALL);
    expected.extend(kinds.map(|(name, kind)| (name, (kind as i32).to_string())));
    let types = [
        ("F32", Dtype::F32),
        ("F64", Dtype::F64),
        ("I32", Dtype::I32),
        ("I64", Dtype::I64),
        ("U8", Dtype::U8),
        ("F16", Dtype::F16),
        ("BF16", Dtype::Bf16),
    ];
    expected.extend(types.map(|(name, dtype)| (name, (dtype as u8).to_string())));
    let ops = [
        ("SUM", ReduceOp::Sum),
        ("PROD", ReduceOp::Prod),
        ("MIN", ReduceOp::Min),
        ("MAX", ReduceOp::Max),
        ("AVG", ReduceOp::Avg),
    ];
    expected.extend(ops.map(|(name, op)| (name, (op as u8).to_string())));
    let orders = ReduceOrder::ALL.map(|order| (order as u8).to_string());
    expected.extend(["ORDER_CANONICAL", "ORDER_ANY"].into_iter().zip(orders));
    let expected: BTreeMap<_, _> =
        expected.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(constants(), expected);
}

#[test]
fn structs_have_the_layout_of_the_header() {
    assert_eq!((size_of::<CallOptions>(), size_of::<PeerMessage>()), (24, 24));
    assert_eq!(size_of::<CallerStore>(), 24);
    let offsets =
        [std::mem::offset_of!(CallOptions, timeout_ms), std::mem::offset_of!(PeerMessage, dtype)];
    assert_eq!(offsets, [8, 16]);
}
