//! GPT-2 between `remuda train` and Hugging Face: `remuda checkpoint export` and `import`.
//!
//! `tests/checkpoint/import.expected` contains every refused line with its screen and exit status;
//! `UPDATE_EXPECTED=1 cargo test --test program hugging_face::` rewrites it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use safetensors::SafeTensors;
use serde_json::Value;

use crate::support::expected::check_expected;
use crate::support::scratch::{Scratch, text};
use crate::support::shards::write_shard;

/// A GPT-2 that trains within milliseconds on the tokens of `shard.bin`.
const SMALL: &str =
    "--model gpt2 --num_gpus 2 --layers 2 --heads 2 --width 8 --block 8 --batch_size 2";

/// A directory with the checkpoint `kept` of a GPT-2, exported to `model`.
fn exported(name: &str) -> Scratch {
    let scratch = Scratch::new("checkpoint", &format!("hf-{name}"));
    write_shard(&scratch.path("shard.bin"), (0..2000).map(|at| at % 50));
    train(&scratch, "--steps 3 --warmup 1 --checkpoint_dir kept");
    scratch.succeed("export kept --to hf:model");
    scratch
}

fn train(scratch: &Scratch, line: &str) {
    let output = scratch.run_other("train", &format!("{SMALL} --data shard.bin {line}"));
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
}

/// Shape and elements of every tensor of a file.
fn tensors(scratch: &Scratch, file: &str) -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
    let bytes = fs::read(scratch.path(file)).expect("it was written");
    let read = SafeTensors::deserialize(&bytes).expect("it is valid");
    let tensor = |(name, tensor): (String, safetensors::tensor::TensorView<'_>)| {
        (name, (tensor.shape().to_vec(), tensor.data().to_vec()))
    };
    read.tensors().into_iter().map(tensor).collect()
}

#[test]
fn export_of_gpt2_has_the_layout_of_transformers() {
    let scratch = exported("layout");
    let config = fs::read(scratch.path("model/config.json")).expect("it was written");
    let config: Value = serde_json::from_slice(&config).expect("JSON");
    let expected = [("n_layer", 2), ("n_head", 2), ("n_embd", 8), ("n_positions", 8)];
    for (key, value) in expected {
        assert_eq!(config[key], value, "{key}");
    }
    assert_eq!((&config["vocab_size"], &config["model_type"]), (&64.into(), &"gpt2".into()));
    let found = tensors(&scratch, "model/model.safetensors");
    let shapes = [
        ("wte.weight", vec![64, 8]),
        ("h.1.attn.c_attn.weight", vec![8, 24]),
        ("h.1.attn.c_attn.bias", vec![24]),
        ("h.1.mlp.c_fc.weight", vec![8, 32]),
        ("h.1.mlp.c_proj.weight", vec![32, 8]),
        ("ln_f.bias", vec![8]),
    ];
    for (name, shape) in shapes {
        assert_eq!(found[name].0, shape, "{name}");
    }
    assert_eq!(found.len(), 2 + 2 * 12 + 2);
}

#[test]
fn imported_gpt2_has_the_exported_bits() {
    let scratch = exported("round");
    scratch.succeed("import model --to again");
    scratch.succeed("export kept --to one.safetensors");
    scratch.succeed("export again --to two.safetensors");
    assert_eq!(tensors(&scratch, "one.safetensors"), tensors(&scratch, "two.safetensors"));
    // Names as in models that were saved with their head, in several files.
    scratch.succeed("export again --to hf:parts --max_shard_size 2000");
    scratch.succeed("import parts --to third");
    scratch.succeed("export third --to three.safetensors");
    assert_eq!(tensors(&scratch, "one.safetensors"), tensors(&scratch, "three.safetensors"));
    train(&scratch, "--resume again --steps 2 --warmup 1");
}

/// Training here has no dropout, and a model that is exported again has that of the imported one.
#[test]
fn dropout_of_an_imported_model_is_exported_again() {
    let scratch = exported("dropout");
    let config_of = |dir: &str| -> Value {
        let config = fs::read(scratch.path(&format!("{dir}/config.json"))).expect("it was written");
        serde_json::from_slice(&config).expect("JSON")
    };
    let mut config = config_of("model");
    config["resid_pdrop"] = 0.25.into();
    config["eos_token_id"] = 7.into();
    config.as_object_mut().expect("an object").remove("embd_pdrop");
    scratch.write("model/config.json", config.to_string());
    let imported = scratch.run("import model --to again");
    let note = "note: `remuda train` has no dropout; `embd_pdrop` 0.1, `resid_pdrop` 0.25 are kept for `remuda checkpoint \
                export`\n";
    assert_eq!(text(&imported.stderr), note);
    train(&scratch, "--resume again --steps 2 --warmup 1 --checkpoint_dir trained");
    for from in ["again", "trained"] {
        scratch.succeed(&format!("export {from} --to hf:of-{from}"));
        let found = config_of(&format!("of-{from}"));
        let dropout = ["attn_pdrop", "embd_pdrop", "resid_pdrop"].map(|key| found[key].as_f64());
        assert_eq!(dropout, [Some(0.0), Some(0.1), Some(0.25)], "{found}");
        assert_eq!((&found["eos_token_id"], &found["n_embd"]), (&7.into(), &8.into()));
    }
    // A model that began here has none, and nothing is said about it.
    scratch.succeed("export kept --to hf:own");
    assert_eq!(text(&scratch.run("import own --to third").stderr), "");
}

#[test]
fn export_in_several_files_has_an_index() {
    let scratch = exported("parts");
    let shown = scratch.succeed("export kept --to hf:many --max_shard_size 3000");
    let index = fs::read(scratch.path("many/model.safetensors.index.json")).expect("a file");
    let index: Value = serde_json::from_slice(&index).expect("JSON");
    let files: BTreeSet<&str> = index["weight_map"]
        .as_object()
        .expect("an object")
        .iter()
        .map(|(name, file)| {
            let file = file.as_str().expect("a name");
            let found = tensors(&scratch, &format!("many/{file}"));
            assert!(found.contains_key(name), "{name} in {file}");
            file
        })
        .collect();
    let count = files.len();
    assert!(
        1 < count
            && files.iter().all(|file| file.ends_with(&format!("-of-{count:05}.safetensors")))
    );
    let sizes = files.iter().flat_map(|file| tensors(&scratch, &format!("many/{file}")));
    let bytes: usize = sizes.map(|(_, (_, bytes))| bytes.len()).sum();
    assert_eq!(index["metadata"]["total_size"], bytes);
    assert!(
        shown.contains(&format!("`many/model-00001-of-{count:05}.safetensors` and ")),
        "{shown}"
    );
    assert!(scratch.path("many/config.json").exists());
}

#[test]
fn models_that_are_no_gpt2_are_refused() {
    let scratch = exported("refused");
    let config = fs::read_to_string(scratch.path("model/config.json")).expect("it was written");
    let variant = |name: &str, from: &str, to: &str| {
        fs::create_dir_all(scratch.path(name)).expect("a new directory");
        assert!(config.contains(from), "{config}");
        scratch.write(&format!("{name}/config.json"), config.replace(from, to));
        let model = fs::read(scratch.path("model/model.safetensors")).expect("it was written");
        scratch.write(&format!("{name}/model.safetensors"), model);
    };
    variant("llama", "\"gpt2\"", "\"llama\"");
    variant("relu", "\"gelu_new\"", "\"relu\"");
    variant("untied", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
    variant("deeper", "\"n_layer\": 2", "\"n_layer\": 3");
    variant("shallow", "\"n_layer\": 2", "\"n_layer\": 1");
    variant("longer", "\"n_positions\": 8", "\"n_positions\": 16");
    variant("heads", "\"n_head\": 2", "\"n_head\": 3");
    variant("broken", "{", "");
    variant("cut", "\"n_layer\": 2", "\"n_layer\": 2");
    scratch.write("cut/model.safetensors", "no tensors");
    for (dir, files) in [
        ("bare", vec!["config.json"]),
        ("empty", vec![]),
        ("pickled", vec!["config.json", "pytorch_model.bin"]),
        ("models--gpt2/snapshots/607a30", vec!["config.json"]),
        ("bert", vec![]),
        ("typeless", vec![]),
    ] {
        fs::create_dir_all(scratch.path(dir)).expect("a new directory");
        for file in files {
            scratch.write(&format!("{dir}/{file}"), &config);
        }
    }
    scratch.write("bert/config.json", "{\"model_type\": \"bert\", \"num_hidden_layers\": 12}");
    scratch.write("typeless/config.json", "{\"n_layer\": 12}");
    let plain = SMALL.replace("gpt2", "gpt");
    for line in [
        format!("{plain} --data shard.bin --steps 1 --checkpoint_dir plain"),
        "--model mlp --layers 1 --width 8 --num_gpus 1 --steps 1 --checkpoint_dir mlp".to_owned(),
    ] {
        assert!(scratch.run_other("train", &line).status.success(), "{line}");
    }
    let found = scratch.screens(
        &[
            "import none --to new",
            "import bare --to new",
            "import empty --to new",
            "import shard.bin --to new",
            "import pickled --to new",
            "import models--gpt2 --to new",
            "import kept --to new",
            "import bert --to new",
            "import typeless --to new",
            "import model --to kept",
            "import llama --to new",
            "import relu --to new",
            "import untied --to new",
            "import deeper --to new",
            "import shallow --to new",
            "import longer --to new",
            "import heads --to new",
            "import broken --to new",
            "import cut --to new",
            "import model --to model/config.json",
            "import model",
            "export kept --to hf:model",
            "export plain --to hf:new",
            "export mlp --to hf:new",
        ],
        str::to_owned,
    );
    assert!(!scratch.path("new").exists());
    check_expected("tests/checkpoint/import.expected".as_ref(), &found);
}
