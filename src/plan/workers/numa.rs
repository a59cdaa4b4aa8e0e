//! Assignment of processors near GPUs to workers (`--numa-binding` of torchrun): torch's assignment, computed
//! from the topology of the worker's node.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::order;

use serde::{Deserialize, Serialize};

use super::cores::CoreShare;

/// Which processors a worker gets, as torch names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NumaBinding {
    /// All of the memory node of its GPU.
    Node,
    /// All of the socket of its GPU.
    Socket,
    /// Cores of the memory node of its GPU that no other worker has.
    Exclusive,
    /// Those of the memory node of its GPU that share a last-level cache.
    CoreComplex,
}

/// The processors and the GPUs of a node, as far as binding near GPUs needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaTopology {
    /// Memory nodes by number, each with its processors.
    pub nodes: Vec<(u32, Vec<u32>)>,
    /// Processors of each core.
    pub cores: Vec<Vec<u32>>,
    /// Processors that share a last-level cache.
    pub complexes: Vec<Vec<u32>>,
    /// Socket of each processor.
    pub sockets: BTreeMap<u32, u32>,
    /// Memory node of the GPU of each local rank.
    pub gpus: Vec<u32>,
}

/// Why processors near GPUs cannot be assigned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumaError {
    /// A worker has no GPU.
    #[error("visible GPUs: {gpus}, workers: {workers}")]
    NoGpu {
        /// Workers of the node.
        workers: usize,
        /// GPUs that they can see.
        gpus: usize,
    },
    /// No processor of a memory node may be used.
    #[error("no processor of memory node {node} can be used")]
    NoProcessor {
        /// Number of the memory node.
        node: u32,
    },
    /// Fewer cores than GPUs.
    #[error("memory node {node} has {cores} usable cores for {gpus} GPUs")]
    TooFewCores {
        /// Number of the memory node.
        node: u32,
        /// Its cores that may be used.
        cores: usize,
        /// GPUs near the memory node.
        gpus: usize,
    },
}

/// Assigns processors to the workers of a node, in the order of local ranks.
pub fn share_near_gpus(
    topology: &NumaTopology,
    usable: &[u32],
    binding: NumaBinding,
    workers: usize,
) -> Result<Vec<CoreShare>, NumaError> {
    if topology.gpus.len() < workers {
        return Err(NumaError::NoGpu { workers, gpus: topology.gpus.len() });
    }
    let near = Near { topology, usable };
    let share = |gpu: usize| {
        let cpus = near.cpus(gpu, binding)?;
        Ok(CoreShare { cpus: cpus.into_iter().collect(), memory: None })
    };
    (0..workers).map(share).collect()
}

struct Near<'a> {
    topology: &'a NumaTopology,
    usable: &'a [u32],
}

impl Near<'_> {
    fn cpus(&self, gpu: usize, binding: NumaBinding) -> Result<BTreeSet<u32>, NumaError> {
        let node = self.topology.gpus[gpu];
        let own = self.of_node(node);
        if own.is_empty() {
            return Err(NumaError::NoProcessor { node });
        }
        match binding {
            NumaBinding::Node => Ok(own),
            NumaBinding::Socket => Ok(self.of_socket(&own)),
            NumaBinding::Exclusive => self.exclusive(gpu, &own),
            NumaBinding::CoreComplex => Ok(self.complex(gpu, &own)),
        }
    }

    /// Usable processors of a memory node.
    fn of_node(&self, node: u32) -> BTreeSet<u32> {
        let found = self.topology.nodes.iter().find(|(number, _)| *number == node);
        let all = found.map_or(&[][..], |(_, cpus)| cpus);
        all.iter().filter(|cpu| self.usable.contains(cpu)).copied().collect()
    }

    /// Those of all memory nodes in the socket of the first of these processors.
    fn of_socket(&self, own: &BTreeSet<u32>) -> BTreeSet<u32> {
        let socket = |cpus: &BTreeSet<u32>| self.topology.sockets.get(cpus.first()?);
        let nodes = self.topology.nodes.iter().map(|(node, _)| self.of_node(*node));
        nodes.filter(|cpus| socket(cpus) == socket(own)).flatten().chain(own.clone()).collect()
    }

    /// Position of a GPU among those of its memory node, and their number.
    fn place(&self, gpu: usize) -> (usize, usize) {
        let node = self.topology.gpus[gpu];
        let is_same = |other: &&u32| **other == node;
        let gpus = &self.topology.gpus;
        (gpus[..gpu].iter().filter(is_same).count(), gpus.iter().filter(is_same).count())
    }

    /// Groups of these processors, each with the first processor of its whole group.
    fn groups(of: &[Vec<u32>], own: &BTreeSet<u32>) -> BTreeMap<u32, Vec<u32>> {
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for cpu in own {
            let group = of.iter().find(|group| group.contains(cpu));
            let first = group.and_then(|group| group.iter().min()).unwrap_or(cpu);
            groups.entry(*first).or_default().push(*cpu);
        }
        groups
    }

    fn exclusive(&self, gpu: usize, own: &BTreeSet<u32>) -> Result<BTreeSet<u32>, NumaError> {
        let cores = Self::groups(&self.topology.cores, own);
        let (index, gpus) = self.place(gpu);
        let (each, extra) = (cores.len() / gpus, cores.len() % gpus);
        if each == 0 {
            let node = self.topology.gpus[gpu];
            return Err(NumaError::TooFewCores { node, cores: cores.len(), gpus });
        }
        let start = index * each + index.min(extra);
        let count = each + usize::from(index < extra);
        Ok(cores.into_values().skip(start).take(count).flatten().collect())
    }

    fn complex(&self, gpu: usize, own: &BTreeSet<u32>) -> BTreeSet<u32> {
        let groups = Self::groups(&self.topology.complexes, own);
        let mut groups: Vec<(u32, Vec<u32>)> = groups.into_iter().collect();
        order::sort_by_key(&mut groups, |(first, cpus)| (std::cmp::Reverse(cpus.len()), *first));
        let index = self.place(gpu).0 % groups.len();
        groups.swap_remove(index).1.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets with two memory nodes each, four cores of two threads and two complexes in each node.
    fn machine(gpus: &[u32]) -> NumaTopology {
        let node = |node: u32| (0..4).flat_map(move |core| [node * 4 + core, 16 + node * 4 + core]);
        let complex = |at: u32| vec![2 * at, 2 * at + 1, 16 + 2 * at, 17 + 2 * at];
        NumaTopology {
            nodes: (0..4).map(|number| (number, node(number).collect())).collect(),
            cores: (0..16).map(|core| vec![core, core + 16]).collect(),
            complexes: (0..8).map(complex).collect(),
            sockets: (0..32).map(|cpu| (cpu, cpu % 16 / 8)).collect(),
            gpus: gpus.to_vec(),
        }
    }

    #[track_caller]
    fn check(gpus: &[u32], binding: NumaBinding, expect: &[&[u32]]) {
        let usable: Vec<u32> = (0..32).collect();
        let shares = share_near_gpus(&machine(gpus), &usable, binding, gpus.len());
        let found: Vec<_> = shares.expect("shares").into_iter().map(|share| share.cpus).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn workers_get_processors_near_their_gpus() {
        check(
            &[1, 0],
            NumaBinding::Node,
            &[&[4, 5, 6, 7, 20, 21, 22, 23], &[0, 1, 2, 3, 16, 17, 18, 19]],
        );
        let second: Vec<u32> = (8..16).chain(24..32).collect();
        check(&[2, 3], NumaBinding::Socket, &[&second, &second]);
        check(
            &[1, 1, 1, 0],
            NumaBinding::Exclusive,
            &[&[4, 5, 20, 21], &[6, 22], &[7, 23], &[0, 1, 2, 3, 16, 17, 18, 19]],
        );
        check(
            &[1, 1, 1],
            NumaBinding::CoreComplex,
            &[&[4, 5, 20, 21], &[6, 7, 22, 23], &[4, 5, 20, 21]],
        );
    }

    #[test]
    fn processors_that_may_not_be_used_are_left_out() {
        let usable = [4, 6, 7, 22, 23];
        let of =
            |binding, workers| share_near_gpus(&machine(&[1, 1, 1, 1]), &usable, binding, workers);
        let first = |binding| of(binding, 1).expect("shares").remove(0).cpus;
        assert_eq!(first(NumaBinding::Node), usable);
        assert_eq!(
            first(NumaBinding::CoreComplex),
            [6, 7, 22, 23],
            "the complex with most processors"
        );
        let few = NumaError::TooFewCores { node: 1, cores: 3, gpus: 4 };
        assert_eq!(of(NumaBinding::Exclusive, 1), Err(few));
        assert_eq!(of(NumaBinding::Node, 5), Err(NumaError::NoGpu { workers: 5, gpus: 4 }));
        let other = share_near_gpus(&machine(&[0]), &usable, NumaBinding::Node, 1);
        assert_eq!(other, Err(NumaError::NoProcessor { node: 0 }));
    }

    proptest::proptest! {
        #[test]
        fn exclusive_shares_are_disjoint(gpus in proptest::collection::vec(0u32..4, 1..12)) {
            let usable: Vec<u32> = (0..32).collect();
            let topology = machine(&gpus);
            if let Ok(shares) = share_near_gpus(&topology, &usable, NumaBinding::Exclusive, gpus.len()) {
                let all: Vec<u32> = shares.iter().flat_map(|share| share.cpus.clone()).collect();
                let distinct: BTreeSet<u32> = all.iter().copied().collect();
                proptest::prop_assert_eq!(all.len(), distinct.len());
                proptest::prop_assert!(shares.iter().all(|share| !share.cpus.is_empty()));
            }
        }
    }
}
