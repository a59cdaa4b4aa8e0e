//! `--include` and `--exclude`: a case is a list of hostfile lines, a flag, and the parts of its text.

use remuda::base::Findings;
use remuda::pool::{self, HostSource, Pool, SelectorArgs, codes, select};
use serde_json::{Value, json};

use crate::conformance::reference::Reference;
use crate::conformance::rules::{self, Verdict};
use crate::support::proof::Random;

const HOSTS: &[&str] = &["worker-0", "worker-1", "w2", "10.0.0.1", "[::1]", "W2", "n3"];
const UNUSUAL_HOSTS: &[&str] = &[
    "worker-9",
    "",
    " worker-0",
    "worker-0 ",
    "worker-*",
    "worker-0,worker-1",
    "user@worker-0",
    "::1",
    "[::1",
    "worker-0;n3",
    "worker",
    " ",
    "n3\t",
    "ｎ3",
];
const SLOTS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "01",
    "+1",
    " 1",
    "1 ",
    "-1",
    "99",
    "1_0",
    "0_0",
    "a",
    "",
    "0-3",
    "[0",
    "1.0",
    "0x1",
    "--1",
    "99999999999999999999",
    "١",
    "\u{1f}1",
    "\u{a0}0",
    "1__0",
    "_1",
    "0,,1",
    "0:1",
    "+ 1",
];

/// The hosts with their slots, then the flag, then the text in parts.
pub(crate) fn generate(random: &mut Random) -> Vec<Vec<u8>> {
    let count = 1 + random.below(4);
    let first = random.below(HOSTS.len());
    let here: Vec<&str> = (0..count).map(|at| HOSTS[(first + at) % HOSTS.len()]).collect();
    let mut case: Vec<Vec<u8>> = here
        .iter()
        .map(|host| format!("{host} slots={}", 1 + random.below(5)).into_bytes())
        .collect();
    let flag = match random.below(20) {
        0 => "both",
        1..10 => "exclude",
        _ => "include",
    };
    case.push(format!("--{flag}").into_bytes());
    let parts = if random.below(30) == 0 { 0 } else { 1 + random.below(4) };
    for part in 0..parts {
        let mut text = if part == 0 { String::new() } else { "@".to_owned() };
        text.push_str(&spec(random, &here));
        case.push(text.into_bytes());
    }
    case
}

fn spec(random: &mut Random, hosts: &[&str]) -> String {
    let usual = &hosts[..hosts.len().min(3)];
    let among = match random.below(24) {
        0..2 => UNUSUAL_HOSTS,
        2..4 => hosts,
        _ => usual,
    };
    let mut text = among[random.below(among.len())].to_owned();
    for at in 0..random.below(4) {
        let odd = random.below(10) == 0;
        text.push(if at == 0 { ':' } else { ',' });
        text.push_str(SLOTS[random.below(if odd { SLOTS.len() } else { 3 })]);
    }
    text
}

/// Compares how both launchers apply the selector.
pub(crate) fn compare(reference: &mut Reference, case: &[Vec<u8>]) -> Verdict {
    let text = |part: &Vec<u8>| String::from_utf8_lossy(part).into_owned();
    let Some(flag) = case.iter().position(|part| part.starts_with(b"--")) else {
        return Verdict::Same;
    };
    let hostfile: String = case[..flag].iter().map(|line| text(line) + "\n").collect();
    let (hostfile, findings) = pool::read("hosts", hostfile.as_bytes());
    if findings.has_errors() || case[flag + 1..].iter().any(|part| part.starts_with(b"--")) {
        // Shrinking has made the case invalid.
        return Verdict::Same;
    }
    let selector: String = case[flag + 1..].iter().map(text).collect();
    let (include, exclude) = match &case[flag][..] {
        b"--include" => (selector.as_str(), ""),
        b"--exclude" => ("", selector.as_str()),
        _ => (selector.as_str(), selector.as_str()),
    };
    let args = SelectorArgs {
        include: Some(include.to_owned()),
        exclude: Some(exclude.to_owned()),
        ..SelectorArgs::default()
    };
    let hosts = hostfile.hosts().iter().map(|host| json!([host.name.as_str(), host.slots.get()]));
    let theirs = reference.ask(&json!({
        "kind": "select",
        "pool": hosts.collect::<Value>(),
        "include": include,
        "exclude": exclude,
    }));
    let ours = select(&hostfile.pool(), &HostSource::ThisMachine, &args);
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) if show(&ours.pool) == theirs["pool"] => Verdict::Same,
        (Ok(ours), Ok(theirs)) => Verdict::Unexplained(format!(
            "remuda: {}, DeepSpeed: {}",
            show(&ours.pool),
            theirs["pool"]
        )),
        (Err(findings), Ok(theirs)) => explain_our_refusal(&findings, &theirs["pool"], &selector),
        (Err(findings), Err(refusal)) if is_same_reason(&findings, &refusal.text) => {
            Verdict::Refused
        }
        (Err(_), Err(_)) if has_other_digits(&selector) => Verdict::by([rules::ASCII_DIGITS]),
        (Err(findings), Err(refusal)) => Verdict::Unexplained(format!(
            "remuda: {:?}, DeepSpeed: {}",
            codes_of(&findings),
            refusal.text
        )),
        (Ok(_), Err(refusal))
            if refusal.text.starts_with("too many values to unpack")
                && selector.contains("[::1]") =>
        {
            Verdict::by([rules::IPV6_SELECTORS])
        }
        (Ok(_), Err(refusal)) => {
            Verdict::Unexplained(format!("only DeepSpeed refuses: {}", refusal.text))
        }
    }
}

fn show(pool: &Pool) -> Value {
    let node = |(host, slots): &(remuda::base::HostName, Vec<remuda::base::Slot>)| {
        json!([host.as_str(), slots.iter().map(|slot| slot.0).collect::<Vec<_>>()])
    };
    pool.nodes().iter().map(node).collect()
}

fn codes_of(findings: &[Findings]) -> Vec<&'static str> {
    findings.iter().flat_map(|one| &one.diagnostics).map(|found| found.code).collect()
}

fn has_other_digits(text: &str) -> bool {
    text.chars().any(|c| c.is_numeric() && !c.is_ascii())
}

fn explain_our_refusal(findings: &[Findings], theirs: &Value, selector: &str) -> Verdict {
    let ours = codes_of(findings);
    match ours[..] {
        [codes::NOTHING_LEFT] if *theirs == json!([]) => Verdict::by([rules::NOTHING_LEFT]),
        _ if ours.contains(&codes::BAD_SLOT) && has_other_digits(selector) => {
            Verdict::by([rules::ASCII_DIGITS])
        }
        _ => Verdict::Unexplained(format!("only remuda refuses: {:?}", codes_of(findings))),
    }
}

/// Whether the reason of DeepSpeed is among those of remuda.
fn is_same_reason(findings: &[Findings], theirs: &str) -> bool {
    let ours = codes_of(findings);
    let any_of = |codes: &[&str]| codes.iter().any(|code| ours.contains(code));
    if theirs.contains("mutually exclusive") {
        any_of(&[codes::BOTH_FILTERS])
    } else if theirs.contains("not found in hostfile") {
        any_of(&[codes::UNKNOWN_HOST, codes::EMPTY_HOST])
    } else if theirs.starts_with("No slot") {
        any_of(&[codes::UNKNOWN_SLOT])
    } else if theirs.starts_with("invalid literal") {
        any_of(&[codes::BAD_SLOT, codes::EMPTY_HOST])
    } else {
        // In brackets the second colon of an address does not separate slots.
        theirs.starts_with("too many values") && !ours.is_empty()
    }
}
