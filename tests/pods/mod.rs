//! Goal: nodes that are started one by one, without ssh, form one job, and every screen shows the same
//! cause of a failure; a process without the key has no effect. Method: the real program, once for each
//! node, on loopback addresses.
//!
//! | fault | where |
//! |---|---|
//! | a worker, an agent, a node's process, node 0 are killed | `lost` |
//! | node 0, another node or an agent is killed and replaced, also before all have joined (F46, F69) | `again` |
//! | a node never joins, or has a different plan, job, key (F45, F70, B81) | `joining` |
//! | a pod is cut off, for good or for a while; its link is slow, or loses packets (F25–F32) | `cut` |
//! | a pod is evicted, killed and replaced while it trains | `again`, `train` |
//! | names resolve late, node 0 is not replaced, process 1 reaps orphans | `init` |
//! | the printed manifest is run, beside a port scan | `walk`, `train_job` |
//! | pods have different Secrets | `secrets` |
//! | a port scan, HTTP, TLS, garbage, silence (F44, S15, B77, B78, B80, B83) | `strangers` |
//! | a failure that spreads from one node to the others | `cascades` |
//! | nodes that the job can do without are absent, lost, back again, asked to end | `elastic` |

mod again;
mod cascades;
mod cluster;
mod containerfile;
mod cut;
mod elastic;
mod init;
mod joining;
mod keeper;
mod lost;
mod manifest;
mod manifest_options;
mod metrics;
mod nodes;
mod pod;
mod schemas;
mod secrets;
mod strangers;
mod train;
mod train_job;
mod walk;
