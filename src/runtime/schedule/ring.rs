//! Steps of a ring.

/// One step of a ring member: it sends one part to the next member and receives another part from the
/// previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingStep {
    /// Part that is sent to the next member.
    pub send: usize,
    /// Part that is received from the previous member.
    pub recv: usize,
}

/// Returns the steps of one of `members` members that first sends part `first` and then forwards the
/// part that it has received: after these steps, every member has had every part.
pub fn ring(members: usize, first: usize) -> impl Iterator<Item = RingStep> {
    let part = move |step: usize| (first + members - step) % members;
    (1..members).map(move |step| RingStep { send: part(step - 1), recv: part(step) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_sums_all_parts_and_distributes_them() {
        for count in 1..9 {
            // For each member and part, the members that have contributed to the sum.
            let mut sums: Vec<Vec<Vec<usize>>> =
                (0..count).map(|member| vec![vec![member]; count]).collect();
            let mut run = |first: fn(usize) -> usize, adds: bool| {
                for step in 0..count.saturating_sub(1) {
                    let before = sums.clone();
                    for (member, sums) in sums.iter_mut().enumerate() {
                        let previous = (member + count - 1) % count;
                        let steps = |member| ring(count, first(member)).nth(step).unwrap();
                        let RingStep { recv, .. } = steps(member);
                        assert_eq!(recv, steps(previous).send, "both sides name one part");
                        let received = &before[previous][recv];
                        let sum = &mut sums[recv];
                        if adds { sum.extend(received) } else { sum.clone_from(received) }
                    }
                }
            };
            run(|member| member, true);
            run(|member| member + 1, false);
            for parts in &mut sums {
                for part in parts {
                    part.sort_unstable();
                    assert!(part.iter().copied().eq(0..count), "{count} members: {part:?}");
                }
            }
        }
    }
}
