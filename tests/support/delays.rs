//! Screens without the lines that only a slow machine prints.

/// Beginnings of lines that report a delay: the load of the machine decides whether they are
/// printed.
const DELAYS: [&str; 3] =
    ["   Waiting  ", "   Stalled  ", "remuda agent: no message from the launcher for "];

/// A screen as it is on a machine without delays, for comparisons of whole screens.
pub(crate) fn without_delays(screen: &str) -> String {
    let is_delay = |line: &&str| DELAYS.iter().any(|delay| line.starts_with(delay));
    screen.split_inclusive('\n').filter(|line| !is_delay(line)).collect()
}

#[test]
fn delay_lines_are_removed() {
    let screen = "    Launch  2 workers\n   Waiting  for n1, 10 s so far\n   Stalled  for 12 s\nWaiting\nend";
    assert_eq!(without_delays(screen), "    Launch  2 workers\nWaiting\nend");
    assert_eq!(without_delays(""), "");
}
