//! [`StepPlan`]: what a rank does for a micro-batch, as a list. Pure.
//!
//! The list is equal on all ranks, so operations are submitted in one order everywhere. A unit is gathered
//! before the pass that reads it and freed after it, unless the next pass reads it too. Units of the
//! following passes are gathered while a pass computes (prefetch). The gradient of a unit is opened before
//! the first backward pass that adds to it, and reduced after the last one.

use std::collections::VecDeque;
use std::ops::Range;

/// Kind of computation of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computation {
    /// The outputs of the pass.
    Forward,
    /// The outputs once more, because the activations of the pass were not kept.
    Recompute,
    /// The gradients.
    Backward,
}

/// Step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanStep {
    /// Begins to collect the parameters of a unit from all ranks.
    StartGather {
        /// Index of the unit.
        unit: usize,
    },
    /// Waits until the parameters of a unit are there.
    FinishGather {
        /// Index of the unit.
        unit: usize,
    },
    /// Releases the parameters that other ranks own.
    Free {
        /// Index of the unit.
        unit: usize,
    },
    /// Computes a pass of the model.
    Compute {
        /// Kind of computation.
        kind: Computation,
        /// Index of the pass.
        pass: usize,
    },
    /// Provides zeros for the gradient of a unit.
    OpenGradient {
        /// Index of the unit.
        unit: usize,
    },
    /// The gradient of a unit is complete; its reduction begins.
    StartReduce {
        /// Index of the unit.
        unit: usize,
    },
    /// Waits for the reduction of a unit.
    FinishReduce {
        /// Index of the unit.
        unit: usize,
    },
}

/// Which units are gathered while a pass computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Prefetch {
    /// Those of the next pass that reads a unit which is not gathered.
    NextPass,
    /// Those of the following passes, up to this number of elements; 0: none.
    Elements(usize),
}

/// Limits of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PlanOptions {
    /// Units that are gathered ahead of use.
    pub prefetch: Prefetch,
    /// Number of elements of gradients that are reduced at once; a larger unit is reduced alone, beside the
    /// backward pass of the next one.
    pub reduce_max: usize,
    /// Number of successive passes whose activations are computed again together; 0: all activations are
    /// kept.
    pub recompute: usize,
}

/// Passes of a model: what a plan needs to know of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanPass {
    /// Units that the pass reads, and to whose gradients its backward pass adds.
    pub units: Vec<usize>,
    /// Whether its activations can be computed again.
    pub can_recompute: bool,
}

/// Steps of a micro-batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepPlan {
    /// Steps of the forward pass.
    pub(crate) forward: Vec<PlanStep>,
    /// Steps of the backward pass.
    pub(crate) backward: Vec<PlanStep>,
}

impl StepPlan {
    /// Plans a micro-batch over `passes`, in the order of the forward pass. `unit_lens` are the elements of
    /// the units.
    pub(crate) fn training(passes: &[PlanPass], unit_lens: &[usize], options: PlanOptions) -> Self {
        let segments = segments(passes, options.recompute);
        let mut planner = Planner::new(passes, unit_lens, options);
        planner.order.extend((0..passes.len()).map(|pass| (Computation::Forward, pass)));
        let forward = planner.order.len();
        for segment in segments.iter().rev() {
            if segment.recomputes {
                planner
                    .order
                    .extend(segment.passes.clone().map(|pass| (Computation::Recompute, pass)));
            }
            planner
                .order
                .extend(segment.passes.clone().rev().map(|pass| (Computation::Backward, pass)));
        }
        planner.plan(forward)
    }

    /// Plans a forward pass alone.
    pub(crate) fn evaluation(
        passes: &[PlanPass],
        unit_lens: &[usize],
        options: PlanOptions,
    ) -> Self {
        let mut planner = Planner::new(passes, unit_lens, options);
        planner.order.extend((0..passes.len()).map(|pass| (Computation::Forward, pass)));
        planner.plan(passes.len())
    }

    /// Returns all steps in order.
    #[cfg(test)]
    fn steps(&self) -> impl Iterator<Item = &PlanStep> {
        self.forward.iter().chain(&self.backward)
    }
}

/// Successive passes whose activations are kept or computed again together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecomputeSegment {
    /// Successive passes of the model.
    pub passes: Range<usize>,
    /// Whether their activations are computed again.
    pub recomputes: bool,
}

/// Divides passes into segments of at most `len` passes that can be computed again; other passes, and all
/// passes if `len` is 0, are segments of their own whose activations are kept.
pub(crate) fn segments(passes: &[PlanPass], len: usize) -> Vec<RecomputeSegment> {
    let mut segments: Vec<RecomputeSegment> = Vec::new();
    for (index, pass) in passes.iter().enumerate() {
        let recomputes = pass.can_recompute && 0 < len;
        match segments.last_mut() {
            Some(last) if recomputes && last.recomputes && last.passes.len() < len => {
                last.passes.end = index + 1;
            }
            _ => segments.push(RecomputeSegment { passes: index..index + 1, recomputes }),
        }
    }
    segments
}

/// Parameters of a unit while a plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gathered {
    No,
    Started,
    Yes,
}

/// A plan that is being made.
struct Planner<'a> {
    passes: &'a [PlanPass],
    unit_lens: &'a [usize],
    options: PlanOptions,
    /// Computations in order.
    order: Vec<(Computation, usize)>,
    gathered: Vec<Gathered>,
    has_gradient: Vec<bool>,
    /// Units whose gradients are being reduced, oldest first.
    reducing: VecDeque<usize>,
    steps: Vec<PlanStep>,
}

impl<'a> Planner<'a> {
    fn new(passes: &'a [PlanPass], unit_lens: &'a [usize], options: PlanOptions) -> Self {
        Self {
            passes,
            unit_lens,
            options,
            order: Vec::new(),
            gathered: vec![Gathered::No; unit_lens.len()],
            has_gradient: vec![false; unit_lens.len()],
            reducing: VecDeque::new(),
            steps: Vec::new(),
        }
    }

    /// Plans all computations; the first `forward` of them are the forward pass.
    fn plan(mut self, forward: usize) -> StepPlan {
        let mut backward_at = 0;
        for at in 0..self.order.len() {
            if at == forward {
                backward_at = self.steps.len();
            }
            self.gather(at);
            self.compute(at);
            self.free(at);
        }
        if self.order.len() == forward {
            backward_at = self.steps.len();
        }
        while let Some(unit) = self.reducing.pop_front() {
            self.steps.push(PlanStep::FinishReduce { unit });
        }
        let backward = self.steps.split_off(backward_at);
        StepPlan { forward: self.steps, backward }
    }

    fn units(&self, at: usize) -> &'a [usize] {
        &self.passes[self.order[at].1].units
    }

    /// Gathers the units of a computation, and starts to gather those of the following ones.
    fn gather(&mut self, at: usize) {
        for &unit in self.units(at) {
            self.start_gather(unit);
        }
        for &unit in self.units(at) {
            if self.gathered[unit] == Gathered::Started {
                self.steps.push(PlanStep::FinishGather { unit });
                self.gathered[unit] = Gathered::Yes;
            }
        }
        self.gather_ahead(at);
    }

    /// Starts to gather the units of the computations after this one, as far as the options allow.
    fn gather_ahead(&mut self, at: usize) {
        match self.options.prefetch {
            Prefetch::NextPass => self.gather_next_pass(at),
            Prefetch::Elements(limit) => self.gather_elements(at, limit),
        }
    }

    fn gather_next_pass(&mut self, at: usize) {
        let is_gathered = |unit: &usize| self.gathered[*unit] == Gathered::Yes;
        let mut later = at + 1..self.order.len();
        if let Some(next) = later.find(|later| !self.units(*later).iter().all(is_gathered)) {
            for &unit in self.units(next) {
                self.start_gather(unit);
            }
        }
    }

    fn gather_elements(&mut self, at: usize, limit: usize) {
        let units = self.unit_lens.iter().zip(&self.gathered);
        let started = units.filter(|(_, gathered)| **gathered == Gathered::Started);
        let mut ahead: usize = started.map(|(len, _)| len).sum();
        for later in at + 1..self.order.len() {
            for &unit in self.units(later) {
                if self.gathered[unit] == Gathered::No {
                    ahead += self.unit_lens[unit];
                    if limit < ahead {
                        return;
                    }
                    self.start_gather(unit);
                }
            }
        }
    }

    fn start_gather(&mut self, unit: usize) {
        if self.gathered[unit] == Gathered::No {
            self.steps.push(PlanStep::StartGather { unit });
            self.gathered[unit] = Gathered::Started;
        }
    }

    fn compute(&mut self, at: usize) {
        let (kind, pass) = self.order[at];
        let units = self.units(at);
        if kind == Computation::Backward {
            for &unit in units.iter().filter(|unit| !self.has_gradient[**unit]) {
                self.steps.push(PlanStep::OpenGradient { unit });
            }
            for &unit in units {
                self.has_gradient[unit] = true;
            }
        }
        self.steps.push(PlanStep::Compute { kind, pass });
        if kind == Computation::Backward {
            for &unit in units {
                if !self.is_added_to_later(unit, at) {
                    self.reduce(unit);
                }
            }
        }
    }

    fn is_added_to_later(&self, unit: usize, at: usize) -> bool {
        let later = &self.order[at + 1..];
        later.iter().any(|(kind, pass)| {
            *kind == Computation::Backward && self.passes[*pass].units.contains(&unit)
        })
    }

    fn reduce(&mut self, unit: usize) {
        let in_flight = |reducing: &VecDeque<usize>| {
            reducing.iter().map(|unit| self.unit_lens[*unit]).sum::<usize>()
        };
        while !self.reducing.is_empty()
            && self.options.reduce_max < in_flight(&self.reducing) + self.unit_lens[unit]
        {
            let oldest = self.reducing.pop_front().expect("a unit is being reduced");
            self.steps.push(PlanStep::FinishReduce { unit: oldest });
        }
        self.steps.push(PlanStep::StartReduce { unit });
        self.reducing.push_back(unit);
    }

    /// Frees the units that the next computation does not read.
    fn free(&mut self, at: usize) {
        let next = if at + 1 < self.order.len() { self.units(at + 1) } else { &[] };
        for &unit in self.units(at).iter().filter(|unit| !next.contains(unit)) {
            self.steps.push(PlanStep::Free { unit });
            self.gathered[unit] = Gathered::No;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pass(units: &[usize]) -> PlanPass {
        PlanPass { units: units.to_vec(), can_recompute: units.len() == 1 && units[0] != 0 }
    }

    /// A plan in short: `G` start to gather, `g` finish, `f` free, `F`, `R`, `B` compute, `o` open a
    /// gradient, `S` start to reduce, `s` finish.
    fn text(steps: &[PlanStep]) -> String {
        let word = |step: &PlanStep| match step {
            PlanStep::StartGather { unit } => format!("G{unit}"),
            PlanStep::FinishGather { unit } => format!("g{unit}"),
            PlanStep::Free { unit } => format!("f{unit}"),
            PlanStep::Compute { kind: Computation::Forward, pass } => format!("F{pass}"),
            PlanStep::Compute { kind: Computation::Recompute, pass } => format!("R{pass}"),
            PlanStep::Compute { kind: Computation::Backward, pass } => format!("B{pass}"),
            PlanStep::OpenGradient { unit } => format!("o{unit}"),
            PlanStep::StartReduce { unit } => format!("S{unit}"),
            PlanStep::FinishReduce { unit } => format!("s{unit}"),
        };
        steps.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn check(options: PlanOptions, forward: &str, backward: &str) {
        // Like a GPT: an embedding (0), two blocks (1, 2), and a head that reads its norm (3) and the
        // embedding again.
        let passes = [pass(&[0]), pass(&[1]), pass(&[2]), pass(&[3, 0])];
        let plan = StepPlan::training(&passes, &[10, 20, 20, 1], options);
        assert_eq!(text(&plan.forward), forward);
        assert_eq!(text(&plan.backward), backward);
    }

    const PLAIN: PlanOptions =
        PlanOptions { prefetch: Prefetch::Elements(0), reduce_max: 1000, recompute: 0 };

    #[test]
    fn step_plan_gathers_computes_reduces_and_frees() {
        check(
            PLAIN,
            "G0 g0 F0 f0 G1 g1 F1 f1 G2 g2 F2 f2 G3 G0 g3 g0 F3",
            "o3 o0 B3 S3 f3 f0 G2 g2 o2 B2 S2 f2 G1 g1 o1 B1 S1 f1 G0 g0 B0 S0 f0 s3 s2 s1 s0",
        );
    }

    #[test]
    fn step_plan_gathers_the_next_pass_ahead() {
        check(
            PlanOptions { prefetch: Prefetch::NextPass, reduce_max: 0, recompute: 1 },
            "G0 g0 G1 F0 f0 g1 G2 F1 f1 g2 G3 G0 F2 f2 g3 g0 G2 F3",
            "o3 o0 B3 S3 f3 f0 g2 G1 R2 o2 B2 s3 S2 f2 g1 G0 R1 o1 B1 s2 S1 f1 g0 B0 s1 S0 f0 s0",
        );
    }

    #[test]
    fn step_plan_gathers_ahead_within_the_limit() {
        check(
            PlanOptions { prefetch: Prefetch::Elements(20), ..PLAIN },
            "G0 g0 G1 F0 f0 g1 G2 F1 f1 g2 G3 G0 F2 f2 g3 g0 G2 F3",
            "o3 o0 B3 S3 f3 f0 g2 G1 o2 B2 S2 f2 g1 G0 o1 B1 S1 f1 g0 B0 S0 f0 s3 s2 s1 s0",
        );
    }

    #[test]
    fn step_plan_bounds_the_gradients_in_flight() {
        check(
            PlanOptions { reduce_max: 25, ..PLAIN },
            "G0 g0 F0 f0 G1 g1 F1 f1 G2 g2 F2 f2 G3 G0 g3 g0 F3",
            "o3 o0 B3 S3 f3 f0 G2 g2 o2 B2 S2 f2 G1 g1 o1 B1 s3 s2 S1 f1 G0 g0 B0 s1 S0 f0 s0",
        );
    }

    #[test]
    fn step_plan_computes_dropped_activations_again() {
        check(
            PlanOptions { recompute: 2, ..PLAIN },
            "G0 g0 F0 f0 G1 g1 F1 f1 G2 g2 F2 f2 G3 G0 g3 g0 F3",
            "o3 o0 B3 S3 f3 f0 G1 g1 R1 f1 G2 g2 R2 o2 B2 S2 f2 G1 g1 o1 B1 S1 f1 G0 g0 B0 S0 f0 \
             s3 s2 s1 s0",
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Every computation finds its units gathered and its gradients open; at the end nothing is gathered
        /// or in flight, and the gradient of every unit that is read was reduced once.
        #[test]
        fn step_plan_keeps_its_promises(
            units in proptest::collection::vec(proptest::collection::btree_set(0usize..6, 1..4), 1..8),
            lens in proptest::collection::vec(1usize..50, 6),
            prefetch in prop_oneof![
                Just(Prefetch::NextPass),
                (0usize..120).prop_map(Prefetch::Elements),
            ],
            reduce_max in 0usize..120,
            recompute in 0usize..4,
        ) {
            let passes: Vec<PlanPass> = units
                .iter()
                .map(|units| pass(&units.iter().copied().collect::<Vec<_>>()))
                .collect();
            let options = PlanOptions { prefetch, reduce_max, recompute };
            let plan = StepPlan::training(&passes, &lens, options);
            let mut gathered = [Gathered::No; 6];
            let mut reduced = [0; 6];
            let mut open = [false; 6];
            let mut in_flight = VecDeque::new();
            for step in plan.steps() {
                match *step {
                    PlanStep::StartGather { unit } => {
                        prop_assert_eq!(gathered[unit], Gathered::No);
                        gathered[unit] = Gathered::Started;
                    }
                    PlanStep::FinishGather { unit } => {
                        prop_assert_eq!(gathered[unit], Gathered::Started);
                        gathered[unit] = Gathered::Yes;
                    }
                    PlanStep::Free { unit } => {
                        prop_assert_eq!(gathered[unit], Gathered::Yes);
                        gathered[unit] = Gathered::No;
                    }
                    PlanStep::Compute { kind, pass } => {
                        for &unit in &passes[pass].units {
                            prop_assert_eq!(gathered[unit], Gathered::Yes);
                            prop_assert!(kind != Computation::Backward || open[unit]);
                        }
                    }
                    PlanStep::OpenGradient { unit } => {
                        prop_assert!(!open[unit]);
                        open[unit] = true;
                    }
                    PlanStep::StartReduce { unit } => {
                        prop_assert!(open[unit]);
                        reduced[unit] += 1;
                        in_flight.push_back(unit);
                        let elements: usize = in_flight.iter().map(|unit: &usize| lens[*unit]).sum();
                        prop_assert!(elements <= reduce_max || in_flight.len() == 1);
                    }
                    PlanStep::FinishReduce { unit } => {
                        prop_assert_eq!(in_flight.pop_front(), Some(unit));
                    }
                }
            }
            prop_assert!(in_flight.is_empty());
            prop_assert!(gathered.iter().all(|state| *state == Gathered::No));
            for (unit, times) in reduced.into_iter().enumerate() {
                let is_read = passes.iter().any(|pass| pass.units.contains(&unit));
                prop_assert_eq!(times, usize::from(is_read));
            }
        }
    }
}
