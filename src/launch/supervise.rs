//! Supervision of a job, with the reach of its nodes.

use std::sync::Arc;

use super::options::{DialOptions, LaunchError, Options};
use crate::launch::dispatcher::Dispatcher;
use crate::launch::node::handle::Connector;
use crate::launch::outcome::LaunchEnd;
use crate::launch::pod::probes::HealthState;
use crate::os::files::fds;
use crate::plan::LaunchPlan;
use crate::report::OutputSender;
use crate::transport::manager::ManagerOptions;

/// How nodes will be reached.
pub(super) enum ReachBy<'a> {
    Connector(Connector),
    Accepting(&'a DialOptions),
    Manager(&'a ManagerOptions),
}

/// Supervises the job from the first link to the final report. `on_output_sender` receives the
/// sender of output.
pub(super) async fn supervise(
    plan: &LaunchPlan,
    options: &Options,
    (connector, health): (&Connector, Arc<HealthState>),
    on_output_sender: impl FnOnce(OutputSender),
) -> Result<LaunchEnd, LaunchError> {
    let stdout = fds::copy_above(rustix::stdio::stdout(), 3)?;
    let stderr = fds::copy_above(rustix::stdio::stderr(), 3)?;
    let mut dispatcher = Dispatcher::start(plan, options, (connector, health), (stdout, stderr))?;
    on_output_sender(dispatcher.reporter.sender());
    dispatcher.run_until_verdict().await;
    Ok(dispatcher.finish().await)
}
