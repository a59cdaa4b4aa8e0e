//! [`LtAlgorithms`]: the algorithms of the products of a rank, the same on all ranks.
//!
//! Another algorithm adds in another order, so its results have other bits, and an epilogue that the library computes
//! rounds once less than a kernel after the product. Rank 0 chooses the method of a product when it first needs it, and
//! sends it to the others, which need it at the same place of their program. A rank with another GPU or another version
//! of the library cannot use it.

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
/// Bytes of the message about a product: which method it has, the product's digest, the algorithm.
const MESSAGE_BYTES: usize = 1 + 8 + 64;
/// First byte of the message: there is no method, the library computes everything, or a kernel computes the epilogue.
const NONE: u8 = 0;
const WHOLE: u8 = 1;
const EPILOGUE_APART: u8 = 2;

/// How the method of a product is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlgorithmChoice {
    /// The first algorithm that the library proposes, with the epilogue if it has one for it: a function of the product,
    /// the kind of GPU and the version of the library.
    First,
    /// The fastest of those that it proposes, and of the product with a kernel for the epilogue, as it is measured.
    Fastest,
}

/// How a product is computed.
#[derive(Clone, Debug)]
pub enum LtMethod {
    /// By the library, with its epilogue.
    Whole(Arc<LtPlan>),
    /// The library computes the product without its epilogue, and a kernel the epilogue.
    EpilogueApart(Arc<LtPlan>),
}

impl LtMethod {
    /// Returns the plan of what the library computes.
    pub fn into_plan(self) -> Arc<LtPlan> {
        match self {
            Self::Whole(plan) | Self::EpilogueApart(plan) => plan,
        }
    }
}

/// Measures the seconds of a method.
pub type TimeMethod<'a> = dyn FnMut(&LtMethod) -> Result<f64, String> + 'a;

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

/// Methods of the products that were needed so far.
pub struct LtAlgorithms {
    handle: Arc<LtHandle>,
    workspace_bytes: usize,
    choice: AlgorithmChoice,
    share: Option<Arc<dyn ShareChoices>>,
    /// Why this rank uses other algorithms than rank 0.
    refusal: Option<CublasLtError>,
    methods: HashMap<LtProduct, LtMethod>,
}

impl LtAlgorithms {
    /// Starts without methods. With `share`, all ranks call it, and name their `gpu`; a rank that cannot use the algorithms
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
                let methods = HashMap::new();
                Ok(Self { handle, workspace_bytes, choice, share, refusal, methods })
            }
        }
    }

    /// Returns why this rank uses other algorithms than rank 0, if it does.
    pub fn refusal(&self) -> Option<&CublasLtError> {
        self.refusal.as_ref()
    }

    /// Returns the method of a product that was chosen before.
    pub fn known(&self, product: &LtProduct) -> Option<LtMethod> {
        self.methods.get(product).cloned()
    }

    /// Chooses the method of a product, unless it was chosen before. `apart` is the plan of the product without its
    /// epilogue, if it has one.
    ///
    /// # Errors
    /// If there is no algorithm, none can be measured, or the ranks do not agree.
    pub fn choose(
        &mut self,
        product: LtProduct,
        apart: Option<Arc<LtPlan>>,
        time: &mut TimeMethod<'_>,
    ) -> Result<LtMethod, CublasLtError> {
        if let Some(method) = self.known(&product) {
            return Ok(method);
        }
        let method = match self.share.clone() {
            None => self.find(&product, apart, time),
            Some(share) if share.rank() == 0 => self.send(&*share, &product, apart, time),
            Some(share) => self.receive(&*share, &product, apart, time),
        };
        let method = method?;
        self.methods.insert(product, method.clone());
        Ok(method)
    }

    fn find(
        &self,
        product: &LtProduct,
        apart: Option<Arc<LtPlan>>,
        time: &mut TimeMethod<'_>,
    ) -> Result<LtMethod, CublasLtError> {
        let most = match self.choice {
            AlgorithmChoice::First => 1,
            AlgorithmChoice::Fastest => CANDIDATES_MAX,
        };
        let plans = match self.handle.candidates(product, self.workspace_bytes, most) {
            Err(CublasLtError::NoAlgorithm { .. }) if apart.is_some() => Vec::new(),
            plans => plans?,
        };
        let is_needed = plans.is_empty() || self.choice == AlgorithmChoice::Fastest;
        let apart = apart.filter(|_| is_needed).map(LtMethod::EpilogueApart);
        let whole = plans.into_iter().map(|plan| LtMethod::Whole(Arc::new(plan)));
        fastest(whole.chain(apart).collect(), time)
    }

    /// Chooses, and sends the method, or that there is none.
    fn send(
        &self,
        share: &dyn ShareChoices,
        product: &LtProduct,
        apart: Option<Arc<LtPlan>>,
        time: &mut TimeMethod<'_>,
    ) -> Result<LtMethod, CublasLtError> {
        let chosen = self.find(product, apart, time);
        let mut message = [0; MESSAGE_BYTES];
        message[1..9].copy_from_slice(&digest_of(product).to_le_bytes());
        message[0] = match &chosen {
            Err(_) => NONE,
            Ok(LtMethod::EpilogueApart(_)) => EPILOGUE_APART,
            Ok(LtMethod::Whole(plan)) => {
                message[9..].copy_from_slice(bytemuck::bytes_of(&plan.algorithm()));
                WHOLE
            }
        };
        let shared = share.share(&mut message).map_err(|problem| CublasLtError::Share { problem });
        chosen.and_then(|method| shared.map(|()| method))
    }

    fn receive(
        &self,
        share: &dyn ShareChoices,
        product: &LtProduct,
        apart: Option<Arc<LtPlan>>,
        time: &mut TimeMethod<'_>,
    ) -> Result<LtMethod, CublasLtError> {
        let mut message = [0; MESSAGE_BYTES];
        share.share(&mut message).map_err(|problem| CublasLtError::Share { problem })?;
        if message[1..9] != digest_of(product).to_le_bytes() {
            return Err(CublasLtError::OtherProduct { product: Box::new(*product) });
        }
        match (message[0], apart) {
            (WHOLE | EPILOGUE_APART, apart) if self.refusal.is_some() => {
                self.find(product, apart, time)
            }
            (EPILOGUE_APART, Some(plan)) => Ok(LtMethod::EpilogueApart(plan)),
            (WHOLE, _) => {
                let algorithm = bytemuck::pod_read_unaligned(&message[9..]);
                Ok(LtMethod::Whole(Arc::new(self.handle.plan_of(product, algorithm)?)))
            }
            _ => Err(CublasLtError::NoneOnFirstRank { product: Box::new(*product) }),
        }
    }
}

/// Returns the method that takes the least time. One that cannot be measured is left out: the library proposes
/// algorithms that it then refuses.
fn fastest(
    mut methods: Vec<LtMethod>,
    time: &mut TimeMethod<'_>,
) -> Result<LtMethod, CublasLtError> {
    if methods.len() == 1 {
        return Ok(methods.remove(0));
    }
    let (mut found, mut least, mut refused) = (None, f64::INFINITY, None);
    for method in methods {
        match time(&method) {
            Ok(seconds) if seconds < least => (found, least) = (Some(method), seconds),
            Ok(_) => {}
            Err(problem) => refused = refused.or(Some(problem)),
        }
    }
    let problem = || refused.unwrap_or_default();
    found.ok_or_else(|| CublasLtError::Untimed { problem: problem() })
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
