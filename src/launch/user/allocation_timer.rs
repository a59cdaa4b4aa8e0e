//! Timer for the end of the allocation in which this process runs: the workers are asked to stop in time to
//! save their state.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::base::clock;
use crate::launch::options::AllocationEnd;
use crate::os::tasks::sleep_until;

/// If the allocation was extended by more than this, the workers go on.
const EXTENSION_MIN: Duration = Duration::from_secs(5);

/// Timer for the end of an allocation; without one it never fires.
#[derive(Default)]
pub(in crate::launch) struct AllocationTimer {
    end: Option<AllocationEnd>,
    /// When the scheduler is asked again; `None`: never.
    check_at: Option<Instant>,
    /// Where its answer arrives.
    answer: Option<oneshot::Receiver<Option<Duration>>>,
}

impl AllocationTimer {
    /// Creates the timer of an allocation.
    pub(in crate::launch) fn new(end: Option<&AllocationEnd>) -> Self {
        let end = end.cloned();
        let check_at = end.as_ref().map(|end| clock::after(clock::now(), end.running_time()));
        Self { end, check_at, answer: None }
    }

    /// Waits until the workers have to be asked; returns the name of the allocation and the time that is left
    /// of it. Cancelling the wait loses nothing.
    pub(in crate::launch) async fn wait(&mut self) -> (String, Duration) {
        loop {
            if let Some(answer) = &mut self.answer {
                let left = answer.await.ok().flatten();
                self.answer = None;
                let end = self.end.as_ref().expect("an allocation that was asked about");
                let left = left.unwrap_or(end.lead);
                if left <= end.lead + EXTENSION_MIN {
                    self.check_at = None;
                    return (end.name.clone(), left);
                }
                self.check_at = Some(clock::after(clock::now(), left.saturating_sub(end.lead)));
            }
            sleep_until(self.check_at).await;
            let Some(end) = &self.end else { continue };
            let (sender, receiver) = oneshot::channel();
            let ask = end.ask;
            // The command of the scheduler may take seconds, and links need their heartbeats.
            std::thread::spawn(move || sender.send(ask()));
            self.answer = Some(receiver);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(left: Duration, ask: fn() -> Option<Duration>) -> AllocationEnd {
        AllocationEnd { name: "job 1".to_owned(), left, lead: Duration::from_secs(60), ask }
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(future)
    }

    #[test]
    fn timer_fires_before_the_end_that_the_scheduler_confirms() {
        let check = |ask: fn() -> Option<Duration>, expect: u64| {
            let end = end(Duration::ZERO, ask);
            let fired = run(AllocationTimer::new(Some(&end)).wait());
            assert_eq!(fired, ("job 1".to_owned(), Duration::from_secs(expect)));
        };
        check(|| Some(Duration::from_secs(50)), 50);
        check(|| None, 60);
    }

    #[test]
    fn timer_waits_if_the_allocation_was_extended() {
        let end = end(Duration::ZERO, || Some(Duration::from_secs(3600)));
        let mut timer = AllocationTimer::new(Some(&end));
        run(async {
            let limit = Duration::from_secs(2);
            let fired = tokio::time::timeout(limit, async {
                while timer.check_at.is_none_or(|at| at < clock::now() + end.lead) {
                    let pause = Duration::from_millis(5);
                    assert!(tokio::time::timeout(pause, timer.wait()).await.is_err());
                }
            });
            fired.await.expect("the timer is set again");
        });
    }

    #[test]
    fn workers_run_until_the_lead_begins() {
        let running = |left| end(Duration::from_secs(left), || None).running_time().as_secs();
        assert_eq!(running(3600), 3540);
        // A short allocation is used for half of its time.
        assert_eq!(running(100), 50);
        assert_eq!(running(0), 0);
    }
}
