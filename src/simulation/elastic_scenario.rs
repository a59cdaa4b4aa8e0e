//! What a seed stands for if the number of nodes may vary: the sizes that are allowed.

use std::time::Duration;

use super::draw::Draw;
use super::scenario::{Habits, Reach, Scenario};
use crate::job::{ElasticNodes, MeetingPoint, Newcomers, OnFailure, OnTerm, Policy};
use crate::launch::scale::proof::Random;

impl Scenario {
    /// Lets the number of nodes vary, in one of three seeds.
    pub(super) fn vary_nodes(&mut self, random: &mut Random) {
        if !random.one_in(3) {
            return;
        }
        let more = [2, 3, 5][random.below(3)];
        let nodes = 2 + random.below(more);
        let (is_equal, each) = (!random.one_in(3), 1 + random.below(2) as u32);
        let workers =
            |random: &mut Random| if is_equal { each } else { 1 + random.below(3) as u32 };
        self.workers = (0..nodes).map(|_| workers(random)).collect();
        let ranks = self.workers.iter().sum::<u32>() as usize;
        self.habits = (0..ranks).map(|_| Habits::draw(random)).collect();
        self.policy = Policy {
            failure: OnFailure::StopAll,
            restarts_max: [0, 1, 3, 10][random.below(4)],
            on_term: if self.reach == Reach::Dial { OnTerm::EndNode } else { OnTerm::EndJob },
            elastic: Some(self.draw_elastic(random, is_equal)),
            ..self.policy
        };
        let count = [0, 1, 2, 2, 3, 3, 4, 6][random.below(8)];
        self.faults.clear();
        for _ in 0..count {
            let fault = self.draw_elastic_fault(random);
            self.faults.push(fault);
        }
        self.faults.sort_by_key(|fault| fault.at);
    }

    fn draw_elastic(&self, random: &mut Random, is_equal: bool) -> ElasticNodes {
        let nodes = self.workers.len();
        let last_call = Duration::from_millis([0, 800, 5_000, 30_000][random.below(4)]);
        let newcomers = if random.one_in(3) { Newcomers::AtNextStart } else { Newcomers::AtOnce };
        if self.reach == Reach::Dial {
            return ElasticNodes {
                min: 1 + random.below(nodes),
                max: nodes,
                meeting: MeetingPoint::Node0,
                last_call,
                newcomers,
                excludes_failing: false,
                lanes: None,
            };
        }
        let max = nodes - random.below(3).min(nodes - 1);
        let all = self.workers.iter().sum::<u32>() as usize;
        let lanes = [all, 2 * all, 3 * all, 12][random.below(4)];
        ElasticNodes {
            min: 1 + random.below(max),
            max,
            meeting: MeetingPoint::Launcher,
            last_call,
            newcomers,
            excludes_failing: random.one_in(2),
            // The nodes of such a job are alike.
            lanes: Some(lanes).filter(|_| is_equal && random.one_in(2)),
        }
    }
}
