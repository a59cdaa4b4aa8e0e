//! Damage of any file is found and named; what is read is what was saved, or an error.

use std::fs;
use std::path::Path;
use std::time::Duration;

use remuda::runtime::checkpoint::{
    CheckedBytes, CheckpointReader, LoadChoice, OpenError, TensorInfo, TensorRead, load_checkpoint,
    newest_undamaged, open_newest, verify_checkpoint,
};
use remuda::runtime::{Dtype, Group};

use super::runs::names;
use crate::checkpoint::test_dir::{TestDir, check_content};
use crate::support::checkpoints::{save_all, tensors};

/// Damage of a checkpoint as text.
fn damage_of(path: &Path) -> Vec<String> {
    let found = verify_checkpoint(path, 3).unwrap_or_else(|error| panic!("{error}"));
    found.iter().map(ToString::to_string).collect()
}

/// Reads everything with a group of ranks; returns the step that was read and the damaged checkpoints.
fn load_all(
    ranks: usize,
    dir: &Path,
    choice: LoadChoice,
) -> Vec<Result<(u64, Vec<String>), String>> {
    let loaded = Group::on_threads(ranks, |group| {
        let loaded = load_checkpoint(group, dir, choice, |reader| {
            let all: Vec<TensorInfo> = reader.tensors().collect();
            let own = all.iter().skip(group.rank()).step_by(group.world_size());
            for tensor in own {
                let mut values = vec![0.0; tensor.elements()];
                reader.read(&tensor.name, 0..values.len(), &mut values)?;
            }
            Ok(())
        });
        let show = |(path, damage): (std::path::PathBuf, Vec<_>)| {
            let name = path.file_name().expect("it has a name").display().to_string();
            format!(
                "{name}: {}",
                damage.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            )
        };
        Ok(loaded
            .map(|loaded| {
                let damaged = loaded.damaged.into_iter().map(show).collect();
                (loaded.reader.state().step, damaged)
            })
            .map_err(|error| error.to_string()))
    });
    loaded.expect("the group does not fail")
}

/// A changed byte is found only by reading it, a truncated file without that.
#[test]
fn newest_undamaged_is_read_as_far_as_there_is_time() {
    let dir = TestDir::new("newest");
    save_all(2, &dir.0, &[2, 4]);
    let file = dir.path("step-00000004/rank-00000.safetensors");
    let mut bytes = fs::read(&file).expect("a file");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(&file, &bytes).expect("it is written");
    let check = |path: &Path, limit, expected| {
        let found = newest_undamaged(path, limit).expect("there is one");
        assert_eq!((found.reader.state().step, found.checked), expected, "{}", path.display());
    };
    let (long, none) = (Duration::from_secs(600), Duration::ZERO);
    check(&dir.0, long, (2, CheckedBytes::All));
    check(&dir.path("step-00000004"), long, (2, CheckedBytes::All));
    check(&dir.0, none, (4, CheckedBytes::Sizes));
    fs::write(&file, &bytes[..9]).expect("it is written");
    check(&dir.0, none, (2, CheckedBytes::Sizes));
    assert!(newest_undamaged(&dir.path("none"), long).is_some(), "its directory has one");
    assert!(newest_undamaged(&dir.path("none/none"), long).is_none());
}

#[test]
fn flipped_bit_of_any_file_is_found() {
    let dir = TestDir::new("flipped");
    save_all(3, &dir.0, &[2, 4]);
    let step = dir.path("step-00000004");
    for name in names(&step) {
        let path = step.join(&name);
        let whole = fs::read(&path).expect("a file");
        for at in (0..whole.len()).step_by(5) {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&path, flipped).expect("it is written");
            let found = match verify_checkpoint(&step, 1) {
                Ok(damage) => damage.iter().any(|damage| damage.file() == name),
                // Another version of the format.
                Err(OpenError::Newer { .. }) => name == "index.json",
                Err(error) => panic!("{error}"),
            };
            assert!(found, "{name}, byte {at}");
            assert!(open_newest(&dir.0, LoadChoice::Exact, 1).is_err(), "{name}, byte {at}");
        }
        fs::write(&path, whole).expect("it is written");
        assert_eq!(damage_of(&step), [""; 0]);
    }
}

/// Several threads read, and the report is that of one: it names the first damaged block.
#[test]
fn first_damaged_block_is_reported() {
    let dir = TestDir::new("first-block");
    save_all(1, &dir.0, &[2]);
    let path = dir.path("step-00000002/rank-00000.safetensors");
    let mut bytes = fs::read(&path).expect("a file");
    let damaged = [bytes.len() - 1, bytes.len() / 2, bytes.len() / 3];
    for at in damaged {
        bytes[at] ^= 1;
    }
    fs::write(&path, &bytes).expect("it is written");
    let first = damage_of(&dir.path("step-00000002"))[0].clone();
    for _ in 0..50 {
        let reader = CheckpointReader::open(&dir.0).expect("sizes are good");
        let infos: Vec<TensorInfo> = reader.tensors().collect();
        let mut all: Vec<_> = infos.iter().map(|tensor| vec![0.0; tensor.elements()]).collect();
        let reads = infos.iter().zip(&mut all).map(|(tensor, out)| TensorRead {
            name: &tensor.name,
            range: 0..tensor.elements(),
            out,
        });
        let Err(OpenError::Damaged { damage, .. }) = reader.read_all(reads) else {
            panic!("it is damaged")
        };
        assert_eq!(damage.iter().map(ToString::to_string).collect::<Vec<_>>(), [&*first]);
    }
}

/// Every rank reads a part; all go back to the checkpoint before, although only one has found the damage.
#[test]
fn all_ranks_use_the_newest_valid_checkpoint() {
    let dir = TestDir::new("newest-valid");
    save_all(3, &dir.0, &[2, 4, 6]);
    let flip = |file: &str, at: usize| {
        let path = dir.path(file);
        let mut bytes = fs::read(&path).expect("a file");
        bytes[at] ^= 0x10;
        fs::write(path, bytes).expect("it is written");
    };
    let last =
        fs::metadata(dir.path("step-00000006/rank-00001.safetensors")).expect("a file").len();
    flip("step-00000006/rank-00001.safetensors", last as usize - 1);
    fs::remove_file(dir.path("step-00000004/rank-00002.safetensors")).expect("a file");
    let damaged = [
        format!(
            "step-00000006: `rank-00001.safetensors` was changed after it was saved, somewhere in bytes 2048 to \
             {}, which have values of `h.0.bias`, `h.0.bias/exp_avg`, `h.0.bias/exp_avg_sq`",
            last - 1
        ),
        "step-00000004: `rank-00002.safetensors` is missing".to_owned(),
    ];
    for ranks in [1, 2, 5] {
        let loaded = load_all(ranks, &dir.0, LoadChoice::NewestValid);
        assert_eq!(loaded, vec![Ok((2, damaged.to_vec())); ranks]);
        let exact = load_all(ranks, &dir.0, LoadChoice::Exact);
        let text = format!("checkpoint `{}` is damaged: ", dir.path("step-00000006").display());
        assert!(
            exact.iter().all(|error| error.clone().is_err_and(|e| e.starts_with(&text))),
            "{exact:?}"
        );
    }
    // If all are damaged, the run does not start from the beginning.
    flip("step-00000002/index.json", 200);
    for error in load_all(2, &dir.0, LoadChoice::NewestValid) {
        let text = error.expect_err("all are damaged");
        assert!(text.starts_with("all 3 checkpoints in `"), "{text}");
        assert!(text.contains("`step-00000006`: `rank-00001.safetensors` was changed"), "{text}");
        assert!(text.contains("`step-00000004`: `rank-00002.safetensors` is missing"), "{text}");
        assert!(text.contains("`step-00000002`: `index.json`"), "{text}");
    }
}

#[test]
fn every_damage_is_named() {
    let dir = TestDir::new("named");
    save_all(5, &dir.0, &[2, 4]);
    let (old, step) = (dir.path("step-00000002"), dir.path("step-00000004"));
    let shard = |rank: usize| step.join(format!("rank-{rank:05}.safetensors"));
    let bytes = fs::read(shard(0)).expect("a file");
    fs::write(shard(0), &bytes[..bytes.len() - 3]).expect("it is written");
    fs::remove_file(shard(1)).expect("a file");
    fs::copy(old.join("rank-00002.safetensors"), shard(2)).expect("it is copied");
    fs::copy(old.join("rank-00002.safetensors"), shard(3)).expect("it is copied");
    let mut longer = fs::read(shard(4)).expect("a file");
    longer.extend([0; 10]);
    fs::write(shard(4), &longer).expect("it is written");
    let expect = [
        format!(
            "`rank-00000.safetensors` was truncated: it has {} bytes instead of {}",
            bytes.len() - 3,
            bytes.len()
        ),
        "`rank-00001.safetensors` is missing".to_owned(),
        "`rank-00002.safetensors` is the file of rank 2 of step 2".to_owned(),
        "`rank-00003.safetensors` is the file of rank 2 of step 2".to_owned(),
        format!(
            "`rank-00004.safetensors` was extended: it has {} bytes instead of {}",
            longer.len(),
            longer.len() - 10
        ),
    ];
    assert_eq!(damage_of(&step), expect);
    // Only the index of another step.
    fs::copy(old.join("index.json"), step.join("index.json")).expect("it is copied");
    assert_eq!(damage_of(&step), ["`index.json`: it is of step 2"]);
    fs::remove_file(step.join("index.json")).expect("a file");
    assert_eq!(damage_of(&step), ["`index.json` is missing"]);
    let index = fs::read(old.join("index.json")).expect("a file");
    fs::write(step.join("index.json"), &index[..index.len() / 2]).expect("it is written");
    let changed = "`index.json`: checksum mismatch: it was changed after it was saved";
    assert_eq!(damage_of(&step), [changed]);
    check_content(&old, 2);
}

#[test]
fn newer_format_is_refused_by_all_ranks() {
    let dir = TestDir::new("newer");
    save_all(2, &dir.0, &[2, 4]);
    let index = dir.path("step-00000004/index.json");
    let text = fs::read_to_string(&index).expect("a file");
    fs::write(&index, text.replacen("remuda-checkpoint/1", "remuda-checkpoint/2", 1))
        .expect("it is written");
    let expect = format!(
        "checkpoint `{}` has the format `remuda-checkpoint/2`, which this version cannot read",
        dir.path("step-00000004").display()
    );
    // No step is lost because the version is old.
    let loaded = load_all(3, &dir.0, LoadChoice::NewestValid);
    assert_eq!(loaded, vec![Err(expect); 3]);
}

#[test]
fn another_model_is_named_tensor_by_tensor() {
    let dir = TestDir::new("model");
    save_all(2, &dir.0, &[2]);
    let reader = CheckpointReader::open(&dir.0).expect("it opens");
    let mut expected: Vec<TensorInfo> = tensors(2).into_iter().map(|(tensor, _)| tensor).collect();
    reader.check_tensors(&expected).expect("it is the same model");
    expected[0].shape = vec![13, 16];
    expected[3].dtype = Dtype::Bf16;
    expected[4].name = "h.1.bias".to_owned();
    let error = reader.check_tensors(&expected).expect_err("it is another model");
    let expect = format!(
        "checkpoint `{}` is for another model: `wte.weight` has the shape [13, 8] instead of [13, 16]; \
         `h.0.weight` has the type f32 instead of bf16; `h.1.bias` is not in the checkpoint; \
         `h.0.weight/exp_avg` is only in the checkpoint",
        dir.path("step-00000002").display()
    );
    assert_eq!(error.to_string(), expect);
}

/// Each rank has its own file system at the path, so that only rank 0 finds the checkpoint.
#[test]
fn ranks_that_do_not_find_it_are_named() {
    let (dir, empty) = (TestDir::new("found"), TestDir::new("not-found"));
    save_all(2, &dir.0, &[2]);
    let errors = Group::on_threads(3, |group| {
        let path = if group.rank() == 1 { &empty.0 } else { &dir.0 };
        let loaded = load_checkpoint(group, path, LoadChoice::NewestValid, |_| Ok(()));
        Ok(loaded.expect_err("rank 1 does not find it").to_string())
    });
    let errors = errors.expect("the group does not fail");
    for error in errors {
        assert!(error.starts_with("cannot load checkpoint `"), "{error}");
        let problem = format!(
            "`: rank 1 on host `localhost`: cannot read checkpoint `{}`: no such file or directory",
            empty.path("step-00000002").display()
        );
        assert!(error.ends_with(&problem), "{error}");
    }
}
