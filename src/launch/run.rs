//! Runs a plan: checks, then supervision to the end.

use std::sync::Arc;

use super::options::{Framing, LaunchError, Options, Transport};
use crate::base::{NodeRank, Status};
use crate::launch::manager::leader::supervise_managed;
use crate::launch::node::handle::Connector;
use crate::launch::outcome::LaunchEnd;
use crate::launch::pod::leader;
use crate::launch::pod::probes::{HealthState, start_probe_server};
use crate::launch::pod::termination_log::write_termination_message;
use crate::launch::supervise::{ReachBy, supervise};
use crate::os::cpu::malloc;
use crate::os::files::fds::{TooFewFiles, require_open_files};
use crate::os::process::{process_tree, signals};
use crate::os::tasks::Tasks;
use crate::plan::LaunchPlan;
use crate::report::OPEN_LOGS_MAX;
use crate::transport::dial::HANDSHAKES_MAX;
use crate::transport::end_processes;
use crate::transport::ssh::Ssh;

/// Starts the workers of a plan, supervises them, and reports the result. Returns the exit status.
pub fn run(plan: &LaunchPlan, options: &Options) -> Result<Status, LaunchError> {
    run_to_end(plan, options).map(|end| end.status)
}

/// Does what [`run`] does, and returns how the job ended.
pub(super) fn run_to_end(plan: &LaunchPlan, options: &Options) -> Result<LaunchEnd, LaunchError> {
    malloc::use_one_arena();
    signals::reset_sigchld();
    process_tree::become_subreaper();
    check_open_files(plan, &options.transport)?;
    // Until its handlers are installed a signal would end the launcher, and nothing would clean up
    // if the janitor is gone too.
    let blocked_signals = signals::defer_requests();
    // Before anything that starts a thread: it forks.
    let target = match &options.transport {
        Transport::Local => ReachBy::Connector(Connector::Local),
        Transport::Ssh(ssh) => {
            let ssh = Ssh::prepare(ssh, plan.nodes.iter().map(|node| &node.host))?;
            // Without progress messages no hints are printed either.
            let shows_progress =
                options.output.shows_progress || options.output.framing != Framing::None;
            let ssh = if shows_progress { ssh } else { ssh.without_hints() };
            ReachBy::Connector(Connector::Ssh(Arc::new(ssh)))
        }
        Transport::Dial(dial) => ReachBy::Accepting(dial),
        Transport::Managed(manager) => ReachBy::Manager(manager),
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let end = runtime.block_on(async {
        let mut tasks = Tasks::default();
        let health = Arc::new(HealthState::default());
        start_probe_server(options.supervisor.status_addr, &health, &mut tasks).await?;
        let ended = match target {
            ReachBy::Accepting(dial) => {
                let dial = (dial, health);
                return leader::supervise_as_leader(plan, options, dial, blocked_signals).await;
            }
            ReachBy::Manager(manager) => {
                let manager = (manager, health);
                supervise_managed(plan, options, manager, blocked_signals).await?
            }
            ReachBy::Connector(connector) => {
                health.set_ready(true);
                let unblock = |_| drop(blocked_signals);
                supervise(plan, options, (&connector, health), unblock).await?
            }
        };
        let own = plan.nodes.first().map_or(NodeRank(0), |node| node.node_rank);
        // The file is read apart from the screen.
        let LaunchEnd { status, text_elsewhere: text, cause, .. } = &ended;
        let file = options.supervisor.termination_log.as_ref();
        write_termination_message(file, (&options.job, own), *status, (text, *cause));
        Ok(ended)
    });
    // The process does not wait for a name server that does not answer.
    runtime.shutdown_background();
    end_processes();
    end
}

/// Checks the limit of file descriptors: some for each link, those of the open log files, and
/// some for the launcher itself.
pub(super) fn check_open_files(
    plan: &LaunchPlan,
    transport: &Transport,
) -> Result<(), TooFewFiles> {
    const OWN_FDS: u64 = 24;
    let of_link = match transport {
        // Its connection, or the socket of its agent.
        Transport::Local | Transport::Dial(_) | Transport::Managed(_) => 1,
        // Three pipes, the channel, the messages of ssh, and its exit.
        Transport::Ssh(_) => 6,
    };
    let handshakes = match transport {
        Transport::Local | Transport::Ssh(_) => 0,
        Transport::Dial(_) | Transport::Managed(_) => HANDSHAKES_MAX as u64,
    };
    let links = of_link * plan.nodes.len() as u64;
    let logs = (2 * u64::from(plan.world_size)).min(OPEN_LOGS_MAX as u64);
    require_open_files(links + logs + handshakes + OWN_FDS)
}
