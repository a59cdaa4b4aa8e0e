//! The process that a process manager starts on a node: connects to the launcher, starts the agent, and
//! stays until the job is over.

use std::ffi::OsString;
use std::time::Duration;

use crate::base::{NodeRank, Status, WorkerExit};
use crate::launch::node::orphan_reaper::OrphanReaper;
use crate::launch::options::LaunchError;
use crate::launch::user::signals::{Signals, UserRequest};
use crate::os::cpu::malloc;
use crate::os::process::{process_tree, signals};
use crate::os::tasks::Tasks;
use crate::report::print_error;
use crate::transport::dial::{AttachedMember, MemberEvent};
use crate::transport::manager::Ticket;
use crate::transport::{AgentEnvironment, AgentHandle, Link, connect_local};

/// Time limit for the agent to stop its workers after the connection has ended.
const AGENT_EXIT_LIMIT: Duration = Duration::from_secs(90);

/// Serves the job of a ticket as this node. Returns 0 unless this node could not join or was left alone.
///
/// # Errors
/// If the kernel refuses a process, a descriptor or a signal handler.
pub fn serve_node(ticket: &Ticket, node: NodeRank) -> Result<Status, LaunchError> {
    malloc::use_one_arena();
    signals::reset_sigchld();
    let blocked_signals = signals::defer_requests();
    process_tree::become_subreaper();
    let mut reaper = OrphanReaper::new(&ticket.job);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let status = runtime.block_on(async {
        let signals = Signals::listen()?;
        drop(blocked_signals);
        serve(ticket, node, signals, &mut reaper).await
    });
    runtime.shutdown_background();
    status
}

async fn serve(
    ticket: &Ticket,
    node: NodeRank,
    mut signals: Signals,
    reaper: &mut OrphanReaper,
) -> Result<Status, LaunchError> {
    let limit = Duration::from_millis(ticket.join_limit_ms.into());
    let dialer = ticket.dialer(node);
    let joined = tokio::select! {
        joined = dialer.join(limit, |_, _| {}) => joined,
        signal = signals.wait_for_stop() => return Ok(Status::Interrupted(signal)),
    };
    let connection = match joined {
        Ok(connection) => connection,
        Err(fault) => {
            print_error(&format!("remuda: node {node}: {fault}\n"));
            return Ok(fault.status());
        }
    };
    let mut tasks = Tasks::default();
    let args = ["agent".to_owned(), format!("job={}", ticket.job), format!("node={node}")];
    let environment =
        AgentEnvironment { connection: connection.ends(), is_task: true, local_addr: None };
    let args = args.map(OsString::from);
    let Link { reader, writer, agent, .. } = connect_local(&args, environment)?;
    let mut agent = Some(agent);
    let mut attached = connection.attach(reader, writer, None, &mut tasks);
    let end = tokio::select! {
        end = take_part(&mut attached, &mut agent, &mut signals) => end,
        never = tasks.propagate_panics() => match never {},
    };
    drop(attached);
    let exit = match agent {
        Some(agent) => end_of(agent).await,
        None => Some(WorkerExit::Code(0)),
    };
    if exit != Some(WorkerExit::Code(0)) {
        reaper.end_descendants().await;
    }
    Ok(end)
}

/// Takes part until the job is over or the launcher is lost.
async fn take_part(
    attached: &mut AttachedMember,
    agent: &mut Option<Box<dyn AgentHandle>>,
    signals: &mut Signals,
) -> Status {
    loop {
        tokio::select! {
            event = attached.next() => match event {
                // After `Rejoin` another process takes the place of this one.
                Some(MemberEvent::JobEnded(_) | MemberEvent::Leaving | MemberEvent::Rejoin) => {
                    return Status::Success;
                }
                Some(MemberEvent::EpochStarted(..)) => {}
                Some(MemberEvent::AgentEnded) => {
                    if let Some(agent) = agent.take() {
                        attached.report_agent_exit(end_of(agent).await);
                    }
                }
                None => return Status::LeaseLost,
            },
            request = signals.next() => match request {
                // The manager passes on signals that are meant for the job.
                UserRequest::Stop(signal) | UserRequest::Forward(signal) => {
                    attached.forward_signal(signal);
                }
                UserRequest::ShowState | UserRequest::Suspend => {}
            },
        }
    }
}

async fn end_of(agent: Box<dyn AgentHandle>) -> Option<WorkerExit> {
    agent.wait_for_exit(AGENT_EXIT_LIMIT).await.exit
}
