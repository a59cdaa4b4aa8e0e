//! Node 0 of a job whose nodes are started one by one: accepts the others, and sends them the
//! result at the end.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::base::exit::signal_name;
use crate::base::{NodeRank, Status, clock};
use crate::launch::codes;
use crate::launch::node::handle::Connector;
use crate::launch::options::{DialOptions, LaunchError, Options};
use crate::launch::outcome::LaunchEnd;
use crate::launch::pod::probes::HealthState;
use crate::launch::pod::termination_log::write_termination_message;
use crate::launch::run_record::RunRecorder;
use crate::launch::screen::job_report::show_refusal;
use crate::launch::supervise::supervise as dispatch;
use crate::launch::user::signals::Signals;
use crate::os::process::signals::BlockedRequests;
use crate::os::tasks::Tasks;
use crate::plan::LaunchPlan;
use crate::report::text::{show_duration, show_help, show_step};
use crate::report::{OutputSender, print_error, print_message};
use crate::transport::AgentEnvironment;
use crate::transport::dial::{Acceptor, BindError, BoundListener, JobOver, Rules, is_node_0};

/// Time limit for the other nodes to receive the result: those that have it disconnect at once, the
/// others are disconnected.
const RESULT_DELIVERY_TIMEOUT: Duration = Duration::from_secs(2);
/// How long node 0 waits for nodes that have not connected, if a job ends before it starts: each of them would
/// wait for node 0 until its own time limit.
const LATE_LIMIT: Duration = Duration::from_secs(10);
/// Time after which that wait is shown.
const LATE_NOTICE_AFTER: Duration = Duration::from_secs(1);

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
    // The wait for a name would hide them.
    if let Some(first) = dial.problems.first() {
        let (status, text) = (Status::Worker(first.status), show_own_problems(plan, dial));
        let end = end_before_the_start((options, dial), status, text);
        report_own_problems((plan, options), dial, &mut signals, &end).await;
        return Ok(end);
    }
    // Process 1 is not ended by a signal that it does not handle.
    let listener = tokio::select! {
        listener = open_listener(dial, plan.nodes.len()) => listener?,
        signal = signals.wait_for_stop() => {
            let text = show_stopped_wait(signal, dial);
            return Ok(end_before_the_start((options, dial), Status::Interrupted(signal), text));
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
    deliver_end(&acceptor, &ended, (dial, &mut tasks), &mut signals).await;
    Ok(LaunchEnd { status: own, ..ended })
}

/// Tells the other nodes how the job ended, or that another node 0 will continue it.
async fn deliver_end(
    acceptor: &Acceptor,
    ended: &LaunchEnd,
    (dial, tasks): (&DialOptions, &mut Tasks),
    signals: &mut Signals,
) {
    let text = ended.text_elsewhere.clone();
    let over = JobOver { status: ended.status.code(), text, cause: ended.cause };
    if ended.may_be_taken_over {
        let limit = show_duration(dial.join_limit.time);
        let text = format!(
            "node 0 leaves the job; the other nodes wait up to {limit} for its replacement"
        );
        print_error(&show_step("Leaving", &text));
        acceptor.leave();
    } else if ended.has_late_nodes {
        return close_late(acceptor, over, (dial, tasks), signals).await;
    } else {
        acceptor.close(over, None);
    }
    let _ = tokio::time::timeout(RESULT_DELIVERY_TIMEOUT, tasks.join_all()).await;
}

/// The last line if a signal ends the wait for the name of node 0.
fn show_stopped_wait(signal: i32, dial: &DialOptions) -> String {
    format!(
        "error[{}]: {} stopped this node while it waited for the name of node 0 (`{}`) to resolve; nothing was \
         started\n",
        codes::INTERRUPTED,
        signal_name(signal),
        dial.address
    )
}

/// The reasons for which this node cannot start its workers, as its agent would report them.
fn show_own_problems(plan: &LaunchPlan, dial: &DialOptions) -> String {
    let host = plan.nodes[0].host.as_str();
    let nodes = plan.nodes.len();
    let what = format!("1 of {nodes} nodes cannot take part; nothing was started");
    show_refusal(&what, dial.problems.iter().map(|problem| (host, problem)))
}

/// Prints the last text of a job that no other node has joined, and removes the files that it would have kept.
fn end_before_the_start(
    (options, dial): (&Options, &DialOptions),
    status: Status,
    text: String,
) -> LaunchEnd {
    print_message(&text, options.output.style.terminal.paint);
    let file = options.supervisor.termination_log.as_ref();
    let first = NodeRank(0);
    write_termination_message(file, (&dial.job, first), status, (&text, Some(first)));
    RunRecorder::new(clock::now(), clock::wall()).discard_unused(options);
    LaunchEnd::before_the_start(status, text)
}

/// Accepts the other nodes for a while, only to send them the reasons for which this one cannot start its workers.
async fn report_own_problems(
    (plan, options): (&LaunchPlan, &Options),
    dial: &DialOptions,
    signals: &mut Signals,
    end: &LaunchEnd,
) {
    let limit = late_limit(dial);
    let listener = tokio::select! {
        listener = open_listener(dial, plan.nodes.len()) => listener,
        _ = signals.wait_for_stop() => return,
        () = tokio::time::sleep(limit) => return,
    };
    let mut tasks = Tasks::default();
    let rules = rules(plan, options, dial);
    let opened = listener.map(|listener| Acceptor::open(&listener, rules, |_| {}, &mut tasks));
    // Nothing else can be done for the other nodes if this address is that of another process.
    let Ok(Ok(acceptor)) = opened else { return };
    let (status, text) = (end.status.code(), end.text.clone());
    let over = JobOver { status, text, cause: Some(NodeRank(0)) };
    close_late(&acceptor, over, (dial, &mut tasks), signals).await;
}

/// How long nodes that have not connected yet are waited for, to send them the result.
fn late_limit(dial: &DialOptions) -> Duration {
    LATE_LIMIT.min(dial.join_limit.time)
}

/// Sends the result to all nodes, those included that connect within a while. A signal ends the wait for them.
async fn close_late(
    acceptor: &Acceptor,
    over: JobOver,
    (dial, tasks): (&DialOptions, &mut Tasks),
    signals: &mut Signals,
) {
    let limit = late_limit(dial);
    acceptor.close(over, Some(clock::now() + limit));
    let notice = async {
        tokio::time::sleep(LATE_NOTICE_AFTER).await;
        let limit = show_duration(limit);
        let text = format!("to report this to nodes that have not connected yet, up to {limit}");
        print_error(&show_step("Waiting", &text));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = tokio::time::timeout(limit + RESULT_DELIVERY_TIMEOUT, tasks.join_all()) => {}
        _ = signals.wait_for_stop() => {}
        () = notice => {}
    }
}

/// Listens for the other nodes. The name of node 0 may not exist yet.
async fn open_listener(dial: &DialOptions, nodes: usize) -> Result<BoundListener, LaunchError> {
    if let Some(listener) = &dial.listener {
        return Ok(listener.clone());
    }
    let deadline = clock::now() + dial.join_limit.time;
    let report_wait = |why: &BindError, waited| print_wait(why, waited, dial);
    let time = (dial.name_start, deadline);
    match BoundListener::open(&dial.address, dial.port, time, report_wait).await {
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

fn print_wait(why: &BindError, waited: Duration, dial: &DialOptions) {
    let text = format!(
        "for the name of this node to resolve, {} so far, at most {}: {why}",
        show_duration(waited),
        dial.join_limit.show()
    );
    print_error(&(show_step("Waiting", &text) + &show_help(dial.wait_help.unresolved.as_deref())));
}

fn rules(plan: &LaunchPlan, options: &Options, dial: &DialOptions) -> Rules {
    Rules {
        job: dial.job.clone(),
        key: dial.key.clone(),
        key_origin: dial.key_origin.clone(),
        lease: options.limits.lease,
        build: env!("CARGO_PKG_VERSION"),
        digest: dial.digest(plan),
        outline: dial.outline(plan),
        has_own_lines: dial.has_own_lines(),
        has_first: true,
        hosts: plan.nodes.iter().map(|node| node.host.to_string()).collect(),
    }
}
