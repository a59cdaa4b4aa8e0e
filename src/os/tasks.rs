//! Tasks of an async runtime whose panics are propagated to their owner, and a sleep for `select!`.

use std::convert::Infallible;
use std::future::Future;
use std::time::Instant;

use tokio::task::{AbortHandle, JoinError, JoinSet};

/// A set of tasks that are cancelled when this is dropped.
#[derive(Default)]
pub struct Tasks(JoinSet<()>);

impl Tasks {
    /// Starts a task; must be called inside a runtime.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.0.spawn(task)
    }

    /// Starts a task that may block, on its own thread.
    pub fn spawn_blocking(&mut self, task: impl FnOnce() + Send + 'static) {
        self.0.spawn_blocking(task);
    }

    /// Waits for ever, unless a task panics: then this panics too. Meant as one branch of a
    /// `select!`.
    pub async fn propagate_panics(&mut self) -> Infallible {
        loop {
            match self.0.join_next().await {
                Some(ended) => pass_on_panic(ended),
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until all tasks have ended.
    pub async fn join_all(&mut self) {
        while let Some(ended) = self.0.join_next().await {
            pass_on_panic(ended);
        }
    }
}

fn pass_on_panic(ended: Result<(), JoinError>) {
    // A task that was cancelled is not a failure.
    if let Err(Ok(panic)) = ended.map_err(JoinError::try_into_panic) {
        std::panic::resume_unwind(panic);
    }
}

/// Sleeps until a time; for ever, if there is none. Meant as one branch of a `select!`.
pub async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn task_panic_reaches_its_owner() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let watched = AssertUnwindSafe(|| {
            runtime.block_on(async {
                let mut tasks = Tasks::default();
                tasks.spawn(async {});
                tasks.spawn_blocking(|| {});
                tasks.spawn(async { panic!("a bug") });
                tasks.propagate_panics().await;
            });
        });
        let panic = catch_unwind(watched).expect_err("it panics");
        assert_eq!(panic.downcast_ref(), Some(&"a bug"));
    }
}
