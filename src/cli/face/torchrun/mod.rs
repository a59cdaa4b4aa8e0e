//! The command lines of torchrun and of `python -m torch.distributed.launch`.
//!
//! | file | contents |
//! |---|---|
//! | `args` | the options, with the names and defaults of torch 2.15 |
//! | `values` | their values: the line, then the variables `PET_…`, then the defaults |
//! | `size` | `--nnodes`, `--nproc-per-node` |
//! | `rendezvous` | how the nodes meet: `--standalone`, `--rdzv-…`, `--master-…` |
//! | `c10d_line` | the line to type in the place of one whose nodes cannot meet |
//! | `streams` | `--redirects`, `--tee`, `--local-ranks-filter` |
//! | `conventions` | what workers expect: role, name of the job, signals, devices |
//! | `node_number` | the number of a node whose line gives none |
//! | `notes` | notes on options without an effect |
//! | `job` | all of it as a job of remuda |

pub(in crate::cli) mod args;
mod c10d_line;
mod conventions;
pub(in crate::cli) mod job;
pub(in crate::cli::face) mod node_number;
pub(in crate::cli::face) mod notes;
mod rendezvous;
mod size;
mod streams;
mod values;
