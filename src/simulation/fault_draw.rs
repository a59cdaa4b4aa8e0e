//! Draws the faults of a run: their kinds, the nodes or ranks that they hit, and their times.

use super::clock::{MS, SECOND};
use super::draw::Draw;
use super::network::Way;
use super::scenario::{InjectedFault, InjectedKind, Scenario};
use crate::launch::scale::proof::Random;

/// Number of kinds of faults of jobs whose number of nodes is fixed.
const FIXED_KINDS: usize = 24;
/// Time around another fault in which a fault hits what the other one has begun.
const NEARBY: u64 = 2 * SECOND;

impl Scenario {
    /// Draws a fault of a job whose number of nodes is fixed.
    pub(super) fn draw_fault(&self, random: &mut Random) -> InjectedFault {
        let node = random.below(self.workers.len());
        let rank = random.below(self.habits.len());
        // Around the lease, where the decisions are.
        let silence = match random.below(3) {
            0 => random.between(MS, self.lease / 2),
            1 => random.between(self.lease / 2, self.lease * 3 / 2),
            _ => random.between(self.lease * 3 / 2, self.lease * 4),
        };
        let kind = match random.below(FIXED_KINDS + 4) {
            0 | 24 => InjectedKind::WorkerExits { rank, code: 1 + random.below(255) as u8 },
            1 | 25 => InjectedKind::WorkerIsKilled { rank, signal: [9, 9, 11, 6][random.below(4)] },
            2 => InjectedKind::CannotExecute { node },
            3 => InjectedKind::Refuses { node },
            4 => InjectedKind::AgentIsKilled { node },
            5 => InjectedKind::ShimIsKilled { node },
            6 => InjectedKind::AgentIsSuspended { node, time: silence },
            7 => InjectedKind::ShimIsSuspended { node, time: silence },
            8 => InjectedKind::NodeIsSuspended { node, time: silence },
            9 => {
                let back_after = random.one_in(2).then(|| random.between(SECOND, 90 * SECOND));
                InjectedKind::PowerFails { node, back_after }
            }
            10 => InjectedKind::LinkBreaks { node },
            11 | 26 => InjectedKind::LinkIsCut { node, time: silence },
            12 | 27 => {
                let way = Way::BOTH[random.below(2)];
                InjectedKind::OneWayIsCut { node, way, time: silence }
            }
            13 => InjectedKind::NodeIsLate { node, time: random.between(SECOND, 90 * SECOND) },
            14 => InjectedKind::DiskIsSlow { node, time: random.between(SECOND, 90 * SECOND) },
            15 => InjectedKind::LauncherDiskIsSlow { time: random.between(SECOND, 60 * SECOND) },
            16 => InjectedKind::LauncherIsKilled,
            17 => InjectedKind::LauncherLosesPower,
            18 => InjectedKind::LauncherIsSuspended { time: silence },
            19 => InjectedKind::JobIsSuspended { time: silence },
            20 => InjectedKind::UserSignals { signal: [2, 15, 2, 1][random.below(4)] },
            21 => InjectedKind::NodeIsEvicted { node },
            22 => InjectedKind::EverythingIsSuspended { time: silence },
            _ => InjectedKind::LauncherIsReplaced { after: random.between(SECOND, 30 * SECOND) },
        };
        let at = match kind {
            // These exist before the launcher asks.
            InjectedKind::CannotExecute { .. }
            | InjectedKind::Refuses { .. }
            | InjectedKind::NodeIsLate { .. } => 0,
            _ => random.between(0, self.run_time.min(40 * SECOND) + 5 * SECOND),
        };
        InjectedFault { at, kind }
    }

    /// Draws a fault of a job whose number of nodes may vary: more of those that change which nodes are there.
    pub(super) fn draw_elastic_fault(&self, random: &mut Random) -> InjectedFault {
        let node = random.below(self.workers.len());
        let rank = random.below(self.habits.len());
        let kind = match random.below(20) {
            0 | 1 => InjectedKind::WorkerExits { rank, code: 1 + random.below(255) as u8 },
            2 => InjectedKind::WorkerIsKilled { rank, signal: 9 },
            3 => InjectedKind::AgentIsKilled { node },
            4 => InjectedKind::ShimIsKilled { node },
            5 | 6 => {
                let back_after = Some(random.between(SECOND, 40 * SECOND));
                InjectedKind::PowerFails { node, back_after }
            }
            7 => InjectedKind::LinkBreaks { node },
            8 | 9 => InjectedKind::LinkIsCut { node, time: random.between(MS, 4 * self.lease) },
            10..=12 => {
                InjectedKind::NodeIsLate { node, time: random.between(100 * MS, 50 * SECOND) }
            }
            13..=15 => InjectedKind::NodeIsEvicted { node },
            16 => InjectedKind::NodeKeepsFailing { node },
            17 if random.one_in(3) => InjectedKind::Refuses { node },
            _ => return self.draw_fault(random),
        };
        let last = self.run_time.min(60 * SECOND);
        let at = match (random.below(6), self.faults.last()) {
            (0 | 1, Some(other)) => other.at + random.between(0, NEARBY),
            (2, _) => last + random.between(0, NEARBY),
            _ => random.between(0, last + 5 * SECOND),
        };
        let is_early =
            matches!(kind, InjectedKind::Refuses { .. } | InjectedKind::NodeIsLate { .. });
        InjectedFault { at: if is_early { 0 } else { at }, kind }
    }
}
