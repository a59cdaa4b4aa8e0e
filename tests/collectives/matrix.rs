//! Random combinations of placements × operations × types × sizes.

use remuda::runtime::{Bf16, F16, Group};

use crate::collectives::operations::{
    as_machines, check_all_to_all, check_broadcast, check_messages, check_reductions, check_ring,
    check_rooted, check_scatter,
};
use crate::collectives::sample::{OPS, Sample};
use crate::collectives::sharded::check_sharded;
use crate::support::proof::{Random, proof_cases};

/// Draws a placement: up to nine ranks on up to four nodes.
fn draw_nodes(random: &mut Random) -> Vec<usize> {
    let mut nodes = vec![1; 1 + random.below(4)];
    for _ in 0..random.below(10 - nodes.len()) {
        let node = random.below(nodes.len());
        nodes[node] += 1;
    }
    nodes
}

/// Draws a number of elements around the sizes at which algorithms change: none, one, a few, more than
/// fit beside the flags, more than fit a round.
fn draw_size(random: &mut Random) -> usize {
    let edges = [0, 1, 64, 512, 1024, 2048, 4096, 8192, 65_536, 131_072, 262_144, 900_000];
    let edge = edges[random.below(edges.len())];
    (edge + random.below(3)).saturating_sub(1)
}

fn check<T: Sample>(random: &mut Random, nodes: &[usize], size: usize) {
    let groups = match nodes {
        [ranks] => Group::threads(*ranks).unwrap(),
        nodes if random.below(2) == 0 => Group::threads_on(nodes).unwrap(),
        nodes => as_machines(nodes, 1 + random.below(5) as u8),
    };
    // Some operations transfer a part for each rank.
    let part = size / groups.len();
    match random.below(9) {
        0 => check_broadcast::<T>(groups, &[part]),
        1 => check_scatter::<T>(groups, &[part]),
        2 => check_all_to_all::<T>(groups, &[part / 5]),
        3 => check_rooted::<T>(groups, &[part]),
        4 if 1 < groups.len() => check_messages::<T>(groups, &[size]),
        5 => check_ring::<T>(groups, &[size]),
        6 | 7 => check_sharded::<T>(groups, &[part], &[OPS[random.below(OPS.len())]]),
        _ => check_reductions::<T>(groups, &[size]),
    }
}

/// `scripts/prove collectives 10000`: every case has the bits of the definition.
#[test]
fn prove_collectives() {
    let mut random = Random::from_seed();
    for _ in 0..proof_cases(30) {
        let (nodes, size) = (draw_nodes(&mut random), draw_size(&mut random));
        match random.below(7) {
            0 => check::<f32>(&mut random, &nodes, size),
            1 => check::<f64>(&mut random, &nodes, size),
            2 => check::<F16>(&mut random, &nodes, size),
            3 => check::<Bf16>(&mut random, &nodes, size),
            4 => check::<i32>(&mut random, &nodes, size),
            5 => check::<i64>(&mut random, &nodes, size),
            _ => check::<u8>(&mut random, &nodes, size),
        }
    }
}
