//! The command lines of torchrun and of `python -m torch.distributed.launch`.
//!
//! | file | contents |
//! |---|---|
//! | `args` | the options, with the names and defaults of torch 2.15 |
//! | `values` | their values: the line, then the variables `PET_…`, then the defaults |
//! | `size` | `--nnodes`, `--nproc-per-node` |
//! | `rendezvous` | how the nodes meet: `--standalone`, `--rdzv-…`, `--master-…` |
//! | `streams` | `--redirects`, `--tee`, `--local-ranks-filter` |
//! | `notes` | notes on lines of one node that may be meant for several |
//! | `job` | all of it as a job of remuda |

pub(in crate::cli) mod args;
pub(in crate::cli) mod job;
mod notes;
mod rendezvous;
mod size;
mod streams;
mod values;
