//! Variables that accelerate sets for the script: `Accelerator()` reads its settings from them. Pure.

use super::settings::Settings;
use crate::base::env_vars;
use crate::config::accelerate::{MISSPELT_BACKEND, Paradigm, SettingValue};
use crate::inventory::GpusAndDriver;

/// A variable of the workers.
pub(super) struct WorkerVariable {
    pub(super) name: String,
    pub(super) value: String,
    /// The setting that gives the value; `None`: accelerate sets it by itself.
    pub(super) setting: Option<String>,
}

impl WorkerVariable {
    /// Returns the value of `--env`.
    pub(super) fn assignment(&self) -> String {
        format!("{}={}", self.name, self.value)
    }
}

/// What is known beside the settings.
pub(super) struct LaunchFacts<'a> {
    pub(super) paradigm: Paradigm,
    /// Whether the workers use CPUs.
    pub(super) uses_cpu: bool,
    /// Variable that makes devices visible.
    pub(super) visible_devices: &'a str,
    /// OMP_NUM_THREADS of a worker.
    pub(super) threads: u64,
    /// Names of DeepSpeed's settings that the configuration file gives.
    pub(super) deepspeed_fields: String,
    /// PYTHONPATH with the working directory.
    pub(super) python_path: String,
    /// Whether the script uses Megatron-LM.
    pub(super) uses_megatron: bool,
    /// Whether the script uses several kinds of parallelism.
    pub(super) uses_parallelism: bool,
}

/// Returns the variables of every worker.
pub(super) fn variables(settings: &Settings, facts: &LaunchFacts<'_>) -> Vec<WorkerVariable> {
    let mut env = Environment { settings, variables: Vec::new() };
    if settings.is_on("debug") {
        env.set_by("debug", "ACCELERATE_DEBUG_MODE", "true");
    }
    if let Some(devices) = settings.text("gpu_ids").filter(|devices| devices != "all") {
        env.set_by("gpu_ids", facts.visible_devices, devices);
    }
    let precision = settings.text("mixed_precision").unwrap_or_else(|| "no".to_owned());
    env.set_by("mixed_precision", "ACCELERATE_MIXED_PRECISION", precision.to_lowercase());
    if precision.eq_ignore_ascii_case("fp8") {
        env.add_fp8();
    }
    match facts.paradigm {
        Paradigm::DeepSpeed => env.add_deepspeed(facts),
        Paradigm::Simple => {
            env.add_simple(facts);
            env.add_dynamo(facts);
        }
        Paradigm::MultiDevice | Paradigm::Megatron => env.add_dynamo(facts),
        Paradigm::Fsdp => {
            env.add_dynamo(facts);
            env.add_fsdp();
        }
    }
    if facts.uses_megatron && !matches!(facts.paradigm, Paradigm::Simple | Paradigm::DeepSpeed) {
        env.add_megatron();
    }
    if settings.is_on("enable_cpu_affinity") {
        env.set_by("enable_cpu_affinity", "ACCELERATE_CPU_AFFINITY", "1");
    }
    if facts.uses_parallelism && facts.paradigm != Paradigm::Simple {
        env.add_parallelism();
    }
    env.variables
}

/// GPUs that NCCL cannot connect directly with a driver older than this one.
const SLOW_LINK_GPUS: &str = "RTX 40";
const SLOW_LINK_DRIVER: [u32; 3] = [550, 40, 7];

/// Returns the variables that keep NCCL from direct connections, which GPUs of the RTX 4000 series do not
/// have. Variables of the environment stay.
pub(super) fn slow_links(
    gpus: &GpusAndDriver,
    is_given: impl Fn(&str) -> bool,
) -> Vec<WorkerVariable> {
    let version =
        gpus.driver.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>();
    let is_concerned = gpus.names.iter().any(|name| name.contains(SLOW_LINK_GPUS));
    if gpus.names.len() < 2 || !is_concerned || SLOW_LINK_DRIVER.as_slice() <= version.as_slice() {
        return Vec::new();
    }
    let names = [env_vars::NCCL_P2P_DISABLE, env_vars::NCCL_IB_DISABLE];
    let unset = names.into_iter().filter(|name| !is_given(name));
    let variable =
        |name: &str| WorkerVariable { name: name.to_owned(), value: "1".to_owned(), setting: None };
    unset.map(variable).collect()
}

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Letters {
    /// As Python shows it: `True`.
    Python,
    /// In lower case: `true`.
    Lower,
}

struct Environment<'a> {
    settings: &'a Settings,
    variables: Vec<WorkerVariable>,
}

impl Environment<'_> {
    /// Sets a variable that follows from no single setting.
    fn set(&mut self, name: &str, value: impl Into<String>) {
        let (name, value) = (name.to_owned(), value.into());
        self.variables.push(WorkerVariable { name, value, setting: None });
    }

    /// Sets a variable that follows from a setting.
    fn set_by(&mut self, setting: &str, name: &str, value: impl Into<String>) {
        let (name, value) = (name.to_owned(), value.into());
        self.variables.push(WorkerVariable { name, value, setting: Some(setting.to_owned()) });
    }

    /// Sets a variable to the value of a setting, `None` if it has none.
    fn set_from(&mut self, name: &str, setting: &str, letters: Letters) {
        let shown = self.settings.get(setting).show();
        let value = if letters == Letters::Lower { shown.to_lowercase() } else { shown };
        self.set_by(setting, name, value);
    }

    /// Sets a variable if the setting has a value.
    fn set_if_given(&mut self, name: &str, setting: &str, letters: Letters) {
        if !self.settings.get(setting).is_none() {
            self.set_from(name, setting, letters);
        }
    }

    /// Sets the variable that has the name of a setting, in capitals after `prefix`, if the setting has a
    /// value.
    fn set_namesake(&mut self, prefix: &str, setting: &str, letters: Letters) {
        self.set_if_given(&format!("{prefix}{}", setting.to_uppercase()), setting, letters);
    }

    fn add_simple(&mut self, facts: &LaunchFacts<'_>) {
        self.set_by("cpu", "ACCELERATE_USE_CPU", if facts.uses_cpu { "True" } else { "False" });
        if facts.uses_cpu {
            self.set("KMP_AFFINITY", "granularity=fine,compact,1,0");
            self.set("KMP_BLOCKTIME", "1");
        }
    }

    fn add_dynamo(&mut self, facts: &LaunchFacts<'_>) {
        let backend = self.settings.text("dynamo_backend").unwrap_or_else(|| "no".to_owned());
        let backend = backend.to_lowercase();
        let backend = if backend == MISSPELT_BACKEND { "torchxla_trace_once" } else { &backend };
        self.set_by("dynamo_backend", "ACCELERATE_DYNAMO_BACKEND", backend.to_uppercase());
        for name in ["mode", "use_fullgraph", "use_dynamic", "use_regional_compilation"] {
            self.set_namesake("ACCELERATE_", &format!("dynamo_{name}"), Letters::Python);
        }
        let threads = facts.threads.to_string();
        self.set_by("num_cpu_threads_per_process", "OMP_NUM_THREADS", threads);
    }

    fn add_fsdp(&mut self) {
        self.set_by("use_fsdp", "ACCELERATE_USE_FSDP", "true");
        for name in [
            "version",
            "sharding_strategy",
            "min_num_params",
            "auto_wrap_policy",
            "backward_prefetch",
            "state_dict_type",
            "ignored_modules",
        ] {
            self.set_namesake("", &format!("fsdp_{name}"), Letters::Python);
        }
        for name in [
            "reshard_after_forward",
            "offload_params",
            "forward_prefetch",
            "use_orig_params",
            "cpu_ram_efficient_loading",
            "sync_module_states",
            "activation_checkpointing",
            "activation_checkpointing_offload",
        ] {
            self.set_namesake("", &format!("fsdp_{name}"), Letters::Lower);
        }
        let classes = "fsdp_transformer_layer_cls_to_wrap";
        self.set_if_given("FSDP_TRANSFORMER_CLS_TO_WRAP", classes, Letters::Python);
    }

    fn add_megatron(&mut self) {
        self.set_by("use_megatron_lm", "ACCELERATE_USE_MEGATRON_LM", "true");
        for setting in self.settings.names_with_prefix("megatron_lm_") {
            self.set_namesake("", setting, Letters::Python);
        }
    }

    fn add_deepspeed(&mut self, facts: &LaunchFacts<'_>) {
        self.set("PYTHONPATH", facts.python_path.clone());
        self.set("ACCELERATE_CONFIG_DS_FIELDS", facts.deepspeed_fields.to_lowercase());
        self.set_by("use_deepspeed", "ACCELERATE_USE_DEEPSPEED", "true");
        for (name, setting, letters) in [
            ("ACCELERATE_DEEPSPEED_ZERO_STAGE", "zero_stage", Letters::Python),
            (
                "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
                "gradient_accumulation_steps",
                Letters::Python,
            ),
            ("ACCELERATE_GRADIENT_CLIPPING", "gradient_clipping", Letters::Lower),
            (
                "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
                "offload_optimizer_device",
                Letters::Lower,
            ),
            ("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", "offload_param_device", Letters::Lower),
            ("ACCELERATE_DEEPSPEED_ZERO3_INIT", "zero3_init_flag", Letters::Lower),
            (
                "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
                "zero3_save_16bit_model",
                Letters::Lower,
            ),
            ("ACCELERATE_DEEPSPEED_CONFIG_FILE", "deepspeed_config_file", Letters::Python),
            (
                "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES",
                "deepspeed_moe_layer_cls_names",
                Letters::Python,
            ),
        ] {
            self.set_if_given(name, setting, letters);
        }
    }

    fn add_fp8(&mut self) {
        for setting in self.settings.names_with_prefix("fp8_") {
            let SettingValue::Bools(all) = self.settings.get(setting) else {
                self.set_namesake("ACCELERATE_", setting, Letters::Python);
                continue;
            };
            for (name, on) in ["FPROP", "DGRAD", "WGRAD"].into_iter().zip(all) {
                let shown = SettingValue::Bool(*on).show();
                self.set_by(setting, &format!("ACCELERATE_FP8_OVERRIDE_{name}"), shown);
            }
        }
    }

    fn add_parallelism(&mut self) {
        self.set_by("use_parallelism_config", "ACCELERATE_USE_PARALLELISM_CONFIG", "true");
        let mut names = vec![
            "dp_replicate_size",
            "dp_shard_size",
            "tp_size",
            "cp_size",
            "cp_backend",
            "sp_size",
            "sp_backend",
        ];
        let is_divided = |name| self.settings.whole(name).is_some_and(|size| 1 < size);
        if is_divided("parallelism_config_cp_size") {
            names.push("cp_comm_strategy");
        }
        if is_divided("parallelism_config_sp_size") {
            names.extend(["sp_seq_length", "sp_seq_length_is_variable", "sp_attn_implementation"]);
        }
        for name in names {
            let variable = format!("PARALLELISM_CONFIG_{}", name.to_uppercase());
            self.set_from(&variable, &format!("parallelism_config_{name}"), Letters::Python);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nccl_variables_are_set_for_gpus_without_direct_links() {
        let check = |names: &[&str], driver: &str, given: &str, expect: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let gpus = GpusAndDriver { names, driver: driver.to_owned() };
            let found = slow_links(&gpus, |name| name == given);
            let found: Vec<&str> = found.iter().map(|variable| variable.name.as_str()).collect();
            assert_eq!(found, expect, "{gpus:?}");
        };
        let (both, two) = (["NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"], ["NVIDIA GeForce RTX 4090"; 2]);
        check(&two, "535.183.01", "", &both);
        check(&two, "550.40", "", &both);
        check(&two, "535.183.01", "NCCL_IB_DISABLE", &both[..1]);
        check(&two, "550.40.07", "", &[]);
        check(&two, "560.35.03", "", &[]);
        check(&two[..1], "535.183.01", "", &[]);
        check(&["NVIDIA H200"; 8], "535.183.01", "", &[]);
    }
}
