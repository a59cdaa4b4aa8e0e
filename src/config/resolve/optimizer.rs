//! The optimizer.

use super::resolver::Resolver;
use super::values::ValueOrigin;
use crate::base::Diagnostic;
use crate::config::check::find_optimizer;
use crate::config::codes::CONTRADICTION;
use crate::config::keys::OptimizerKind;
use crate::config::training::{DecayTarget, OptimizerConfig, UpdateRule};
use crate::config::tree::ConfigValue;

const PARAMS: &str = "optimizer.params";
/// Weight decay of `torch.optim.AdamW`; that of every other optimizer is 0.
const TORCH_ADAMW_DECAY: f64 = 0.01;
/// Why `torch_adam` changes nothing, unless it changes the default of weight decay.
const TORCH_ARITHMETIC: &str = "the arithmetic is that of torch with and without it";

impl Resolver<'_> {
    /// The optimizer of the file; `None` if it has none, or none that exists.
    pub(super) fn optimizer(&mut self) -> Option<OptimizerConfig> {
        let Some(ConfigValue::Text(name)) = self.settings.given("optimizer.type") else {
            return None;
        };
        let spec = find_optimizer(name)?;
        let kind = spec.kind?;
        self.note("optimizer.type", ConfigValue::Text(spec.name.to_owned()), ValueOrigin::File);
        let kind = match kind {
            OptimizerKind::Adam if self.settings.is_on("optimizer.params.torch_adam") => {
                OptimizerKind::TorchAdam
            }
            kind => kind,
        };
        let is_adamw = spec.name == "AdamW";
        match kind {
            OptimizerKind::Adam | OptimizerKind::TorchAdam => Some(self.adam(kind, is_adamw)),
            OptimizerKind::Sgd => Some(self.sgd()),
            OptimizerKind::Lion => {
                let mut params = self.section_with(kind.params(), PARAMS);
                let learning_rate = params.number("lr");
                let rule = UpdateRule::Lion { betas: params.pair("betas") };
                let weight_decay = params.number("weight_decay");
                Some(OptimizerConfig { learning_rate, weight_decay, rule })
            }
        }
    }

    fn adam(&mut self, kind: OptimizerKind, is_adamw: bool) -> OptimizerConfig {
        let mut params = self.section_with(kind.params(), PARAMS);
        let is_torch = kind == OptimizerKind::TorchAdam;
        let learning_rate = params.number("lr");
        let betas = params.pair("betas");
        let epsilon = params.number("eps");
        // `AdamW` decays the parameter whatever the switch says.
        let decays_parameter = params.flag("adam_w_mode") || is_adamw;
        let weight_decay = if is_torch {
            let default = if decays_parameter { TORCH_ADAMW_DECAY } else { 0.0 };
            let is_auto = params.resolver.is_auto("optimizer.params.weight_decay");
            let default = if is_auto { 0.0 } else { default };
            let derived = params.resolver.inputs.weight_decay.unwrap_or(default);
            params.number_or("weight_decay", derived, "the default of torch's optimizer")
        } else {
            params.number("weight_decay")
        };
        let bias_correction = is_torch || params.flag("bias_correction");
        params.flag("torch_adam");
        let is_decay_given =
            params.resolver.settings.get("optimizer.params.weight_decay").is_some();
        if is_torch && (is_decay_given || weight_decay == 0.0) {
            params.resolver.idle("optimizer.params.torch_adam", TORCH_ARITHMETIC);
        }
        let rule = UpdateRule::Adam {
            betas,
            epsilon,
            decay: if decays_parameter { DecayTarget::Parameter } else { DecayTarget::Gradient },
            bias_correction,
        };
        OptimizerConfig { learning_rate, weight_decay, rule }
    }

    fn sgd(&mut self) -> OptimizerConfig {
        let mut params = self.section_with(OptimizerKind::Sgd.params(), PARAMS);
        let learning_rate = params.number("lr");
        let momentum = params.number("momentum");
        let dampening = params.number("dampening");
        let weight_decay = params.number("weight_decay");
        let nesterov = params.flag("nesterov");
        if nesterov
            && (momentum <= 0.0 || dampening != 0.0)
            && let Some(span) = self.key_span("optimizer.params.nesterov")
        {
            let message = "`nesterov` needs a `momentum` above 0 and a `dampening` of 0";
            let problem = Diagnostic::error(CONTRADICTION, span, message);
            self.problems
                .push(problem.label("torch also refuses it").help("add `\"momentum\": 0.9`"));
        }
        let rule = UpdateRule::Sgd { momentum, dampening, nesterov };
        OptimizerConfig { learning_rate, weight_decay, rule }
    }
}
