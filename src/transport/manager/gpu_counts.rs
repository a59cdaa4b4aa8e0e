//! The number of GPUs of the nodes of a Slurm job, from the variables of Slurm.

use crate::base::env_vars;

/// What Slurm says about the GPUs of a job.
#[derive(Clone, Copy, Debug, Default)]
pub struct GpuCounts {
    /// What was requested for every node (SLURM_GPUS_PER_NODE).
    pub per_node: Option<u32>,
    /// What this node has (SLURM_GPUS_ON_NODE).
    pub here: Option<u32>,
    /// What was requested for all nodes together (SLURM_GPUS).
    pub all: Option<u32>,
    /// Number of nodes (SLURM_NNODES).
    pub nodes: Option<u32>,
}

impl GpuCounts {
    /// Reads the variables of Slurm.
    pub fn of_environment() -> Self {
        let number = |name| env_vars::get_of_slurm(name)?.rsplit(':').next()?.parse::<u32>().ok();
        Self {
            per_node: number(env_vars::SLURM_GPUS_PER_NODE),
            here: number(env_vars::SLURM_GPUS_ON_NODE),
            all: number(env_vars::SLURM_GPUS),
            nodes: number(env_vars::SLURM_NNODES),
        }
    }

    /// Returns the number of GPUs of each node, if it is the same for all nodes.
    pub fn of_each_node(self) -> Option<u32> {
        let even = |here: u32| match (self.all, self.nodes) {
            (Some(all), Some(nodes)) => here.checked_mul(nodes) == Some(all),
            _ => true,
        };
        self.per_node.or_else(|| self.here.filter(|here| even(*here)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_of_unlike_nodes_have_no_number() {
        let here = GpuCounts { here: Some(8), nodes: Some(2), ..GpuCounts::default() };
        assert_eq!(here.of_each_node(), Some(8));
        assert_eq!(GpuCounts { all: Some(16), ..here }.of_each_node(), Some(8));
        assert_eq!(GpuCounts { all: Some(12), ..here }.of_each_node(), None);
        assert_eq!(GpuCounts { per_node: Some(4), ..here }.of_each_node(), Some(4));
        assert_eq!(GpuCounts::default().of_each_node(), None);
    }
}
