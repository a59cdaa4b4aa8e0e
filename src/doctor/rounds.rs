//! Who knocks at whose door. Pure.

/// Up to so many nodes everybody knocks at everybody.
const ALL_MAX: usize = 64;

/// For each node the nodes at whose doors it knocks. Of many nodes each asks its neighbours at the
/// distances 1, 2, 4 and so on, unless all are wanted: every node is asked by as many.
pub(super) fn partners(nodes: usize, all: bool) -> Vec<Vec<usize>> {
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
    fn few_nodes_ask_everybody() {
        assert_eq!(partners(3, false), [vec![1, 2], vec![0, 2], vec![0, 1]]);
        assert!(partners(1, false)[0].is_empty());
        assert_eq!(partners(100, true)[7].len(), 99);
    }

    proptest::proptest! {
        /// Nobody asks itself or anybody twice; everybody is asked, by as many as it asks.
        #[test]
        fn everybody_is_asked_as_often_as_it_asks(nodes in 2usize..300, all: bool) {
            let rounds = partners(nodes, all);
            let mut asked = vec![0; nodes];
            for (node, partners) in rounds.iter().enumerate() {
                let mut seen = partners.clone();
                seen.sort_unstable();
                seen.dedup();
                proptest::prop_assert!(seen.len() == partners.len() && !seen.contains(&node));
                for partner in partners {
                    asked[*partner] += 1;
                }
            }
            proptest::prop_assert!(asked.iter().all(|times| *times == rounds[0].len()));
        }
    }
}
