//! Values of the options about supervision of a job.

use std::time::Duration;

use crate::base::exit::{signal_name, signal_number};
use crate::base::show_typed;
use crate::cli::args::values::parse_duration;
use crate::cli::line::{BadValue, parse_whole};
use crate::job::Warning;

/// Default time between the warning signal and SIGTERM, in which workers can save their state.
const WARNING_LEAD: Duration = Duration::from_secs(10);
/// Maximum number of restarts; a larger number is a typing error.
const RESTARTS_MAX: i64 = 10_000;
/// Minimum interval of heartbeats; a shorter one has no advantage.
const HEARTBEAT_MIN: Duration = Duration::from_millis(10);

/// Parses the maximum number of restarts.
pub(super) fn parse_restarts(text: &str) -> Result<u32, BadValue> {
    parse_whole(text, 0..=RESTARTS_MAX).map(|restarts| restarts as u32)
}

/// Parses the interval of heartbeats.
pub(super) fn parse_heartbeat_interval(text: &str) -> Result<Duration, BadValue> {
    match parse_duration(text)? {
        interval if interval < HEARTBEAT_MIN => {
            Err(BadValue::new("the minimum interval is 10ms").help("write 10ms or more"))
        }
        interval => Ok(interval),
    }
}

/// Parses a signal and its time: `USR1`, `SIGUSR1`, `USR1:20s`.
pub(super) fn parse_warning(text: &str) -> Result<Warning, BadValue> {
    const STOP_SIGNALS: [i32; 4] = [libc::SIGTERM, libc::SIGKILL, libc::SIGSTOP, libc::SIGCONT];
    let (name, ahead) = match text.split_once(':') {
        Some((name, time)) => (name, parse_duration(time)?),
        None => (text, WARNING_LEAD),
    };
    let Some(signal) = signal_number(name) else {
        let label = format!("`{}` is not a signal", show_typed(name));
        return Err(BadValue::new(label).help("write a name: `USR1`, or `USR1:20s`"));
    };
    if STOP_SIGNALS.contains(&signal) {
        let label = format!("{} gives workers no time to save", signal_name(signal));
        return Err(BadValue::new(label).help("use a signal that workers handle: `USR1`"));
    }
    Ok(Warning { signal, ahead })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_has_a_signal_and_a_time() {
        let warning = |signal, seconds| Warning { signal, ahead: Duration::from_secs(seconds) };
        assert_eq!(parse_warning("USR1"), Ok(warning(libc::SIGUSR1, 10)));
        assert_eq!(parse_warning("SIGUSR2:20"), Ok(warning(libc::SIGUSR2, 20)));
        assert_eq!(parse_warning("10:2m"), Ok(warning(libc::SIGUSR1, 120)));
        for refused in ["", "USR9", "TERM", "KILL:3", "USR1:", "USR1:soon"] {
            assert!(parse_warning(refused).is_err(), "{refused}");
        }
    }
}
