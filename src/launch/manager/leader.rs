//! The launcher of a job whose agents a process manager starts: it need not be on a node of the job.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::base::NodeRank;
use crate::base::order;
use crate::launch::manager::agents::ManagedAgents;
use crate::launch::node::handle::Connector;
use crate::launch::node::join_limit::JoinLimit;
use crate::launch::options::{LaunchError, Options};
use crate::launch::outcome::LaunchEnd;
use crate::launch::pod::probes::HealthState;
use crate::launch::supervise::supervise;
use crate::os::net::interfaces;
use crate::os::process::signals::BlockedRequests;
use crate::os::tasks::Tasks;
use crate::plan::{self, LaunchPlan};
use crate::transport::dial::{Acceptor, BoundListener, JobOver, KeyOrigin, Rules};
use crate::transport::manager::{ManagerOptions, Ticket, TicketHost};

/// Time limit for the nodes to receive the result, and for the manager to end.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Largest number of addresses that nodes try.
const ADDRESSES_MAX: usize = 4;

/// Starts the manager and supervises the job to the final report.
pub(in crate::launch) async fn supervise_managed(
    plan: &LaunchPlan,
    options: &Options,
    (manager, health): (&ManagerOptions, Arc<HealthState>),
    blocked_signals: BlockedRequests,
) -> Result<LaunchEnd, LaunchError> {
    let everywhere: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    let everywhere = everywhere.map(|address| SocketAddr::new(address, 0));
    let listener = listen_on_first(everywhere)?;
    let rules = rules(plan, options);
    let ticket = ticket(plan, &rules, (manager, listener.address.port()));
    let mut tasks = Tasks::default();
    let print = |line: String| crate::report::print_error(&line);
    let acceptor = Arc::new(Acceptor::open(&listener, rules, print, &mut tasks)?);
    let (agents, commands) = ManagedAgents::start(manager.clone(), ticket);
    let limit = JoinLimit { time: manager.join_limit, option: "--agent_timeout" };
    let connector = Connector::Managed(Arc::clone(&acceptor), limit, agents);
    health.set_ready(true);
    let job = supervise(plan, options, (&connector, health), |_| drop(blocked_signals));
    let mut commands = std::pin::pin!(commands);
    let ended = tokio::select! {
        ended = job => ended?,
        () = &mut commands => unreachable!("commands run until they are dropped"),
        never = tasks.propagate_panics() => match never {},
    };
    let text = ended.text_elsewhere.clone();
    acceptor.close(JobOver { status: ended.status.code(), text, cause: ended.cause }, None);
    tokio::select! {
        _ = tokio::time::timeout(END_LIMIT, tasks.join_all()) => {}
        () = commands => {}
    }
    Ok(ended)
}

/// Listens on the first of these addresses that this machine has.
fn listen_on_first(addresses: [SocketAddr; 2]) -> std::io::Result<BoundListener> {
    let mut last = None;
    for address in addresses {
        match BoundListener::try_first("this machine", vec![address]) {
            Ok(Some(listener)) => return Ok(listener),
            Ok(None) => {}
            Err(error) => last = Some(error),
        }
    }
    Err(std::io::Error::other(
        last.map_or_else(|| "no address".to_owned(), |error| error.to_string()),
    ))
}

fn rules(plan: &LaunchPlan, options: &Options) -> Rules {
    Rules {
        job: options.job.clone(),
        key: options.key.clone(),
        key_origin: KeyOrigin::File("the ticket".to_owned()),
        lease: options.limits.lease,
        build: env!("CARGO_PKG_VERSION"),
        digest: plan::digest(plan),
        has_own_lines: false,
        outline: plan::outline(plan),
        has_first: false,
        hosts: plan.nodes.iter().map(|node| node.host.to_string()).collect(),
    }
}

fn ticket(plan: &LaunchPlan, rules: &Rules, (manager, port): (&ManagerOptions, u16)) -> Ticket {
    let nodes = (0..).map(NodeRank).zip(&plan.nodes);
    let host = |(node, planned): (NodeRank, &plan::NodePlan)| TicketHost {
        name: planned.host.to_string(),
        node,
    };
    Ticket {
        build: rules.build.to_owned(),
        job: rules.job.clone(),
        key: rules.key.clone(),
        addresses: own_addresses(),
        port,
        digest: rules.digest,
        lease_ms: rules.lease.as_millis() as u32,
        join_limit_ms: manager.join_limit.as_millis() as u32,
        hosts: nodes.map(host).collect(),
        is_numbered: manager.manager.numbers_in_order,
    }
}

/// Addresses at which nodes may reach this machine, the likeliest first; the last one is for nodes on this
/// machine itself.
fn own_addresses() -> Vec<String> {
    let mut found: Vec<IpAddr> = interfaces::addresses()
        .unwrap_or_default()
        .into_iter()
        .map(|(_, address)| address)
        .filter(|address| match address {
            IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
            IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
        })
        .collect();
    order::sort_by_key(&mut found, IpAddr::is_ipv6);
    found.truncate(ADDRESSES_MAX - 1);
    found.push(Ipv4Addr::LOCALHOST.into());
    found.iter().map(ToString::to_string).collect()
}
