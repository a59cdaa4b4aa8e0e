//! Options that several commands have: structs of clap, the values that they parse, and checks of
//! options against each other.

pub(super) mod check;
mod cluster;
pub(super) mod color;
mod elastic;
mod first_word;
mod node;
pub(super) mod pdsh;
mod pod;
mod run;
mod ssh;
mod supervision;
pub mod values;
mod watch;
mod workers;

pub use cluster::{ClusterArgs, DeviceArgs, TransportArgs};
pub use elastic::ElasticArgs;
pub use node::{NodeArgs, NodeWorkerArgs};
pub use pod::PodNodeArgs;
pub use run::RunArgs;
pub use ssh::{KexArg, MuxArg, RemoteArgs, SshArgs};
pub(super) use ssh::{remote_flag, remote_words};
pub use watch::WatchArgs;
pub use workers::{ProgramArgs, WorkerArgs};
