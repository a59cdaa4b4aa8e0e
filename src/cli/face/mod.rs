//! Faces: command lines of other launchers, read with their own rules and translated into the words
//! of `remuda run`.
//!
//! | folder | contents |
//! |---|---|
//! | `accelerate` | `accelerate launch` |
//! | `torchrun` | `torchrun`, and `python -m torch.distributed.launch` |

pub(super) mod accelerate;
pub(super) mod torchrun;
