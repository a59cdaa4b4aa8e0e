//! Probe of a directory: whether all ranks see each other's files in it.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::runtime::checkpoint::agree::{broadcast, collect, own_place};
use crate::runtime::checkpoint::commit::new_token;
use crate::runtime::checkpoint::error::{RankPlace, RankProblem, SaveError};
use crate::runtime::checkpoint::names::probe_name;
use crate::runtime::comm::group::Group;

/// Attempts to find a file of another host: a network file system may remember for a moment that the directory
/// did not have it.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// What a rank has found.
#[derive(Debug, Serialize, Deserialize)]
enum Finding {
    /// It sees the file of rank 0, and has created its own.
    Shared,
    /// It does not see the file of rank 0.
    NotShared(RankPlace),
    /// It cannot create a file.
    Problem(RankProblem),
}

/// Decision of rank 0.
#[derive(Debug, Serialize, Deserialize)]
enum ProbeVerdict {
    Shared,
    NotShared(Vec<RankPlace>),
    Failed(Vec<RankProblem>),
}

/// Checks that all ranks see and can write the same directory; creates it if it does not exist. All ranks of
/// the group call it.
///
/// # Errors
/// [`SaveError::NotShared`] names the ranks whose hosts have another directory there; [`SaveError::Failed`]
/// the ranks that cannot write.
pub fn check_shared_directory(group: &Group, dir: &Path) -> Result<(), SaveError> {
    let is_first = group.rank() == 0;
    let begun: Option<Result<u64, RankProblem>> = is_first.then(|| begin(group, dir));
    let token = match broadcast(group, begun.as_ref())? {
        Ok(token) => token,
        Err(problem) => return refused(dir, ProbeVerdict::Failed(vec![problem])),
    };
    let own = dir.join(probe_name(token, group.rank()));
    let finding = if is_first { Finding::Shared } else { look(group, dir, token) };
    let outcome = collect(group, &finding).and_then(|findings| {
        let verdict = is_first.then(|| decide(group, dir, token, findings));
        broadcast(group, verdict.as_ref())
    });
    let _ = fs::remove_file(own);
    refused(dir, outcome?)
}

fn refused(dir: &Path, verdict: ProbeVerdict) -> Result<(), SaveError> {
    match verdict {
        ProbeVerdict::Shared => Ok(()),
        ProbeVerdict::NotShared(ranks) => Err(SaveError::NotShared { dir: dir.to_owned(), ranks }),
        ProbeVerdict::Failed(problems) => {
            Err(SaveError::Failed { path: dir.to_owned(), problems, space: None })
        }
    }
}

/// Creates the directory and the file of rank 0.
fn begin(group: &Group, dir: &Path) -> Result<u64, RankProblem> {
    let token = new_token();
    fs::create_dir_all(dir)
        .map_err(|error| RankProblem::of_directory(&own_place(group), dir, &error))?;
    let text = format!("cannot write a file in `{}`", dir.display());
    create(dir, token, 0)
        .map_err(|error| RankProblem::of_file(&own_place(group), &text, &error))?;
    Ok(token)
}

fn create(dir: &Path, token: u64, rank: usize) -> io::Result<()> {
    fs::write(dir.join(probe_name(token, rank)), token.to_string())
}

fn look(group: &Group, dir: &Path, token: u64) -> Finding {
    let place = own_place(group);
    if !sees(dir, token, 0) {
        return Finding::NotShared(place);
    }
    let text = format!("cannot write a file in `{}`", dir.display());
    match create(dir, token, group.rank()) {
        Ok(()) => Finding::Shared,
        Err(error) => Finding::Problem(RankProblem::of_file(&place, &text, &error)),
    }
}

fn sees(dir: &Path, token: u64, rank: usize) -> bool {
    let path = dir.join(probe_name(token, rank));
    (0..ATTEMPTS).any(|attempt| {
        if 0 < attempt {
            thread::sleep(PAUSE);
        }
        fs::read_to_string(&path).is_ok_and(|text| text == token.to_string())
    })
}

fn decide(group: &Group, dir: &Path, token: u64, findings: Vec<Finding>) -> ProbeVerdict {
    let (mut problems, mut other) = (Vec::new(), Vec::new());
    for (rank, finding) in findings.into_iter().enumerate() {
        match finding {
            Finding::Problem(problem) => problems.push(problem),
            Finding::NotShared(place) => other.push(place),
            Finding::Shared if sees(dir, token, rank) => {}
            Finding::Shared => other.push(super::agree::place_of(group, rank)),
        }
    }
    if !other.is_empty() {
        ProbeVerdict::NotShared(other)
    } else if problems.is_empty() {
        ProbeVerdict::Shared
    } else {
        ProbeVerdict::Failed(problems)
    }
}
