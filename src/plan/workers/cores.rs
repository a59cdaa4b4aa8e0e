//! Assignment of processors and memory to workers (`--bind_cores_to_rank`): DeepSpeed's assignment,
//! computed from the topology of the worker's node.

use serde::{Deserialize, Serialize};

/// The processors of a node, as far as binding needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Processors of each core, in ascending order; cores by their first processor.
    pub cores: Vec<Vec<u32>>,
    /// Memory nodes by number, each with its processors in ascending order.
    pub memory: Vec<(u32, Vec<u32>)>,
}

/// The processors and the memory of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreShare {
    /// Its processors, ascending, never empty.
    pub cpus: Vec<u32>,
    /// Its memory, where the node has a choice.
    pub memory: Option<NumaMemory>,
}

/// The memory nodes of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NumaMemory {
    /// From these nodes only.
    Bind(Vec<u32>),
    /// From this node while it has free memory.
    Prefer(u32),
}

/// Why processors cannot be assigned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoresError {
    /// The list names processors that this node does not have, or that remuda may not use.
    #[error("--bind_core_list: processors {} cannot be used on this node; {} can", ranges(.wanted), ranges(.usable))]
    NotUsable {
        /// Processors that are listed and not usable.
        wanted: Vec<u32>,
        /// All usable processors.
        usable: Vec<u32>,
    },
    /// Fewer processors than workers.
    #[error("{cores} cannot be shared by {workers} workers", cores = count(*.cores))]
    TooFew {
        /// Number of processors to assign.
        cores: usize,
        /// Workers of the node.
        workers: usize,
    },
}

impl CoresError {
    /// What the user can type instead.
    pub fn help(&self) -> String {
        match self {
            Self::NotUsable { usable, .. } => format!("use `--bind_core_list {}`", ranges(usable)),
            Self::TooFew { cores: 0, .. } => "leave --bind_cores_to_rank out".to_owned(),
            Self::TooFew { cores, .. } => {
                format!("use `-n {cores}`, or leave --bind_cores_to_rank out")
            }
        }
    }
}

/// Assigns processors to workers: those of `list`, or one usable processor of every core. Every
/// worker gets the same number, in the order of local ranks; a remainder stays idle.
pub fn share_cores(
    topology: &Topology,
    usable: &[u32],
    list: Option<&[u32]>,
    workers: usize,
) -> Result<Vec<CoreShare>, CoresError> {
    let cpus = match list {
        Some(list) => check_list(list, usable)?,
        None => first_of_each_core(topology, usable),
    };
    let share = cpus.len() / workers.max(1);
    if share == 0 {
        return Err(CoresError::TooFew { cores: cpus.len(), workers });
    }
    let layout = Layout::of(&topology.memory);
    let shares = cpus.chunks_exact(share).take(workers);
    let shares = shares.map(|cpus| CoreShare {
        cpus: cpus.to_vec(),
        memory: layout.memory(cpus, &topology.memory),
    });
    Ok(shares.collect())
}

fn check_list(list: &[u32], usable: &[u32]) -> Result<Vec<u32>, CoresError> {
    let wanted: Vec<u32> = list.iter().filter(|cpu| !usable.contains(cpu)).copied().collect();
    if wanted.is_empty() {
        return Ok(list.to_vec());
    }
    Err(CoresError::NotUsable { wanted, usable: usable.to_vec() })
}

/// One usable processor of each core. DeepSpeed takes the processors 0 to n − 1 for n cores, which
/// are different cores only where siblings are numbered far apart.
fn first_of_each_core(topology: &Topology, usable: &[u32]) -> Vec<u32> {
    let first = |core: &Vec<u32>| core.iter().find(|cpu| usable.contains(cpu)).copied();
    let mut cpus: Vec<u32> = topology.cores.iter().filter_map(first).collect();
    cpus.sort_unstable();
    cpus
}

/// The relation of memory nodes and processors.
enum Layout {
    /// One node has all memory: there is no choice.
    Uniform,
    /// Each node has processors of its own.
    Normal,
    /// As many nodes without processors as with: high-bandwidth memory, paired in order.
    FlatHbm(Vec<(u32, u32)>),
    /// Adjacent nodes with the same processors are one node in hardware.
    Fake(Vec<Vec<u32>>),
}

impl Layout {
    fn of(memory: &[(u32, Vec<u32>)]) -> Self {
        let numbers = |with: bool| {
            let of_kind = memory.iter().filter(move |(_, cpus)| cpus.is_empty() != with);
            of_kind.map(|(node, _)| *node).collect::<Vec<_>>()
        };
        let (with, without) = (numbers(true), numbers(false));
        let twins = merged_nodes(memory);
        if memory.len() < 2 {
            Self::Uniform
        } else if !without.is_empty() && with.len() == without.len() {
            Self::FlatHbm(with.into_iter().zip(without).collect())
        } else if !twins.is_empty() {
            Self::Fake(twins)
        } else {
            Self::Normal
        }
    }

    /// The memory of a worker, bound only if all its processors belong to one node.
    fn memory(&self, cpus: &[u32], memory: &[(u32, Vec<u32>)]) -> Option<NumaMemory> {
        let (home, _) = memory.iter().find(|(_, own)| cpus.iter().all(|cpu| own.contains(cpu)))?;
        match self {
            Self::Uniform => None,
            Self::Normal => Some(NumaMemory::Bind(vec![*home])),
            Self::FlatHbm(pairs) => {
                let pair = pairs.iter().find(|(with, _)| with == home);
                pair.map(|(_, without)| NumaMemory::Prefer(*without))
            }
            Self::Fake(groups) => {
                let group = groups.iter().find(|group| group.contains(home));
                group.map(|group| NumaMemory::Bind(group.clone()))
            }
        }
    }
}

/// Runs of two or more adjacent nodes with the same processors.
fn merged_nodes(memory: &[(u32, Vec<u32>)]) -> Vec<Vec<u32>> {
    let runs = memory.chunk_by(|(_, left), (_, right)| left == right && !left.is_empty());
    let groups = runs.filter(|run| 1 < run.len());
    groups.map(|run| run.iter().map(|(node, _)| *node).collect()).collect()
}

fn count(cores: usize) -> String {
    if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
}

/// Formats processors as `0,2-4`.
fn ranges(cpus: &[u32]) -> String {
    let runs = cpus.chunk_by(|left, right| left + 1 == *right);
    let shown = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        [only] => only.to_string(),
        [] => String::new(),
    });
    shown.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A topology; `memory` has the processors of each memory node.
    fn machine(cores: u32, memory: &[std::ops::Range<u32>]) -> Topology {
        let memory = memory.iter().map(|cpus| cpus.clone().collect());
        Topology {
            cores: (0..cores).map(|cpu| vec![cpu]).collect(),
            memory: (0..).zip(memory).collect(),
        }
    }

    /// Formats shares as arguments of numactl: `-m 0 -C 0-3`.
    fn shown(shares: Result<Vec<CoreShare>, CoresError>) -> Vec<String> {
        let share = |share: CoreShare| {
            let cpus = ranges(&share.cpus);
            match share.memory {
                None => format!("-C {cpus}"),
                Some(NumaMemory::Prefer(node)) => format!("-p {node} -C {cpus}"),
                Some(NumaMemory::Bind(nodes)) => {
                    let nodes: Vec<_> = nodes.iter().map(u32::to_string).collect();
                    format!("-m {} -C {cpus}", nodes.join(","))
                }
            }
        };
        match shares {
            Ok(shares) => shares.into_iter().map(share).collect(),
            Err(error) => vec![error.to_string()],
        }
    }

    #[track_caller]
    fn check(topology: &Topology, list: Option<&[u32]>, workers: usize, expect: &[&str]) {
        let usable: Vec<u32> = topology.cores.iter().flatten().copied().collect();
        assert_eq!(shown(share_cores(topology, &usable, list, workers)), expect);
    }

    #[test]
    fn two_sockets_are_divided_like_deepspeed() {
        let sockets = machine(8, &[0..4, 4..8]);
        check(&sockets, None, 1, &["-C 0-7"]);
        check(&sockets, None, 2, &["-m 0 -C 0-3", "-m 1 -C 4-7"]);
        check(&sockets, None, 3, &["-m 0 -C 0-1", "-m 0 -C 2-3", "-m 1 -C 4-5"]);
        check(
            &sockets,
            None,
            8,
            &[
                "-m 0 -C 0",
                "-m 0 -C 1",
                "-m 0 -C 2",
                "-m 0 -C 3",
                "-m 1 -C 4",
                "-m 1 -C 5",
                "-m 1 -C 6",
                "-m 1 -C 7",
            ],
        );
        check(&sockets, Some(&[0, 2, 3, 4, 6]), 2, &["-m 0 -C 0,2", "-C 3-4"]);
        check(&sockets, None, 9, &["8 cores cannot be shared by 9 workers"]);
        check(&sockets, Some(&[1]), 2, &["1 core cannot be shared by 2 workers"]);
    }

    #[test]
    fn high_bandwidth_memory_is_preferred() {
        let flat = machine(8, &[0..4, 4..8, 0..0, 0..0]);
        check(&flat, None, 2, &["-p 2 -C 0-3", "-p 3 -C 4-7"]);
        check(&flat, None, 1, &["-C 0-7"]);
        // Fewer nodes without processors than with: not the layout of high-bandwidth memory.
        check(&machine(8, &[0..4, 4..8, 0..0]), None, 2, &["-m 0 -C 0-3", "-m 1 -C 4-7"]);
    }

    #[test]
    fn fake_memory_nodes_of_a_socket_are_merged() {
        let fake = machine(8, &[0..4, 0..4, 4..8, 4..8]);
        check(&fake, None, 2, &["-m 0,1 -C 0-3", "-m 2,3 -C 4-7"]);
        // DeepSpeed binds no memory of a node that is not split.
        check(&machine(8, &[0..4, 0..4, 4..8]), None, 2, &["-m 0,1 -C 0-3", "-C 4-7"]);
    }

    #[test]
    fn uniform_memory_is_not_bound() {
        check(&machine(4, std::slice::from_ref(&(0..4))), None, 2, &["-C 0-1", "-C 2-3"]);
        check(&machine(4, &[]), None, 2, &["-C 0-1", "-C 2-3"]);
    }

    #[test]
    fn only_usable_processors_are_assigned() {
        let threads = Topology {
            cores: vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]],
            memory: vec![(0, (0..8).collect())],
        };
        let share =
            |usable: &[u32], list, workers| shown(share_cores(&threads, usable, list, workers));
        assert_eq!(share(&[0, 1, 2, 3, 4, 5, 6, 7], None, 2), ["-C 0-1", "-C 2-3"]);
        assert_eq!(share(&[1, 4, 5], None, 2), ["-C 1", "-C 4"]);
        let message = "--bind_core_list: processors 2-3 cannot be used on this node; 1,4-5 can";
        assert_eq!(share(&[1, 4, 5], Some(&[1, 2, 3]), 1), [message]);
        assert_eq!(share(&[4, 5], Some(&[4, 5]), 2), ["-C 4", "-C 5"]);
    }
}
