//! A node that knows, before it connects, that it cannot start its workers. It shows the reasons, and then
//! reports them to node 0, which would wait for the node otherwise.

use std::convert::Infallible;
use std::time::Duration;

use crate::base::{Epoch, Status};
use crate::launch::options::LaunchError;
use crate::launch::pod::member_options::{EarlierPart, MemberOptions};
use crate::launch::screen::job_report::show_refusal;
use crate::launch::user::signals::Signals;
use crate::plan::LaunchPlan;
use crate::report::text::{show_duration, show_step};
use crate::report::{escape_control, print_message};
use crate::transport::dial::{Dialer, JoinFault};
use crate::wire::Problem;

/// Time limit of the report to node 0, which may be started later than this node. A scheduler that waits
/// for this process is not to wait as long as a node that joins.
const REPORT_LIMIT: Duration = Duration::from_secs(30);

/// Time after which the wait for node 0 is shown.
const NOTICE_AFTER: Duration = Duration::from_secs(1);

/// Shows why this node cannot take part, and reports it to node 0. Returns the exit status, which is that of
/// the first problem whether node 0 answers or not.
pub(super) fn refuse_to_join(
    plan: &LaunchPlan,
    member: &MemberOptions,
    first: &Problem,
) -> Result<Status, LaunchError> {
    let host = member.node.map_or("this node", |node| plan.nodes[node.index()].host.as_str());
    let what = "this node cannot take part; nothing was started here";
    let problems = member.dial.problems.iter().map(|problem| (host, problem));
    let (screen, status) = (show_refusal(what, problems), Status::Worker(first.status));
    print_message(&screen, member.paint);
    member.leave_message(member.node, status, (&screen, None));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let fault = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let part = EarlierPart { node: member.node, next_epoch: Epoch(0), free_restarts: 0 };
        let dialer = member.dialer(plan, part);
        let limit = member.dial.join_limit.time.min(REPORT_LIMIT);
        Ok::<_, LaunchError>(tokio::select! {
            fault = report_to_node_0(&dialer, limit) => fault,
            _ = signals.wait_for_stop() => None,
            never = say_that_this_waits(&dialer, limit, member) => match never {},
        })
    });
    // The process does not wait for a name server that does not answer.
    runtime.shutdown_background();
    if let Some(fault) = fault? {
        let fault = escape_control(fault.to_string().lines().next().unwrap_or_default());
        let text = format!("warning: this was not reported to node 0: {fault}\n");
        print_message(&text, member.paint);
    }
    Ok(status)
}

/// Connects until node 0 has received the reasons; returns why it has not.
async fn report_to_node_0(dialer: &Dialer, limit: Duration) -> Option<JoinFault> {
    match dialer.join(limit, |_, _| {}).await {
        // Node 0 answers a report with a refusal.
        Ok(_) | Err(JoinFault::Refused(_)) => None,
        Err(fault) => Some(fault),
    }
}

/// Says why this process does not end yet, once node 0 has not answered for a moment.
async fn say_that_this_waits(
    dialer: &Dialer,
    limit: Duration,
    member: &MemberOptions,
) -> Infallible {
    tokio::time::sleep(NOTICE_AFTER).await;
    let text =
        format!("to report this to node 0 ({}), up to {}", dialer.endpoint(), show_duration(limit));
    print_message(&show_step("Waiting", &text), member.paint);
    std::future::pending().await
}
