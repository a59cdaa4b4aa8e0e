//! [`Kernel`]: the kernels by name.

use crate::cuda::kernels::file::KernelFile;

/// Defines the enumeration of the kernels: variant, function in the source, file, documentation.
macro_rules! kernels {
    ($($variant:ident = $name:literal in $file:ident: $doc:literal;)*) => {
        /// A kernel. Shapes, types and the order of sums are in the comment above its source.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kernel {
            $(#[doc = $doc] $variant,)*
        }

        impl Kernel {
            /// All kernels, by file, in the order of the source.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Returns the name of the function in the source.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns the file with the source.
            pub fn file(self) -> KernelFile {
                match self {
                    $(Self::$variant => KernelFile::$file,)*
                }
            }
        }
    };
}

kernels! {
    ActivationForward = "activation_forward" in Activation: "Function of every element.";
    ActivationBackward = "activation_backward" in Activation: "Gradient times the derivative.";
    BiasActivation = "bias_activation" in Activation: "Adds a bias to rows, and applies the function.";
    Classifier = "classifier" in Classifier: "Losses of the tokens, and gradients of their logits.";
    NarrowAll = "narrow_all" in Convert: "Rounds f32 to the element type.";
    WidenAll = "widen_all" in Convert: "Widens elements to f32.";
    Embed = "embed" in Embedding: "Embeddings of tokens and positions, added.";
    EmbedBackwardPositions = "embed_backward_positions" in Embedding: "Gradient of the positions.";
    EmbedBackwardTokens = "embed_backward_tokens" in Embedding: "Adds to the gradient of the tokens.";
    AttentionForward = "attention_forward" in Attention: "Causal attention.";
    AttentionDelta = "attention_delta" in Attention: "Products of outputs and their gradients.";
    AttentionBackwardKv = "attention_backward_kv" in Attention: "Gradients of keys and values.";
    AttentionBackwardQ = "attention_backward_q" in Attention: "Gradients of queries.";
    BiasBackward = "bias_backward" in Fold: "Sums of columns over parts of the rows.";
    Fold = "fold" in Fold: "Sums of parts.";
    AddOlder = "add_older" in Fold: "Adds the sum of earlier micro-batches.";
    DivideAll = "divide_all" in Fold: "Divides sums by their number.";
    NormForward = "norm_forward" in Norm: "Layer norm.";
    ResidualNormForward = "residual_norm_forward" in Norm: "Adds to the residual stream; layer norm.";
    NormBackward = "norm_backward" in Norm: "Gradients of a layer norm, in parts for its parameters.";
    BlockSquares = "block_squares" in Optimizer: "Sums of the squares of a gradient, by blocks of the norm.";
    FoldSquares = "fold_squares" in Optimizer: "Sums of 32 sums of squares each.";
    DecideStep = "decide_step" in Optimizer: "Norm and clipping of the gradient; whether it is finite.";
    PrepareAdam = "prepare_adam" in Optimizer: "Numbers of a step of Adam.";
    Adam = "adam" in Optimizer: "Adam and AdamW.";
    Sgd = "sgd" in Optimizer: "Gradient descent, with momentum or without.";
    Lion = "lion" in Optimizer: "Lion.";
    UpdateLossScale = "update_loss_scale" in Optimizer: "Scale of the losses of the next step.";
    CausalSoftmax = "causal_softmax" in Softmax: "Probabilities of attention, from scores.";
    CausalSoftmaxBackward = "causal_softmax_backward" in Softmax: "Gradients of scores.";
}

impl KernelFile {
    /// Returns the kernels of the file, in the order of its source.
    pub fn kernels(self) -> impl Iterator<Item = Kernel> {
        Kernel::ALL.into_iter().filter(move |kernel| kernel.file() == self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the kernels that a source defines, in their order.
    fn defined(text: &str) -> Vec<&str> {
        let definitions = text.split("\nKERNEL void ").skip(1);
        let name = |definition: &'_ str| {
            let bounds = definition.strip_prefix("LAUNCH_BOUNDS(");
            let rest = bounds.map_or(0, |bounds| definition.len() - bounds.len());
            let start = if rest == 0 { 0 } else { definition.find(')').expect("it is closed") + 1 };
            let end = definition[start..].find('(').expect("a kernel has parameters");
            start..start + end
        };
        definitions.map(|definition| definition[name(definition)].trim()).collect()
    }

    #[test]
    fn files_define_the_kernels_of_the_registry() {
        for file in KernelFile::ALL {
            let listed: Vec<_> = file.kernels().map(Kernel::name).collect();
            assert_eq!(defined(file.text()), listed, "{}", file.name());
        }
    }
}
