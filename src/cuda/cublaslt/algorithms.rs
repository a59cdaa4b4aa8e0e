//! [`LtAlgorithms`]: the algorithms of the products of a rank, the same on all ranks.
//!
//! Another algorithm adds in another order, so its results have other bits. Rank 0 chooses the algorithm of a product
//! when it first needs it, and sends it to the others, which need it at the same place of their program. A rank with
//! another GPU or another version of the library cannot use it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use crate::cuda::cublaslt::CublasLtError;
use crate::cuda::cublaslt::ffi_plan::{LtHandle, LtPlan};
use crate::cuda::cublaslt::product::LtProduct;

/// Algorithms that are timed for a product.
const CANDIDATES_MAX: usize = 8;
/// Bytes in which a rank names its GPU and its library, filled with zeros.
const IDENTITY_BYTES: usize = 192;
/// Bytes of the message about a product: whether there is an algorithm, the product's digest, the algorithm.
const MESSAGE_BYTES: usize = 1 + 8 + 64;

/// How the algorithm of a product is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlgorithmChoice {
    /// The first one that the library proposes: a function of the product, the kind of GPU and the version of the
    /// library.
    First,
    /// The fastest of those that it proposes, as it is measured.
    Fastest,
}

/// Sends bytes of rank 0 to all ranks.
pub trait ShareChoices: Send + Sync {
    /// Returns the rank of this process.
    fn rank(&self) -> usize;

    /// Replaces the bytes by those of rank 0. Every rank calls it, with equally many bytes.
    ///
    /// # Errors
    /// Why the ranks cannot exchange anything.
    fn share(&self, bytes: &mut [u8]) -> Result<(), String>;
}

/// Plans of the products that were needed so far.
pub struct LtAlgorithms {
    handle: Arc<LtHandle>,
    workspace_bytes: usize,
    choice: AlgorithmChoice,
    share: Option<Arc<dyn ShareChoices>>,
    /// Why this rank uses other algorithms than rank 0.
    refusal: Option<CublasLtError>,
    plans: HashMap<LtProduct, Arc<LtPlan>>,
}

impl LtAlgorithms {
    /// Starts without plans. With `share`, all ranks call it, and name their `gpu`; a rank that cannot use the algorithms
    /// of rank 0 chooses its own ones ([`refusal`](Self::refusal)), unless the choice is to be that of the library.
    ///
    /// # Errors
    /// [`CublasLtError::OtherMachine`] in that case; [`CublasLtError::Share`] if the ranks cannot exchange anything.
    pub fn new(
        handle: Arc<LtHandle>,
        gpu: &str,
        workspace_bytes: usize,
        choice: AlgorithmChoice,
        share: Option<Arc<dyn ShareChoices>>,
    ) -> Result<Self, CublasLtError> {
        let own = format!("{gpu} with cuBLASLt {}", handle.version());
        let first = share.as_deref().map(|share| share_identity(share, &own)).transpose()?;
        let refusal = first
            .filter(|first| *first != own)
            .map(|first| CublasLtError::OtherMachine { own, first });
        match (choice, refusal) {
            (AlgorithmChoice::First, Some(refusal)) => Err(refusal),
            (_, refusal) => {
                let plans = HashMap::new();
                Ok(Self { handle, workspace_bytes, choice, share, refusal, plans })
            }
        }
    }

    /// Returns why this rank uses other algorithms than rank 0, if it does.
    pub fn refusal(&self) -> Option<&CublasLtError> {
        self.refusal.as_ref()
    }

    /// Returns the plan of a product, which is made at its first use; `time` measures the seconds of a plan.
    ///
    /// # Errors
    /// If there is no algorithm, it cannot be measured, or the ranks do not agree.
    pub fn plan(
        &mut self,
        product: LtProduct,
        time: &mut dyn FnMut(&LtPlan) -> Result<f64, String>,
    ) -> Result<Arc<LtPlan>, CublasLtError> {
        if let Some(plan) = self.plans.get(&product) {
            return Ok(plan.clone());
        }
        let plan = match self.share.clone() {
            None => self.choose(&product, time),
            Some(share) if share.rank() == 0 => self.send(&*share, &product, time),
            Some(share) => self.receive(&*share, &product, time),
        };
        let plan = Arc::new(plan?);
        self.plans.insert(product, plan.clone());
        Ok(plan)
    }

    fn choose(
        &self,
        product: &LtProduct,
        time: &mut dyn FnMut(&LtPlan) -> Result<f64, String>,
    ) -> Result<LtPlan, CublasLtError> {
        let most = match self.choice {
            AlgorithmChoice::First => 1,
            AlgorithmChoice::Fastest => CANDIDATES_MAX,
        };
        let mut candidates = self.handle.candidates(product, self.workspace_bytes, most)?;
        let mut fastest = 0;
        if 1 < candidates.len() {
            let mut least = f64::INFINITY;
            for (index, plan) in candidates.iter().enumerate() {
                let seconds = time(plan).map_err(|problem| CublasLtError::Untimed { problem })?;
                if seconds < least {
                    (fastest, least) = (index, seconds);
                }
            }
        }
        Ok(candidates.swap_remove(fastest))
    }

    /// Chooses, and sends the algorithm, or that there is none.
    fn send(
        &self,
        share: &dyn ShareChoices,
        product: &LtProduct,
        time: &mut dyn FnMut(&LtPlan) -> Result<f64, String>,
    ) -> Result<LtPlan, CublasLtError> {
        let chosen = self.choose(product, time);
        let mut message = [0; MESSAGE_BYTES];
        message[1..9].copy_from_slice(&digest_of(product).to_le_bytes());
        if let Ok(plan) = &chosen {
            message[0] = 1;
            message[9..].copy_from_slice(bytemuck::bytes_of(&plan.algorithm()));
        }
        let shared = share.share(&mut message).map_err(|problem| CublasLtError::Share { problem });
        chosen.and_then(|plan| shared.map(|()| plan))
    }

    fn receive(
        &self,
        share: &dyn ShareChoices,
        product: &LtProduct,
        time: &mut dyn FnMut(&LtPlan) -> Result<f64, String>,
    ) -> Result<LtPlan, CublasLtError> {
        let mut message = [0; MESSAGE_BYTES];
        share.share(&mut message).map_err(|problem| CublasLtError::Share { problem })?;
        if message[1..9] != digest_of(product).to_le_bytes() {
            return Err(CublasLtError::OtherProduct { product: *product });
        }
        if message[0] == 0 {
            return Err(CublasLtError::NoneOnFirstRank { product: *product });
        }
        if self.refusal.is_some() {
            return self.choose(product, time);
        }
        self.handle.plan_of(product, bytemuck::pod_read_unaligned(&message[9..]))
    }
}

/// Returns what rank 0 calls its GPU and its library.
fn share_identity(share: &dyn ShareChoices, own: &str) -> Result<String, CublasLtError> {
    let mut bytes = [0; IDENTITY_BYTES];
    let len = own.len().min(IDENTITY_BYTES);
    bytes[..len].copy_from_slice(&own.as_bytes()[..len]);
    share.share(&mut bytes).map_err(|problem| CublasLtError::Share { problem })?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(IDENTITY_BYTES);
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// A number that another product is unlikely to have. All ranks run the same executable.
fn digest_of(product: &LtProduct) -> u64 {
    let mut hasher = DefaultHasher::new();
    product.hash(&mut hasher);
    hasher.finish()
}
