//! `remuda hostfile show`: a file, or sets of hosts joined by ClusterShell's operators.

use std::collections::HashMap;
use std::path::Path;

use crate::base::shell::quoted;
use crate::base::{
    Diagnostic, Findings, HostName, Severity, Source, Span, Status, UserName, show_typed,
};
use crate::cli::command::hostfile::values::{ReadArgs, SelectArgs};
use crate::cli::command::output::{CommandOutput, count, lines};
use crate::cli::resolve::hostfile::{self, LoadError};
use crate::pool::nodeset::{
    Expression, Operator, RangeProblem, SetOperand, fold, is_pattern, read_list,
};
use crate::pool::{
    Host, HostSource, Pool, ReadOptions, Reading, SlotCount, codes, read_any, select,
};
use crate::report::diagnostic::{Paint, show_all, show_findings, show_problems};
use crate::report::world::{names_json, show_world, world_json};

/// Arguments of `remuda hostfile show`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// Hostfile, list of hosts, or sets joined by `,` (union), `&` (intersection), `!` (difference), `^`
    /// (symmetric difference); a word that is not a file is a list of hosts: `hosts & rack[1-3]`
    #[arg(required = true, value_name = "SET")]
    set: Vec<String>,
    /// Print JSON
    #[arg(long, conflicts_with = "names")]
    json: bool,
    /// Print the names only, one on each line
    #[arg(long)]
    names: bool,
    #[command(flatten)]
    read: ReadArgs,
    #[command(flatten)]
    select: SelectArgs,
}

/// A host of a set, without slots if it is from a list of names.
#[derive(Clone)]
struct Member {
    name: HostName,
    user: Option<UserName>,
    slots: Option<SlotCount>,
}

/// Reason why a set could not be evaluated.
enum SetError {
    Load(LoadError),
    Text(Findings),
}

pub(super) fn run(args: &ShowArgs, paint: Paint) -> CommandOutput {
    let mut out = CommandOutput::new();
    let mut notes = String::new();
    let found = evaluate(args, &mut notes);
    match &found {
        Err(SetError::Load(error)) => out.refuse(error, paint),
        Err(SetError::Text(findings)) => {
            out.stderr = show_problems(&in_command_line(findings), paint);
            out.status = Status::Usage;
        }
        Ok(members) => show(members, args, &mut out, paint),
    }
    if let (Status::Success, Ok([])) = (out.status, found.as_deref()) {
        notes += &empty_set(args);
    }
    if !notes.is_empty() {
        out.stderr += &notes;
        out.worsen(Status::Findings);
    }
    out
}

/// Text for an empty set, which is seldom intended: perhaps the name of a file is mistyped.
fn empty_set(args: &ShowArgs) -> String {
    let text = args.set.join(" ");
    let terms = Expression::read(&text).map_or_else(|_| Vec::new(), |set| set.terms);
    let words = terms.iter().map(|(_, operand)| operand.text);
    let is_name = |word: &&str| !is_pattern(word) && *word != "-" && !Path::new(word).exists();
    let names = words.filter(is_name).map(|name| {
        format!("note: `{}` is read as a host: no such file exists\n", show_typed(name))
    });
    std::iter::once("warning: the set contains no host\n".to_owned()).chain(names).collect()
}

fn show(members: &[Member], args: &ShowArgs, out: &mut CommandOutput, paint: Paint) {
    let names = || members.iter().map(|member| member.name.as_str());
    if args.names && args.select.selector().is_none() {
        out.stdout = lines(names());
        return;
    }
    let known = pool(members);
    if known.is_none() && args.select.selector().is_some() && !members.is_empty() {
        out.stderr = show_findings(&slots_unknown(), paint);
        out.status = Status::Usage;
        return;
    }
    let Some(mut pool) = known else {
        out.stderr += &slots_left_out(members);
        let text = || format!("{}\n{}\n", fold(names()), count(members.len() as u64, "host"));
        out.stdout = if args.json { names_json(names()) } else { text() };
        return;
    };
    if let Some(selector) = args.select.selector() {
        match select(&pool, &host_source(&args.set), &selector) {
            Ok(selected) => {
                out.stderr = show_all(&selected.findings, paint);
                pool = selected.pool;
            }
            Err(findings) => {
                out.stderr = show_all(&findings, paint);
                out.status = Status::Findings;
                return;
            }
        }
    }
    out.stdout = if args.json {
        world_json(&pool)
    } else if args.names {
        lines(pool.nodes().iter().map(|(host, _)| host))
    } else {
        show_world(&pool)
    };
}

/// Note for a set in which some hosts have slots and others have none: slots are not shown.
fn slots_left_out(members: &[Member]) -> String {
    let without = members.iter().find(|member| member.slots.is_none());
    match without.filter(|_| members.iter().any(|member| member.slots.is_some())) {
        None => String::new(),
        Some(Member { name, .. }) => format!(
            "note: slots are not shown: `{name}` has none; write `{name}:N`, or add `--slots N`\n"
        ),
    }
}

/// The source of the hosts, for messages about a selection.
fn host_source(set: &[String]) -> HostSource {
    match set {
        [file] if Path::new(file).exists() => HostSource::Hostfile(file.clone()),
        _ => HostSource::Named("the set of hosts".to_owned()),
    }
}

fn slots_unknown() -> Findings {
    let message = "--include, --exclude, --num_nodes and --num_gpus need slots";
    let problem = Diagnostic::whole(codes::MISSING_SLOTS, message)
        .help("the list has no slots: add `--slots 8`, or leave the option out");
    Findings { source: source(""), diagnostics: vec![problem] }
}

/// Returns the pool of a set, or `None` if the slots of a host are not known or the set is empty.
fn pool(members: &[Member]) -> Option<Pool> {
    let hosts: Option<Vec<_>> =
        members.iter().map(|member| Some((member.name.clone(), member.slots?))).collect();
    let users = members.iter();
    let users = users.filter_map(|member| Some((member.name.clone(), member.user.clone()?)));
    let pool = hosts.filter(|hosts| !hosts.is_empty()).map(Pool::of)?;
    Some(pool.with_users(users.collect()))
}

fn evaluate(args: &ShowArgs, notes: &mut String) -> Result<Vec<Member>, SetError> {
    // A file may have any name, even one with operators.
    if let [file] = &args.set[..]
        && (file == "-" || Path::new(file).exists())
    {
        return from_file(Path::new(file), args);
    }
    let text = args.set.join(" ");
    let expression = Expression::read(&text).map_err(|span| operand_missing(&text, span))?;
    if let Some(span) = find_minus(&expression, &text) {
        return Err(minus_is_no_operator(&text, span));
    }
    let mut known: HashMap<HostName, SlotCount> = HashMap::new();
    let mut set: Vec<Member> = Vec::new();
    let is_alone = expression.terms.len() == 1;
    for (operator, operand) in &expression.terms {
        let members = operand_members(*operand, is_alone, &text, args)?;
        known.extend(members.iter().filter_map(|one| Some((one.name.clone(), one.slots?))));
        note_nothing_removed(*operator, *operand, &set, &members, notes);
        set = operator.join(set, members, |member| member.name.clone());
    }
    for member in &mut set {
        let known = known.get(&member.name).copied();
        member.slots = member.slots.or(known).or(args.read.options().slots);
    }
    Ok(set)
}

/// Adds a note about a word after `!` that removes nothing: it is usually the mistyped name of a
/// file.
fn note_nothing_removed(
    operator: Operator,
    operand: SetOperand<'_>,
    set: &[Member],
    removed: &[Member],
    notes: &mut String,
) {
    let is_name = !is_pattern(operand.text) && operand.text != "-";
    let removes = removed.iter().any(|one| set.iter().any(|member| member.name == one.name));
    if operator == Operator::Difference && is_name && !removes && !Path::new(operand.text).exists()
    {
        let word = show_typed(operand.text);
        let why = "it is neither a file nor a host of the set before it";
        let note = format!("warning: `{word}` removes nothing: {why}\n");
        notes.push_str(&note);
    }
}

/// Returns the hosts of an operand: a file if it exists, else a list of hosts.
fn operand_members(
    operand: SetOperand<'_>,
    is_alone: bool,
    text: &str,
    args: &ShowArgs,
) -> Result<Vec<Member>, SetError> {
    let path = Path::new(operand.text);
    // An operand such as `n1:2` is a host with its slots.
    if hostfile::is_counted(operand.text) && hostfile::as_list(path).is_some() {
        return from_file(path, args);
    }
    if is_alone && !path.exists() && HostName::parse(operand.text).is_ok() {
        return Err(name_is_no_set(operand, text));
    }
    let is_list = is_pattern(operand.text) || !is_alone && !operand.text.contains('/');
    if operand.text == "-" || path.exists() || !is_list {
        return from_file(path, args);
    }
    let patterns = read_list(operand.text, operand.span.start).map_err(|problems| {
        let diagnostics = problems.iter().map(RangeProblem::diagnostic).collect();
        SetError::Text(Findings { source: source(text), diagnostics })
    })?;
    let names = patterns.iter().flat_map(|(pattern, _)| pattern.hosts());
    Ok(names.map(|name| Member { name, user: None, slots: None }).collect())
}

fn from_file(path: &Path, args: &ShowArgs) -> Result<Vec<Member>, SetError> {
    let reading = args.read.read(path).map_err(SetError::Load)?;
    let (reading, has_slots) = read_without_slots(reading);
    if reading.findings.has_errors() {
        return Err(SetError::Load(LoadError::Malformed(reading.findings)));
    }
    let hosts = reading.hostfile.hosts().iter();
    let member = |host: &Host| Member {
        name: host.name.clone(),
        user: host.user.clone(),
        slots: Some(host.slots).filter(|_| has_slots),
    };
    Ok(hosts.map(member).collect())
}

/// Reads a list of names without any slots again, with one slot for each host. The second value is
/// false if that was necessary: the slots of the hosts are not known.
fn read_without_slots(reading: Reading) -> (Reading, bool) {
    let mut errors = reading.findings.diagnostics.iter();
    let mut errors = errors.by_ref().filter(|found| found.severity == Severity::Error).peekable();
    let has_no_slots = reading.hostfile.hosts().is_empty() && errors.peek().is_some();
    if !has_no_slots || !errors.all(|found| found.code == codes::MISSING_SLOTS) {
        return (reading, true);
    }
    let options = ReadOptions { slots: SlotCount::new(1), ..ReadOptions::default() };
    let Source { name, text } = &reading.findings.source;
    let again = read_any(name, text.as_bytes(), options);
    if again.findings.has_errors() { (reading, true) } else { (again, false) }
}

/// Returns the error for a single name, which is probably a mistyped file and not a set.
fn name_is_no_set(operand: SetOperand<'_>, text: &str) -> SetError {
    let message = format!("hostfile `{}` does not exist", operand.text);
    let help = match hostfile::near_hostfile(Path::new(operand.text)) {
        Some(near) => format!("did you mean `{}`?", quoted(near)),
        None => "correct the path, or write a set: `alpha,beta`, `rack[1-3]`".to_owned(),
    };
    let problem = Diagnostic::error(codes::FILE_MISSING, operand.span, message)
        .label("no such file")
        .help(help);
    SetError::Text(Findings { source: source(text), diagnostics: vec![problem] })
}

fn operand_missing(text: &str, span: Span) -> SetError {
    let problem = Diagnostic::error(codes::BAD_SET, span, "the operator needs a set on each side")
        .help("the operators are `,`, `&`, `!` and `^`: `hosts & rack[1-3]`");
    SetError::Text(Findings { source: source(text), diagnostics: vec![problem] })
}

/// Returns the place of a `-` after a blank; standard input must be the first operand or follow an
/// operator.
fn find_minus(expression: &Expression<'_>, text: &str) -> Option<Span> {
    let mut operands = expression.terms.iter().map(|(_, operand)| operand).skip(1);
    let follows_set = |operand: &&SetOperand<'_>| {
        let before = text[..operand.span.start].trim_end();
        operand.text == "-" && !before.ends_with([',', '&', '!', '^'])
    };
    operands.find(follows_set).map(|operand| operand.span)
}

fn minus_is_no_operator(text: &str, span: Span) -> SetError {
    let problem = Diagnostic::error(codes::BAD_SET, span, "`-` is not an operator")
        .label("standard input, which must follow an operator")
        .help("the difference of two sets is `hosts ! rack[1-3]`");
    SetError::Text(Findings { source: source(text), diagnostics: vec![problem] })
}

/// Returns findings in the text of a set as findings in the command line that contains the text.
fn in_command_line(findings: &Findings) -> Findings {
    const COMMAND: &str = "remuda hostfile show ";
    let text = &findings.source.text;
    let shown = quoted(text);
    let Some(before) = shown.find(text.as_str()) else { return findings.clone() };
    let by = COMMAND.len() + before;
    let mut moved = findings.clone();
    moved.source = Source { name: "command line".to_owned(), text: format!("{COMMAND}{shown}") };
    for found in &mut moved.diagnostics {
        found.span = found.span.map(|span| span.shifted(by));
        for (span, _) in &mut found.related {
            *span = span.shifted(by);
        }
        if let Some(change) = &mut found.suggestion {
            change.span = change.span.shifted(by);
        }
    }
    moved
}

fn source(text: &str) -> Source {
    Source { name: "set".to_owned(), text: text.to_owned() }
}
