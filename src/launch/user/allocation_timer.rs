//! Timer for the end of the allocation in which this process runs: the workers are asked to stop in time to
//! save their state.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::base::clock;
use crate::launch::options::AllocationEnd;
use crate::os::tasks::sleep_until;

/// If the allocation was extended by more than this, the workers go on.
const EXTENSION_MIN: Duration = Duration::from_secs(5);

/// The answer of the scheduler, when it arrives.
type Answer = oneshot::Receiver<Option<Duration>>;

/// Timer for the end of an allocation; without one it never fires.
#[derive(Default)]
pub(in crate::launch) struct AllocationTimer {
    end: Option<AllocationEnd>,
    state: State,
}

#[derive(Default)]
enum State {
    /// There is no end, or the workers were asked.
    #[default]
    Off,
    /// The scheduler was asked at the start how much time is left.
    Starting(Answer),
    /// The workers have to be asked at this instant, unless the allocation was extended.
    Running(Instant),
    /// The scheduler was asked whether it was.
    Checking(Answer),
}

impl AllocationTimer {
    /// Creates the timer of an allocation.
    pub(in crate::launch) fn new(end: Option<&AllocationEnd>) -> Self {
        let state = match end {
            None => State::Off,
            Some(AllocationEnd { left: None, ask, .. }) => State::Starting(answer(*ask)),
            Some(end @ AllocationEnd { left: Some(left), .. }) => State::running(end, *left),
        };
        Self { end: end.cloned(), state }
    }

    /// Waits until the workers have to be asked; returns the name of the allocation and the time that is left
    /// of it. Cancelling the wait loses nothing.
    pub(in crate::launch) async fn wait(&mut self) -> (String, Duration) {
        loop {
            let Some(end) = &self.end else { return std::future::pending().await };
            match &mut self.state {
                State::Off => return std::future::pending().await,
                State::Starting(answer) => {
                    let left = answer.await.ok().flatten();
                    self.state = left.map_or(State::Off, |left| State::running(end, left));
                }
                State::Running(until) => {
                    sleep_until(Some(*until)).await;
                    self.state = State::Checking(answer(end.ask));
                }
                State::Checking(answer) => {
                    let left = answer.await.ok().flatten().unwrap_or(end.lead);
                    if left <= end.lead + EXTENSION_MIN {
                        self.state = State::Off;
                        return (end.name.clone(), left);
                    }
                    let until = clock::after(clock::now(), left.saturating_sub(end.lead));
                    self.state = State::Running(until);
                }
            }
        }
    }
}

impl State {
    fn running(end: &AllocationEnd, left: Duration) -> Self {
        Self::Running(clock::after(clock::now(), end.running_time(left)))
    }
}

/// Asks the scheduler. Its command may take seconds, and links need their heartbeats.
fn answer(ask: fn() -> Option<Duration>) -> Answer {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || sender.send(ask()));
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(left: Option<Duration>, ask: fn() -> Option<Duration>) -> AllocationEnd {
        AllocationEnd { name: "job 1".to_owned(), left, lead: Duration::from_secs(60), ask }
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(future)
    }

    #[test]
    fn timer_fires_before_the_end_that_the_scheduler_confirms() {
        let check = |ask: fn() -> Option<Duration>, expect: u64| {
            let end = end(Some(Duration::ZERO), ask);
            let fired = run(AllocationTimer::new(Some(&end)).wait());
            assert_eq!(fired, ("job 1".to_owned(), Duration::from_secs(expect)));
        };
        check(|| Some(Duration::from_secs(50)), 50);
        check(|| None, 60);
    }

    #[test]
    fn scheduler_is_asked_first_if_the_time_left_is_not_known() {
        let mut timer = AllocationTimer::new(Some(&end(None, || Some(Duration::ZERO))));
        assert_eq!(run(timer.wait()), ("job 1".to_owned(), Duration::ZERO));
        let mut unlimited = AllocationTimer::new(Some(&end(None, || None)));
        run(async {
            while !matches!(unlimited.state, State::Off) {
                let pause = Duration::from_millis(5);
                assert!(tokio::time::timeout(pause, unlimited.wait()).await.is_err());
            }
        });
    }

    #[test]
    fn timer_waits_if_the_allocation_was_extended() {
        let end = end(Some(Duration::ZERO), || Some(Duration::from_secs(3600)));
        let mut timer = AllocationTimer::new(Some(&end));
        run(async {
            let limit = Duration::from_secs(2);
            let fired = tokio::time::timeout(limit, async {
                while !matches!(timer.state, State::Running(at) if clock::now() + end.lead < at) {
                    let pause = Duration::from_millis(5);
                    assert!(tokio::time::timeout(pause, timer.wait()).await.is_err());
                }
            });
            fired.await.expect("the timer is set again");
        });
    }

    #[test]
    fn workers_run_until_the_lead_begins() {
        let end = end(None, || None);
        let running = |left| end.running_time(Duration::from_secs(left)).as_secs();
        assert_eq!(running(3600), 3540);
        // A short allocation is used for half of its time.
        assert_eq!(running(100), 50);
        assert_eq!(running(0), 0);
    }
}
