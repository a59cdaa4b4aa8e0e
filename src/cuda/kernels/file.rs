//! [`KernelFile`]: the source files of the kernels.

/// What a device does in one instruction.
pub const DEVICE_SOURCE: &str = include_str!("device.cuh");
/// Conversions, loads and stores of elements, and sums over a warp.
pub const ELEMENT_SOURCE: &str = include_str!("element.cuh");

/// A source file with kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelFile {
    /// Functions of single elements.
    Activation,
    /// Softmax, loss and the gradient of the logits.
    Classifier,
    /// Conversions between element types.
    Convert,
    /// Embeddings of tokens and positions.
    Embedding,
    /// Causal attention.
    Attention,
    /// Sums of rows.
    Fold,
    /// Layer norm.
    Norm,
    /// Norm of the gradient, optimizers, loss scale.
    Optimizer,
    /// Softmax of the scores of attention.
    Softmax,
}

impl KernelFile {
    /// All files.
    pub const ALL: [Self; 9] = [
        Self::Activation,
        Self::Classifier,
        Self::Convert,
        Self::Embedding,
        Self::Attention,
        Self::Fold,
        Self::Norm,
        Self::Optimizer,
        Self::Softmax,
    ];

    /// Returns the name of the file, such as `norm.cu`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Activation => "activation.cu",
            Self::Classifier => "classifier.cu",
            Self::Convert => "convert.cu",
            Self::Embedding => "embedding.cu",
            Self::Attention => "attention.cu",
            Self::Fold => "fold.cu",
            Self::Norm => "norm.cu",
            Self::Optimizer => "optimizer.cu",
            Self::Softmax => "softmax.cu",
        }
    }

    /// Returns the text of the file, without [`DEVICE_SOURCE`] and [`ELEMENT_SOURCE`], which come before it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Activation => include_str!("activation.cu"),
            Self::Classifier => include_str!("classifier.cu"),
            Self::Convert => include_str!("convert.cu"),
            Self::Embedding => include_str!("embedding.cu"),
            Self::Attention => include_str!("attention.cu"),
            Self::Fold => include_str!("fold.cu"),
            Self::Norm => include_str!("norm.cu"),
            Self::Optimizer => include_str!("optimizer.cu"),
            Self::Softmax => include_str!("softmax.cu"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_use_no_atomics_and_no_headers() {
        let files = KernelFile::ALL.map(KernelFile::text);
        for text in files.into_iter().chain([DEVICE_SOURCE, ELEMENT_SOURCE]) {
            let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
            let code = code.collect::<Vec<_>>().join("\n");
            assert!(
                !["atom", " red.", "#include"].iter().any(|word| code.contains(word)),
                "{code}"
            );
        }
    }
}
