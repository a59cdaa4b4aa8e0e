//! Node 0 of a job whose nodes are started one by one: lets the others in, and tells them at the end
//! how it went.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::dispatcher::see_through as dispatch;
use super::finish::Ended;
use super::node::Way;
use super::options::{DialOptions, LaunchError, Options};
use crate::base::{NodeRank, Status};
use crate::os::tasks::Tasks;
use crate::plan::{self, LaunchPlan};
use crate::report::{OutputSender, print_error};
use crate::transport::dial::{Door, Gate, Over, Rules};

/// Who has heard how the job ended hangs up at once; whoever has not within this time is cut off.
const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// From an open door to the last word; `begun` is called when signals are heard.
pub(super) async fn see_through(
    plan: &LaunchPlan,
    options: &Options,
    (door, dial): (Door, &DialOptions),
    begun: impl FnOnce(),
) -> Result<Status, LaunchError> {
    let mut tasks = Tasks::default();
    let screen: Arc<OnceLock<OutputSender>> = Arc::default();
    let said_on = Arc::clone(&screen);
    let say = move |line: String| match said_on.get() {
        Some(screen) => screen.say(line),
        None => print_error(&line),
    };
    let gate = Arc::new(Gate::open(door, rules(plan, dial), say, &mut tasks)?);
    let way = Way::Dial(Arc::clone(&gate), dial.join_limit);
    let job = dispatch(plan, options, &way, |sender| {
        begun();
        let _ = screen.set(sender);
    });
    let Ended { status, text, cause } = tokio::select! {
        ended = job => ended?,
        never = tasks.watch() => match never {},
    };
    gate.close(Over { status: status.code(), text, cause });
    let _ = tokio::time::timeout(FAREWELL_MAX, tasks.finish()).await;
    Ok(dial.status_of(NodeRank(0), status, cause))
}

fn rules(plan: &LaunchPlan, dial: &DialOptions) -> Rules {
    Rules {
        job: dial.job.clone(),
        key: dial.key.clone(),
        build: env!("CARGO_PKG_VERSION"),
        digest: plan::digest(plan),
        outline: plan::outline(plan),
        hosts: plan.nodes.iter().map(|node| node.host.to_string()).collect(),
    }
}
