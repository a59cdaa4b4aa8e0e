//! [`DeviceAttention`]: causal attention on a device, in one of two ways.

use crate::cuda::device::{DeviceAddress, DeviceError};
use crate::cuda::kernels::{AttentionShape, ElementType, HalfType, HeadWidth};
use crate::train::nn::device::blocks::ShapeBlocks;
use crate::train::nn::device::flash_attention::{AttentionGradients, FlashAttention};
use crate::train::nn::device::operations::Operations;
use crate::train::nn::device::product_attention::{ProductAttention, SequenceShape};
use crate::train::nn::device::rows::DeviceRows;
use crate::train::nn::gpt::{AttentionChoice, GptConfig};

/// How a model computes attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttentionMethod {
    /// By kernels for heads of this width.
    Flash(HeadWidth, HalfType),
    /// By matrix products, for heads of so many features.
    Products(u32),
}

/// Attention layer, for batches of one shape.
pub(super) enum DeviceAttention {
    Flash(FlashAttention),
    Products(ProductAttention),
}

impl AttentionMethod {
    /// Decides how a model that computes in a type computes attention.
    ///
    /// # Errors
    /// If it cannot.
    pub(crate) fn of(
        config: &GptConfig,
        element: ElementType,
        choice: AttentionChoice,
    ) -> Result<Self, DeviceError> {
        let (heads, width) = (config.heads, config.width);
        let features = width / heads;
        let head_width =
            HeadWidth::ALL.into_iter().find(|width| width.features() as usize == features);
        let of_model = format!("{heads} heads in a width of {width} have {features}");
        match (choice, element, head_width) {
            (
                AttentionChoice::Auto | AttentionChoice::Flash,
                ElementType::Half(half),
                Some(width),
            ) => {
                return Ok(Self::Flash(width, half));
            }
            (AttentionChoice::Flash, ElementType::F32, _) => {
                let problem = "flash attention computes in 16 bits".to_owned();
                return Err(DeviceError::Unsupported { problem });
            }
            (AttentionChoice::Flash, _, None) => {
                let problem =
                    format!("flash attention needs heads of 64 or 128 features; {of_model}");
                return Err(DeviceError::Unsupported { problem });
            }
            (AttentionChoice::Auto | AttentionChoice::Products, ..) => {}
        }
        let pack = element.pack();
        if features.is_multiple_of(pack as usize) {
            return Ok(Self::Products(features as u32));
        }
        let bits = 8 * element.bytes();
        let problem = format!(
            "attention on a GPU in {bits} bits needs heads of a multiple of {pack} features; {of_model}"
        );
        Err(DeviceError::Unsupported { problem })
    }

    /// Whether the backward pass needs a number for each head of each token, and the forward pass writes one.
    pub(crate) fn has_numbers_of_heads(self) -> bool {
        matches!(self, Self::Flash(..))
    }
}

impl DeviceAttention {
    /// Takes the memory for sequences.
    pub(super) fn new(
        method: AttentionMethod,
        blocks: &mut ShapeBlocks<'_>,
        shape: SequenceShape,
    ) -> Result<Self, DeviceError> {
        let SequenceShape { batch, length, heads } = shape;
        Ok(match method {
            AttentionMethod::Flash(width, half) => {
                let shape = AttentionShape { batch, length, heads, width };
                Self::Flash(FlashAttention { shape, half })
            }
            AttentionMethod::Products(features) => {
                Self::Products(ProductAttention::new(blocks, shape, features)?)
            }
        })
    }

    /// Computes the output from queries, keys and values.
    pub(super) fn forward(
        &self,
        on: Operations<'_>,
        qkv: &DeviceRows,
        out: &DeviceRows,
        lse: DeviceAddress,
    ) -> Result<(), DeviceError> {
        match self {
            Self::Flash(flash) => flash.forward(on, qkv, out, lse),
            Self::Products(products) => products.forward(on, qkv, out),
        }
    }

    /// Computes the gradients of queries, keys and values; for kernels, `delta` has room for a number for each head of each
    /// token.
    pub(super) fn backward(
        &self,
        on: Operations<'_>,
        inputs: AttentionGradients<'_>,
        delta: DeviceAddress,
        dqkv: &DeviceRows,
    ) -> Result<(), DeviceError> {
        match self {
            Self::Flash(flash) => flash.backward(on, inputs, delta, dqkv),
            Self::Products(products) => products.backward(on, inputs.qkv, inputs.dout, dqkv),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::nn::gpt::GptArchitecture;

    const BF16: ElementType = ElementType::Half(HalfType::Bf16);

    #[track_caller]
    fn check(
        (heads, width): (usize, usize),
        element: ElementType,
        choice: AttentionChoice,
        expected: Result<AttentionMethod, &str>,
    ) {
        let (vocabulary, block, layers) = (9, 8, 1);
        let architecture = GptArchitecture::Plain;
        let config = GptConfig { architecture, vocabulary, block, layers, heads, width };
        let found = AttentionMethod::of(&config, element, choice);
        let found = found.map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn kernels_compute_attention_where_there_are_some() {
        let flash = AttentionMethod::Flash(HeadWidth::W64, HalfType::Bf16);
        check((2, 128), BF16, AttentionChoice::Auto, Ok(flash));
        check((2, 128), BF16, AttentionChoice::Flash, Ok(flash));
        check((2, 128), BF16, AttentionChoice::Products, Ok(AttentionMethod::Products(64)));
        check((4, 128), BF16, AttentionChoice::Auto, Ok(AttentionMethod::Products(32)));
        check((2, 128), ElementType::F32, AttentionChoice::Auto, Ok(AttentionMethod::Products(64)));
    }

    #[test]
    fn attention_that_a_device_does_not_have_is_refused() {
        let why = "flash attention computes in 16 bits";
        check((2, 128), ElementType::F32, AttentionChoice::Flash, Err(why));
        let why = "flash attention needs heads of 64 or 128 features; 4 heads in a width of 128 \
                   have 32";
        check((4, 128), BF16, AttentionChoice::Flash, Err(why));
        let why = "attention on a GPU in 16 bits needs heads of a multiple of 8 features; 3 heads in \
                   a width of 36 have 12";
        check((3, 36), BF16, AttentionChoice::Auto, Err(why));
        check((3, 36), ElementType::F32, AttentionChoice::Auto, Ok(AttentionMethod::Products(12)));
    }
}
