//! The process `remuda agent`: forks the shim, takes its link from standard input and output, and
//! runs the event loop.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;

use super::event_loop::serve;
use super::shim::Shim;
use crate::base::{Status, clock};
use crate::os::files::fds;
use crate::os::process::{process_tree, signals};
use crate::report;
use crate::transport::{self, ssh};

/// What started this agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentOrigin {
    /// The launcher itself: the link begins with the first byte.
    Launcher,
    /// A login shell, which may have printed something first.
    Shell,
    /// A login shell, and this executable was just copied to this node.
    Pushed,
}

/// The process `remuda agent`: serves the link on its standard input and output until it ends.
pub(super) fn main(origin: AgentOrigin) -> Status {
    fds::make_stderr_nonblocking();
    report::install_panic_hook("remuda agent");
    process_tree::set_name(c"remuda-agent");
    signals::reset_sigchld();
    signals::ignore_file_size_signal();
    process_tree::become_subreaper();
    signals::block_requests();
    // Fork before any thread is started.
    let started = Shim::fork().and_then(|shim| Ok((shim, transport::adopt_stdio()?)));
    let Ok((shim, (input, output))) = started else {
        return Status::OsLimit;
    };
    if origin != AgentOrigin::Launcher && begin_link(origin, &output).is_err() {
        return Status::Io;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let Ok(runtime) = runtime else {
        return Status::OsLimit;
    };
    // Unwinding closes the connection to the shim, which then kills the workers.
    let served = AssertUnwindSafe(|| runtime.block_on(serve(input, output, shim)));
    let served = std::panic::catch_unwind(served);
    // A thread that is blocked by a hanging file system is not waited for.
    runtime.shutdown_background();
    match served {
        Ok(Ok(status)) => status,
        Ok(Err(_)) => Status::Io,
        Err(_) => Status::Bug,
    }
}

/// After a start by a shell: leaves its directory, and announces that the link begins.
fn begin_link(origin: AgentOrigin, output: &OwnedFd) -> io::Result<()> {
    rustix::process::chdir("/")?;
    ssh::announce_ready(output)?;
    if origin == AgentOrigin::Pushed {
        ssh::prune_cache(clock::wall());
    }
    Ok(())
}
