//! Node 0 of a job whose nodes are started one by one: accepts the others, and sends them the
//! result at the end.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::base::exit::signal_name;
use crate::base::{NodeRank, Status, clock};
use crate::launch::node::handle::Connector;
use crate::launch::node::join_limit::JoinLimit;
use crate::launch::options::{DialOptions, LaunchError, Options};
use crate::launch::outcome::LaunchEnd;
use crate::launch::pod::probes::HealthState;
use crate::launch::pod::termination_log::write_termination_message;
use crate::launch::supervise::supervise as dispatch;
use crate::launch::user::signals::Signals;
use crate::os::process::signals::BlockedRequests;
use crate::os::tasks::Tasks;
use crate::plan::{self, LaunchPlan};
use crate::report::text::{show_duration, show_step};
use crate::report::{OutputSender, print_error};
use crate::transport::AgentEnvironment;
use crate::transport::dial::{Acceptor, BindError, BoundListener, JobOver, Rules, is_node_0};

/// Time limit for the other nodes to receive the result: those that have it disconnect at once, the
/// others are disconnected.
const RESULT_DELIVERY_TIMEOUT: Duration = Duration::from_secs(2);

/// Supervises the job, from the wait for the name of node 0 to the final report. Pending signals
/// are handled from the beginning.
pub(in crate::launch) async fn supervise_as_leader(
    plan: &LaunchPlan,
    options: &Options,
    (dial, health): (&DialOptions, Arc<HealthState>),
    blocked_signals: BlockedRequests,
) -> Result<LaunchEnd, LaunchError> {
    let file = options.supervisor.termination_log.as_ref();
    let mut signals = Signals::listen()?;
    drop(blocked_signals);
    // Process 1 is not ended by a signal that it does not handle.
    let listener = tokio::select! {
        listener = open_listener(dial, plan.nodes.len()) => listener?,
        signal = signals.wait_for_stop() => {
            let text = format!("received {} before the address of node 0 resolved", signal_name(signal));
            let status = Status::Interrupted(signal);
            write_termination_message(file, (&dial.job, NodeRank(0)), status, (&text, Some(NodeRank(0))));
            return Ok(LaunchEnd::before_the_start(status, text));
        }
    };
    health.set_ready(true);
    let mut tasks = Tasks::default();
    let screen: Arc<OnceLock<OutputSender>> = Arc::default();
    let output = Arc::clone(&screen);
    let say = move |line: String| match output.get() {
        Some(screen) => screen.print_message(line),
        None => print_error(&line),
    };
    let acceptor =
        Arc::new(Acceptor::open(&listener, rules(plan, options, dial), say, &mut tasks)?);
    let environment =
        AgentEnvironment { local_addr: dial.local_addr, is_task: dial.is_task, connection: None };
    let connector = Connector::Dial(Arc::clone(&acceptor), dial.join_limit, environment);
    let job = dispatch(plan, options, (&connector, health), |sender| {
        // The handlers of the dispatcher now receive signals that arrived before they were
        // installed.
        signals.resend_pending();
        let _ = screen.set(sender);
    });
    let ended = tokio::select! {
        ended = job => ended?,
        never = tasks.propagate_panics() => match never {},
    };
    let own = dial.status_of(NodeRank(0), ended.status, ended.cause);
    // The file is read apart from the screen.
    let text = &ended.text_elsewhere;
    write_termination_message(file, (&dial.job, NodeRank(0)), own, (text, ended.cause));
    if ended.may_be_taken_over {
        let limit = show_duration(dial.join_limit.time);
        let text = format!(
            "node 0 leaves the job; the other nodes wait up to {limit} for its replacement"
        );
        print_error(&show_step("Leaving", &text));
        acceptor.leave();
    } else {
        let text = ended.text_elsewhere.clone();
        acceptor.close(JobOver { status: ended.status.code(), text, cause: ended.cause });
    }
    let _ = tokio::time::timeout(RESULT_DELIVERY_TIMEOUT, tasks.join_all()).await;
    Ok(LaunchEnd { status: own, ..ended })
}

/// Listens for the other nodes. The name of node 0 may not exist yet.
async fn open_listener(dial: &DialOptions, nodes: usize) -> Result<BoundListener, LaunchError> {
    if let Some(listener) = &dial.listener {
        return Ok(listener.clone());
    }
    let deadline = clock::now() + dial.join_limit.time;
    let report_wait = |why: &BindError, waited| print_wait(why, waited, dial.join_limit);
    match BoundListener::open(&dial.address, dial.port, deadline, report_wait).await {
        Err(BindError::Taken { .. }) => Err(explain_taken(dial, nodes).await),
        opened => Ok(opened?),
    }
}

/// Returns the error for a port that another process uses, which may be node 0 of the same job.
async fn explain_taken(dial: &DialOptions, nodes: usize) -> LaunchError {
    let boxed = Box::new(dial.clone());
    if is_node_0(&dial.address, dial.port, (&dial.job, &dial.key)).await {
        LaunchError::SecondFirst { dial: boxed, nodes }
    } else {
        LaunchError::PortTaken(boxed)
    }
}

fn print_wait(why: &BindError, waited: Duration, limit: JoinLimit) {
    let text = format!(
        "for the name of this node to resolve, {} so far, at most {}: {why}",
        show_duration(waited),
        limit.show()
    );
    print_error(&show_step("Waiting", &text));
}

fn rules(plan: &LaunchPlan, options: &Options, dial: &DialOptions) -> Rules {
    Rules {
        job: dial.job.clone(),
        key: dial.key.clone(),
        key_origin: dial.key_origin.clone(),
        lease: options.limits.lease,
        build: env!("CARGO_PKG_VERSION"),
        digest: plan::digest(plan),
        outline: plan::outline(plan),
        has_first: true,
        hosts: plan.nodes.iter().map(|node| node.host.to_string()).collect(),
    }
}
