//! `zero_optimization`.

use super::resolver::Resolver;
use crate::base::Diagnostic;
use crate::config::codes::{CONTRADICTION, MISSING_KEY};
use crate::config::training::{ShardGroupConfig, ShardMemory, ZeroConfig, ZeroStage};
use crate::config::tree::ConfigValue;

/// Keys that only stage 3 has.
const OF_STAGE_3: [&str; 4] = [
    "zero_optimization.zero_hpz_partition_size",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
];

/// Why an offload to the memory of the host has no effect where workers compute in it.
pub const NO_OTHER_MEMORY: &str = "it has an effect on GPUs only: a CPU slot has no other memory";

impl Resolver<'_> {
    /// What is sharded, and where shards are.
    pub(super) fn zero(&mut self) -> ZeroConfig {
        let mut section = self.section("zero_optimization");
        let stage = match section.whole("stage") {
            0 => ZeroStage::None,
            1 => ZeroStage::Optimizer,
            2 => ZeroStage::Gradients,
            _ => ZeroStage::Parameters,
        };
        let reduce_bucket = section.count("reduce_bucket_size");
        let sub_group = section.count("sub_group_size");
        let is_stage_3 = stage == ZeroStage::Parameters;
        if !is_stage_3 {
            for path in OF_STAGE_3 {
                self.idle(path, "only stage 3 shards parameters");
            }
        }
        let (shard_group, prefetch_bucket, persistence_threshold, gathers_16bit_weights) =
            if is_stage_3 {
                let mut section = self.section("zero_optimization");
                (
                    section.count("zero_hpz_partition_size"),
                    section.count("stage3_prefetch_bucket_size"),
                    section.count("stage3_param_persistence_threshold"),
                    section.flag("stage3_gather_16bit_weights_on_model_save"),
                )
            } else {
                (1, 0, 0, false)
            };
        self.check_norm(stage);
        ZeroConfig {
            stage,
            shard_group: match shard_group {
                0 | 1 => ShardGroupConfig::All,
                ranks => ShardGroupConfig::Ranks(ranks),
            },
            reduce_bucket,
            prefetch_bucket,
            persistence_threshold,
            sub_group,
            gathers_16bit_weights,
            optimizer_memory: self.memory(
                "zero_optimization.offload_optimizer",
                if stage == ZeroStage::None { Some("stage 0 shards nothing") } else { None },
            ),
            parameter_memory: self.memory(
                "zero_optimization.offload_param",
                if is_stage_3 { None } else { Some("only stage 3 shards parameters") },
            ),
        }
    }

    /// The memory of a shard; an offload of what is not sharded has no effect, for this reason.
    fn memory(&mut self, path: &'static str, not_sharded: Option<&str>) -> ShardMemory {
        let device = format!("{path}.device");
        if let Some(reason) = not_sharded {
            let is_offload = self
                .settings
                .given(&device)
                .is_some_and(|found| *found != ConfigValue::Text("none".to_owned()));
            if is_offload {
                self.idle(&device, reason);
            }
            return ShardMemory::Device;
        }
        let mut section = self.section(path);
        match section.text("device").as_str() {
            "cpu" => {
                self.idle(&device, NO_OTHER_MEMORY);
                ShardMemory::Host
            }
            "nvme" => section.text_or_none("nvme_path").map_or_else(
                || {
                    self.no_directory(path, &device);
                    ShardMemory::Device
                },
                ShardMemory::Files,
            ),
            _ => ShardMemory::Device,
        }
    }

    fn no_directory(&mut self, path: &str, device: &str) {
        let Some(span) = self.value_span(device) else { return };
        let message = format!("`{path}` has no `nvme_path`");
        let problem = Diagnostic::error(MISSING_KEY, span, message);
        self.problems.push(
            problem
                .label("needs a directory")
                .help("add `\"nvme_path\": \"/local/nvme\"` beside it"),
        );
    }

    fn check_norm(&mut self, stage: ZeroStage) {
        let path = "zero_optimization.compute_grad_norm";
        let is_off = self.settings.given(path) == Some(&ConfigValue::Bool(false));
        let Some(span) = self.value_span(path).filter(|_| is_off) else { return };
        if !matches!(stage, ZeroStage::Optimizer | ZeroStage::Gradients) {
            let message = "`compute_grad_norm: false` is valid for stages 1 and 2 only";
            let problem = Diagnostic::error(CONTRADICTION, span, message);
            self.problems.push(problem.label("DeepSpeed also refuses it").help("remove the key"));
        }
    }
}
