//! The checks, by name.

use crate::runtime::kernel_checks::runner::{CheckError, KernelRunner};
use crate::runtime::kernel_checks::{
    activation, attention, embedding, fold, norm, optimizer, softmax,
};

/// A check of kernels.
#[derive(Clone, Copy, Debug)]
pub struct KernelCheck {
    /// Name of the check, in one word.
    pub name: &'static str,
    check: fn(&mut dyn KernelRunner) -> Result<(), CheckError>,
}

impl KernelCheck {
    /// Runs the check.
    ///
    /// # Errors
    /// What the device does wrong first.
    pub fn run(self, runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
        (self.check)(runner)
    }
}

/// Defines the list of the checks.
macro_rules! checks {
    ($($name:literal: $file:ident::$function:ident,)*) => {
        /// All checks of kernels. Together they run every kernel.
        pub const KERNEL_CHECKS: &[KernelCheck] =
            &[$(KernelCheck { name: $name, check: $file::$function }),*];
    };
}

checks! {
    "activations": activation::check_activations,
    "huge_numbers": activation::check_huge_numbers,
    "bias": activation::check_bias,
    "classifier": activation::check_classifier,
    "conversions": embedding::check_conversions,
    "embeddings": embedding::check_embeddings,
    "position_gradients": embedding::check_position_gradients,
    "token_gradients": embedding::check_token_gradients,
    "attention": attention::check_attention,
    "attention_lengths": attention::check_lengths,
    "softmax": softmax::check_softmax,
    "norms": norm::check_norms,
    "fused_norms": norm::check_fused_norms,
    "norm_gradients": norm::check_norm_gradients,
    "folds": fold::check_folds,
    "bias_gradients": fold::check_bias_gradients,
    "micro_batches": fold::check_micro_batches,
    "block_sums": optimizer::check_block_sums,
    "clipping": optimizer::check_clipping,
    "step_decisions": optimizer::check_decisions,
    "skipped_steps": optimizer::check_skipped_steps,
    "optimizers": optimizer::check_optimizers,
    "loss_scale": optimizer::check_loss_scale,
}
