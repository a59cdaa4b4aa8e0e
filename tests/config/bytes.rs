//! Arbitrary bytes, and properties of the reader of Hjson.

use proptest::prelude::*;
use remuda::config::{
    ConfigInputs, ConfigNode, ConfigValue, HjsonDocument, parse_hjson, read_config,
};
use remuda::report::config::show_config;
use remuda::report::diagnostic::{Paint, show_findings};
use remuda::report::findings::show_config_json;

use crate::support::proof::{Random, proof_cases};

/// Words of configurations, and words that are valid in none.
const WORDS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\n",
    b" ",
    b"\"",
    b"'",
    b"'''",
    b"\\",
    b"\\u00e9",
    b"\\ud83d\\ude00",
    b"//",
    b"#",
    b"/*",
    b"*/",
    b"null",
    b"true",
    b"false",
    b"NaN",
    b"-",
    b"1",
    b"0.5",
    b"1e9",
    b"1e999",
    b"99999999999999999999",
    b"-8",
    b"auto",
    b"\"auto\"",
    b"\"train_batch_size\"",
    b"train_micro_batch_size_per_gpu",
    b"gradient_accumulation_steps",
    b"gradient_clipping",
    b"optimizer",
    b"\"type\"",
    b"Adam",
    b"\"SGD\"",
    b"params",
    b"\"lr\"",
    b"\"betas\"",
    b"[0.9, 0.999]",
    b"scheduler",
    b"\"WarmupDecayLR\"",
    b"\"OneCycle\"",
    b"total_num_steps",
    b"warmup_num_steps",
    b"fp16",
    b"bf16",
    b"\"enabled\"",
    b"loss_scale",
    b"zero_optimization",
    b"stage",
    b"\"stage\"",
    b"offload_param",
    b"\"device\"",
    b"\"nvme\"",
    b"cpu_offload",
    b"reduce_bucket_size",
    b"elasticity",
    b"bfloat16",
    b"activation_checkpointing",
    b"number_checkpoints",
    b"tensorboard",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\0",
    b"\xc2\xa0",
    b"distributed_type: DEEPSPEED\n",
    b"deepspeed_config:\n  ",
    b"zero_stage: 3\n",
    b"fsdp_config:\n  ",
];

fn any_text(random: &mut Random) -> Vec<u8> {
    let mut text = Vec::new();
    if random.below(2) == 0 {
        text.push(b'{');
    }
    for _ in 0..random.below(80) {
        match random.below(12) {
            0 => text.push(random.below(256) as u8),
            1..4 => text.extend_from_slice(b": "),
            4..6 => text.extend_from_slice(b",\n"),
            _ => text.extend_from_slice(WORDS[random.below(WORDS.len())]),
        }
    }
    text
}

#[test]
fn prove_any_bytes_give_values_or_findings() {
    let mut random = Random::from_seed();
    for _ in 0..proof_cases(3000) {
        let text = any_text(&mut random);
        for (name, world_size) in [("a.json", None), ("a.yaml", Some(3)), ("-", Some(1))] {
            let inputs = ConfigInputs { world_size, ..ConfigInputs::default() };
            let reading = read_config(name, &text, &inputs);
            assert_eq!(reading.config.is_some(), !reading.findings.has_errors(), "{text:?}");
            let screen = show_findings(&reading.findings, Paint::Plain) + &show_config(&reading);
            assert!(screen.chars().all(|c| c == '\n' || !c.is_control()), "{screen:?}");
            let document = show_config_json(&[&reading], &[]);
            serde_json::from_str::<serde_json::Value>(&document).expect("JSON");
            for found in &reading.findings.diagnostics {
                let Some(span) = found.span else { continue };
                let place = reading.findings.source.text.get(span.start..span.end);
                assert!(place.is_some(), "{found:?} in {text:?}");
            }
        }
    }
}

#[test]
fn deep_and_long_texts_end_quickly() {
    for text in ["[", "{a:", "{\"a\":[", "'''", "/*", "a: ", "1,", "{}"] {
        let text = text.repeat(100_000);
        read_config("a.json", text.as_bytes(), &ConfigInputs::default());
    }
}

/// A JSON value of limited depth, as Rust's JSON writes it.
fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::Bool),
        any::<i64>().prop_map(serde_json::Value::from),
        (-1e15..1e15).prop_map(serde_json::Value::from),
        ".{0,12}".prop_map(serde_json::Value::String),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::Array),
            proptest::collection::btree_map(".{0,8}", inner, 0..5)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Whether a tree is a value of JSON. Numbers with a fraction of 0 are whole ones in Hjson.
fn is_same(node: &ConfigNode, json: &serde_json::Value) -> bool {
    match (&node.value, json) {
        (ConfigValue::Null, serde_json::Value::Null) => true,
        (ConfigValue::Bool(found), serde_json::Value::Bool(expect)) => found == expect,
        (ConfigValue::Whole(found), serde_json::Value::Number(expect)) => {
            expect.as_i64() == Some(*found) || expect.as_f64() == Some(*found as f64)
        }
        (ConfigValue::Float(found), serde_json::Value::Number(expect)) => {
            expect.as_f64() == Some(*found)
        }
        (ConfigValue::Text(found), serde_json::Value::String(expect)) => found == expect,
        (ConfigValue::List(found), serde_json::Value::Array(expect)) => {
            found.len() == expect.len() && found.iter().zip(expect).all(|(a, b)| is_same(a, b))
        }
        (ConfigValue::Map(found), serde_json::Value::Object(expect)) => {
            found.len() == expect.len()
                && found.iter().all(|entry| {
                    expect.get(&entry.key).is_some_and(|value| is_same(&entry.node, value))
                })
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn json_is_hjson(value in any_json(), pretty: bool) {
        // A text of a single value in braces or brackets; others are read as an object without braces.
        let value = serde_json::json!([value]);
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let text = text.expect("JSON");
        let HjsonDocument { root, problems } = parse_hjson(&text);
        prop_assert_eq!(problems, []);
        let root = root.expect("no error");
        prop_assert!(is_same(&root, &value), "{:?} of {}", root, text);
    }
}
