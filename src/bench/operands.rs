//! Operands of one measured operation: fills them, runs the operation, and compares the result with
//! the expected one.

use super::collective::{Collective, OperationShape};
use super::test_data::{DataPattern, PERIOD, TestElement};
use crate::runtime::{Buffer, Error, Group, ReduceOp};

/// An operation with its operands, in host or device memory.
pub(super) trait MeasuredOperation {
    /// Writes the input of this rank, and zeroes its output.
    fn fill(&mut self) -> Result<(), Error>;

    /// Runs the operation once.
    fn run(&mut self) -> Result<(), Error>;

    /// Counts the values of this rank that differ from the expected ones, after one run on filled
    /// operands.
    fn count_wrong(&mut self) -> Result<u64, Error>;
}

/// Memory of the input, which in-place operations overwrite.
enum InputMemory<T: TestElement> {
    /// Memory that the ranks of a node share.
    Buffer(Buffer<T>),
    /// Memory of the rank alone.
    Own(Vec<T>),
}

/// Operands in host memory.
pub(super) struct Operands<'a, T: TestElement> {
    group: &'a Group,
    collective: Collective,
    shape: OperationShape,
    pattern: DataPattern,
    root: usize,
    input: InputMemory<T>,
    output: Vec<T>,
}

/// Allocates a vector of zeros; an error where the memory is not available.
pub(super) fn zeros<T: TestElement>(len: usize) -> Result<Vec<T>, Error> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(len).map_err(|_| {
        let bytes = len.saturating_mul(size_of::<T>());
        Error::BadArgument(format!("cannot allocate {bytes} bytes: give a smaller --maxbytes"))
    })?;
    zeros.resize(len, T::from_integer(0));
    Ok(zeros)
}

impl<'a, T: TestElement> Operands<'a, T> {
    pub(super) fn new(
        group: &'a Group,
        (collective, shape): (Collective, OperationShape),
        (reduce, root): (Option<ReduceOp>, usize),
        is_registered: bool,
    ) -> Result<Self, Error> {
        let is_root = group.rank() == root;
        let (input, output) = match collective {
            Collective::Scatter if !is_root => (0, shape.output),
            Collective::Gather if !is_root => (shape.input, 0),
            _ => (shape.input, shape.output),
        };
        let is_in_place = shape.output == 0;
        let numbers = if is_registered && is_in_place {
            InputMemory::Buffer(group.alloc(input)?)
        } else {
            InputMemory::Own(zeros(input)?)
        };
        let pattern = DataPattern { world: group.world_size(), reduce };
        let output = zeros(output)?;
        Ok(Self { group, collective, shape, pattern, root, input: numbers, output })
    }

    /// Input, which in-place operations overwrite.
    #[cfg(feature = "nccl")]
    pub(super) fn input(&self) -> &[T] {
        self.input.as_slice()
    }

    /// Separate output; empty for in-place operations.
    #[cfg(feature = "nccl")]
    pub(super) fn output(&self) -> &[T] {
        &self.output
    }

    /// Input and output.
    #[cfg(feature = "nccl")]
    pub(super) fn memory_mut(&mut self) -> (&mut [T], &mut [T]) {
        (self.input.as_mut_slice(), &mut self.output)
    }

    /// The call: collective, reduction and root.
    #[cfg(feature = "nccl")]
    pub(super) fn call(&self) -> (Collective, Option<ReduceOp>, usize) {
        (self.collective, self.pattern.reduce, self.root)
    }

    /// Counts the wrong values in an output that has one part from every rank.
    fn count_differing_parts(&self, period_from: impl Fn(usize) -> Vec<T>) -> u64 {
        if self.shape.count == 0 {
            return 0;
        }
        let parts = self.output.chunks(self.shape.count).enumerate();
        parts.map(|(from, part)| count_differing(part, &period_from(from))).sum()
    }
}

impl<T: TestElement> MeasuredOperation for Operands<'_, T> {
    fn fill(&mut self) -> Result<(), Error> {
        let period = self.pattern.period(self.group.rank(), 0);
        for part in self.input.as_mut_slice().chunks_mut(PERIOD) {
            part.copy_from_slice(&period[..part.len()]);
        }
        self.output.fill(T::from_integer(0));
        Ok(())
    }

    fn run(&mut self) -> Result<(), Error> {
        let Self { group, root, input: numbers, output, .. } = self;
        let (rank, world) = (group.rank(), group.world_size());
        let reduce = self.pattern.reduce.unwrap_or(ReduceOp::Sum);
        match (self.collective, numbers) {
            (Collective::AllReduce, InputMemory::Buffer(data)) => group.all_reduce(data, reduce)?,
            (Collective::AllReduce, InputMemory::Own(data)) => group.all_reduce(data, reduce)?,
            (Collective::Reduce, InputMemory::Buffer(data)) => group.reduce(data, reduce, *root)?,
            (Collective::Reduce, InputMemory::Own(data)) => group.reduce(data, reduce, *root)?,
            (Collective::Broadcast, InputMemory::Buffer(data)) => group.broadcast(data, *root)?,
            (Collective::Broadcast, InputMemory::Own(data)) => group.broadcast(data, *root)?,
            (Collective::AllGather, numbers) => group.all_gather(numbers.as_slice(), output)?,
            (Collective::ReduceScatter, numbers) => {
                group.reduce_scatter(numbers.as_slice(), output, reduce)?;
            }
            (Collective::Gather, numbers) => group.gather(numbers.as_slice(), output, *root)?,
            (Collective::Scatter, numbers) => group.scatter(numbers.as_slice(), output, *root)?,
            (Collective::AllToAll, numbers) => group.all_to_all(numbers.as_slice(), output)?,
            (Collective::SendRecv, numbers) => {
                let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);
                group.send_recv(numbers.as_slice(), next, output, previous)?;
            }
        }
        Ok(())
    }

    fn count_wrong(&mut self) -> Result<u64, Error> {
        let rank = self.group.rank();
        let is_root = rank == self.root;
        let pattern = self.pattern;
        let world = pattern.world;
        let part = self.shape.count;
        Ok(match self.collective {
            Collective::AllReduce => {
                count_differing(self.input.as_slice(), &pattern.reduced_period(0))
            }
            Collective::Reduce if is_root => {
                count_differing(self.input.as_slice(), &pattern.reduced_period(0))
            }
            // The data of all ranks but the root is unchanged.
            Collective::Reduce => count_differing(self.input.as_slice(), &pattern.period(rank, 0)),
            Collective::Broadcast => {
                count_differing(self.input.as_slice(), &pattern.period(self.root, 0))
            }
            Collective::ReduceScatter => {
                count_differing(&self.output, &pattern.reduced_period(rank * part))
            }
            Collective::Gather if !is_root => 0,
            Collective::AllGather | Collective::Gather => {
                self.count_differing_parts(|from| pattern.period(from, 0))
            }
            Collective::Scatter => {
                count_differing(&self.output, &pattern.period(self.root, rank * part))
            }
            Collective::AllToAll => {
                self.count_differing_parts(|from| pattern.period(from, rank * part))
            }
            Collective::SendRecv => {
                count_differing(&self.output, &pattern.period((rank + world - 1) % world, 0))
            }
        })
    }
}

impl<T: TestElement> InputMemory<T> {
    fn as_slice(&self) -> &[T] {
        match self {
            Self::Buffer(buffer) => buffer,
            Self::Own(own) => own,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Self::Buffer(buffer) => buffer,
            Self::Own(own) => own,
        }
    }
}

/// Counts the positions at which `numbers` differ from the repeated `period`.
fn count_differing<T: TestElement>(numbers: &[T], period: &[T]) -> u64 {
    let parts = numbers.chunks(PERIOD);
    let differ =
        |part: &[T]| part.iter().zip(period).filter(|(found, expected)| found != expected).count();
    parts.map(differ).sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: [ReduceOp; 5] =
        [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];

    fn wrong_of<T: TestElement>(
        group: &Group,
        collective: Collective,
        reduce: Option<ReduceOp>,
        is_registered: bool,
    ) -> Result<u64, Error> {
        let root = group.world_size() - 1;
        let shape = collective.shape(5000, size_of::<T>(), group.world_size());
        let mut operands =
            Operands::<T>::new(group, (collective, shape), (reduce, root), is_registered)?;
        operands.fill()?;
        operands.run()?;
        operands.count_wrong()
    }

    fn check_all<T: TestElement>(group: &Group) -> Result<(), Error> {
        for collective in Collective::ALL {
            let reduces = collective.reduces();
            let ops = if reduces { OPS.map(Some).to_vec() } else { vec![None] };
            for (reduce, is_registered) in ops.into_iter().flat_map(|op| [(op, false), (op, true)])
            {
                let wrong = wrong_of::<T>(group, collective, reduce, is_registered)?;
                assert_eq!(wrong, 0, "{collective} {reduce:?} of {}", T::DTYPE);
            }
        }
        Ok(())
    }

    #[test]
    fn operands_of_every_collective_are_verified() -> Result<(), Error> {
        for world in [1, 2, 3] {
            Group::on_threads(world, |group| {
                check_all::<f32>(group)?;
                check_all::<f64>(group)?;
                check_all::<crate::runtime::F16>(group)?;
                check_all::<crate::runtime::Bf16>(group)?;
                check_all::<i32>(group)?;
                check_all::<i64>(group)?;
                check_all::<u8>(group)
            })?;
        }
        Ok(())
    }

    #[test]
    fn operands_count_wrong_values() -> Result<(), Error> {
        let wrong = Group::on_threads(2, |group| {
            let shape = Collective::AllGather.shape(4000, 4, 2);
            let mut operands =
                Operands::<f32>::new(group, (Collective::AllGather, shape), (None, 0), true)?;
            operands.fill()?;
            operands.run()?;
            operands.output[3] += 1.0;
            operands.output[999] = f32::NAN;
            operands.count_wrong()
        })?;
        assert_eq!(wrong, [2, 2]);
        Ok(())
    }
}
