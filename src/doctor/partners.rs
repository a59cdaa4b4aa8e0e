//! Choice of the test connections between nodes. Pure.

/// Largest number of nodes of which every one connects to every other.
const ALL_MAX: usize = 64;

/// For each node, the nodes that it connects to. With more than 64 nodes, and unless `all` is set,
/// each node connects to those at the distances 1, 2, 4 and so on, so that every node is the target
/// of equally many connections.
pub(super) fn partners_of_nodes(nodes: usize, all: bool) -> Vec<Vec<usize>> {
    let of = |node: usize| -> Vec<usize> {
        if all || nodes <= ALL_MAX {
            return (0..nodes).filter(|other| *other != node).collect();
        }
        let distances = std::iter::successors(Some(1), |distance| Some(distance * 2));
        let distances = distances.take_while(|distance| *distance < nodes);
        distances.map(|distance| (node + distance) % nodes).collect()
    };
    (0..nodes).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partners_of_few_nodes_are_all_others() {
        assert_eq!(partners_of_nodes(3, false), [vec![1, 2], vec![0, 2], vec![0, 1]]);
        assert!(partners_of_nodes(1, false)[0].is_empty());
        assert_eq!(partners_of_nodes(100, true)[7].len(), 99);
    }

    proptest::proptest! {
        /// No node connects to itself or to a node twice; every node is the target of as many
        /// connections as it makes.
        #[test]
        fn partners_are_distributed_evenly(nodes in 2usize..300, all: bool) {
            let partners_of = partners_of_nodes(nodes, all);
            let mut asked = vec![0; nodes];
            for (node, partners) in partners_of.iter().enumerate() {
                let mut seen = partners.clone();
                seen.sort_unstable();
                seen.dedup();
                proptest::prop_assert!(seen.len() == partners.len() && !seen.contains(&node));
                for partner in partners {
                    asked[*partner] += 1;
                }
            }
            proptest::prop_assert!(asked.iter().all(|times| *times == partners_of[0].len()));
        }
    }
}
