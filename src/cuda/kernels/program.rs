//! [`KernelProgram`]: what is compiled together.

use crate::cuda::kernels::file::{DEVICE_SOURCE, ELEMENT_SOURCE, KernelFile};

/// Type of activations and weights in memory. Sums and statistics are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// 32 bits.
    F32,
    /// 16 bits.
    Half(HalfType),
}

/// Type of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HalfType {
    /// bfloat16.
    Bf16,
    /// IEEE binary16.
    F16,
}

/// Function of single elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// GELU as GPT-2 approximates it.
    GeluTanh,
    /// GELU with the normal distribution.
    Gelu,
    /// The positive part.
    Relu,
    /// No function.
    Identity,
}

/// Number of features of an attention head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadWidth {
    /// 64 features.
    W64,
    /// 128 features.
    W128,
}

/// A source file with its constants: the unit of compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelProgram {
    /// A function of single elements.
    Activation(Activation, ElementType),
    /// Softmax, loss and the gradient of the logits.
    Classifier(ElementType),
    /// Conversions to and from f32.
    Convert(HalfType),
    /// Embeddings.
    Embedding(ElementType),
    /// Causal attention.
    Attention(HeadWidth, HalfType),
    /// Sums of rows.
    Fold(ElementType),
    /// Layer norm.
    Norm(ElementType),
    /// Norm of the gradient and optimizers, for models that compute in this type.
    Optimizer(ElementType),
    /// Causal softmax of the scores of attention.
    Softmax(ElementType),
}

impl HalfType {
    /// All types.
    pub const ALL: [Self; 2] = [Self::Bf16, Self::F16];
}

impl ElementType {
    /// All types.
    pub const ALL: [Self; 3] = [Self::F32, Self::Half(HalfType::Bf16), Self::Half(HalfType::F16)];

    /// Returns the number of elements of 16 bytes, which a thread loads at once: widths are multiples of it.
    pub fn pack(self) -> u32 {
        match self {
            Self::F32 => 4,
            Self::Half(_) => 8,
        }
    }

    /// Returns the number of bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Half(_) => 2,
        }
    }

    /// Returns the bytes of values as elements, rounded to nearest, ties to even.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => bytemuck::cast_slice(values).to_vec(),
            Self::Half(HalfType::Bf16) => {
                let halves = values.iter().map(|value| half::bf16::from_f32(*value));
                halves.flat_map(half::bf16::to_ne_bytes).collect()
            }
            Self::Half(HalfType::F16) => {
                let halves = values.iter().map(|value| half::f16::from_f32(*value));
                halves.flat_map(half::f16::to_ne_bytes).collect()
            }
        }
    }

    fn name_in_c(self) -> &'static str {
        match self {
            Self::F32 => "float",
            Self::Half(HalfType::Bf16) => "bf16",
            Self::Half(HalfType::F16) => "f16",
        }
    }
}

impl Activation {
    /// All functions.
    pub const ALL: [Self; 4] = [Self::GeluTanh, Self::Gelu, Self::Relu, Self::Identity];

    fn name_in_c(self) -> &'static str {
        match self {
            Self::GeluTanh => "gelu_tanh",
            Self::Gelu => "gelu",
            Self::Relu => "relu",
            Self::Identity => "identity",
        }
    }
}

impl HeadWidth {
    /// All widths.
    pub const ALL: [Self; 2] = [Self::W64, Self::W128];

    /// Returns the number of features.
    pub fn features(self) -> u32 {
        match self {
            Self::W64 => 64,
            Self::W128 => 128,
        }
    }
}

impl KernelProgram {
    /// Returns all programs.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for element in ElementType::ALL {
            all.extend(Activation::ALL.map(|function| Self::Activation(function, element)));
            all.extend([
                Self::Classifier(element),
                Self::Embedding(element),
                Self::Fold(element),
                Self::Norm(element),
                Self::Optimizer(element),
                Self::Softmax(element),
            ]);
        }
        for half in HalfType::ALL {
            all.extend(HeadWidth::ALL.map(|width| Self::Attention(width, half)));
            all.push(Self::Convert(half));
        }
        all
    }

    /// Returns the source file.
    pub fn file(self) -> KernelFile {
        match self {
            Self::Activation(..) => KernelFile::Activation,
            Self::Classifier(_) => KernelFile::Classifier,
            Self::Convert(_) => KernelFile::Convert,
            Self::Embedding(_) => KernelFile::Embedding,
            Self::Attention(..) => KernelFile::Attention,
            Self::Fold(_) => KernelFile::Fold,
            Self::Norm(_) => KernelFile::Norm,
            Self::Optimizer(_) => KernelFile::Optimizer,
            Self::Softmax(_) => KernelFile::Softmax,
        }
    }

    /// Returns the constants of the source: names and values of macros.
    pub fn defines(self) -> Vec<(&'static str, String)> {
        let (element, more) = match self {
            Self::Activation(function, element) => {
                (element, Some(("ACTIVATION", function.name_in_c().to_owned())))
            }
            Self::Attention(width, half) => {
                (ElementType::Half(half), Some(("HEAD", width.features().to_string())))
            }
            Self::Convert(half) => (ElementType::Half(half), None),
            Self::Classifier(element)
            | Self::Embedding(element)
            | Self::Fold(element)
            | Self::Norm(element)
            | Self::Optimizer(element)
            | Self::Softmax(element) => (element, None),
        };
        [("ELEMENT", element.name_in_c().to_owned())].into_iter().chain(more).collect()
    }

    /// Returns a name, such as `attention_bf16_64`.
    pub fn name(self) -> String {
        let stem = self.file().name().trim_end_matches(".cu");
        let values = self.defines().into_iter().map(|(_, value)| value);
        std::iter::once(stem.to_owned()).chain(values).collect::<Vec<_>>().join("_")
    }

    /// Returns the options of the compiler that define the constants, such as `-DELEMENT=bf16`.
    pub fn options(self) -> Vec<String> {
        let defines = self.defines().into_iter();
        defines.map(|(name, value)| format!("-D{name}={value}")).collect()
    }

    /// Returns the complete CUDA source, to be compiled with [`options`](Self::options).
    pub fn source(self) -> String {
        [DEVICE_SOURCE, ELEMENT_SOURCE, self.file().text()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_programs_are_unique() {
        let mut names: Vec<_> = KernelProgram::all().into_iter().map(KernelProgram::name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.contains(&"attention_f16_128".to_owned()));
        assert!(names.contains(&"activation_float_relu".to_owned()));
    }

    #[test]
    fn every_file_has_a_program() {
        for file in KernelFile::ALL {
            assert!(KernelProgram::all().iter().any(|program| program.file() == file));
        }
    }

    #[test]
    fn constants_are_options_of_the_compiler() {
        let attention = KernelProgram::Attention(HeadWidth::W64, HalfType::Bf16);
        assert_eq!(attention.options(), ["-DELEMENT=bf16", "-DHEAD=64"]);
    }
}
