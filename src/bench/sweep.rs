//! Measurement of all sizes, types and reductions, one after the other.

use super::backend::Backend;
use super::collective::Collective;
use super::document::EarlierResults;
use super::open_backend::OpenBackend;
use super::operands::{MeasuredOperation, Operands};
use super::row::Row;
use super::sizes::Sizes;
use super::test_data::TestElement;
use super::timing::{Average, Iterations, Repetitions, Timed, time};
use crate::runtime::{Bf16, Dtype, Error, F16, Group, ReduceOp};

#[cfg(feature = "nccl")]
use super::device::DeviceOperands;

/// Options of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Collective to measure.
    pub collective: Collective,
    /// Backend that moves the data.
    pub backend: Backend,
    /// Sizes in bytes.
    pub sizes: Sizes,
    /// Types of elements.
    pub dtypes: Vec<Dtype>,
    /// Reductions, for collectives that reduce.
    pub reduce: Vec<ReduceOp>,
    /// Root, for collectives that have one.
    pub root: usize,
    /// Number of timed operations per size.
    pub iterations: Iterations,
    /// Number of untimed operations before them; at least one with [`Iterations::Auto`].
    pub warmup: u32,
    /// Whether results are compared with the expected ones.
    pub is_checked: bool,
    /// Combination of the times of the ranks.
    pub average: Average,
    /// Whether in-place operations use shared memory of the group, which saves a copy.
    pub is_registered: bool,
}

impl Options {
    pub(super) fn repetitions(&self) -> Repetitions {
        Repetitions { warmup: self.warmup, iterations: self.iterations }
    }

    /// Combinations of type and reduction; each is measured with all sizes.
    fn kinds(&self) -> impl Iterator<Item = (Dtype, Option<ReduceOp>)> {
        let reduce: Vec<Option<ReduceOp>> = if self.collective.reduces() {
            self.reduce.iter().copied().map(Some).collect()
        } else {
            vec![None]
        };
        self.dtypes
            .iter()
            .flat_map(move |dtype| reduce.clone().into_iter().map(move |op| (*dtype, op)))
    }

    /// Whether earlier results have a size, type and reduction that `world` ranks will measure.
    pub fn has_rows_in_common(&self, earlier: &EarlierResults, world: usize) -> bool {
        self.kinds().any(|(dtype, reduce)| {
            self.sizes.iter().any(|bytes| {
                let bytes = self.collective.shape(bytes, dtype.bytes(), world).bytes as u64;
                earlier.matching_row(bytes, &dtype.to_string(), &op_name(reduce)).is_some()
            })
        })
    }
}

/// Runs the measurement, and passes each complete row to `on_row`; all ranks call it and receive the same
/// rows.
pub fn measure(
    opened: &OpenBackend<'_>,
    options: &Options,
    on_row: &mut dyn FnMut(&Row),
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (dtype, reduce) in options.kinds() {
        let mut last = None;
        for bytes in options.sizes.iter() {
            let row = measure_dtype(opened, options, dtype, reduce, bytes)?;
            // Sizes that are rounded down to whole parts may be equal.
            if last.replace(row.bytes) != Some(row.bytes) {
                on_row(&row);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Name of a reduction, or `none`.
fn op_name(reduce: Option<ReduceOp>) -> String {
    reduce.map_or_else(|| "none".to_owned(), |reduce| reduce.to_string())
}

fn measure_dtype(
    opened: &OpenBackend<'_>,
    options: &Options,
    dtype: Dtype,
    reduce: Option<ReduceOp>,
    bytes: u64,
) -> Result<Row, Error> {
    match dtype {
        Dtype::F32 => measure_row::<f32>(opened, options, reduce, bytes),
        Dtype::F64 => measure_row::<f64>(opened, options, reduce, bytes),
        Dtype::F16 => measure_row::<F16>(opened, options, reduce, bytes),
        Dtype::Bf16 => measure_row::<Bf16>(opened, options, reduce, bytes),
        Dtype::I32 => measure_row::<i32>(opened, options, reduce, bytes),
        Dtype::I64 => measure_row::<i64>(opened, options, reduce, bytes),
        Dtype::U8 => measure_row::<u8>(opened, options, reduce, bytes),
    }
}

/// An element type that both the host and the devices support.
#[cfg(feature = "nccl")]
trait Number: TestElement + crate::runtime::device::DeviceElement {}
#[cfg(feature = "nccl")]
impl<T: TestElement + crate::runtime::device::DeviceElement> Number for T {}
#[cfg(not(feature = "nccl"))]
trait Number: TestElement {}
#[cfg(not(feature = "nccl"))]
impl<T: TestElement> Number for T {}

fn measure_row<T: Number>(
    opened: &OpenBackend<'_>,
    options: &Options,
    reduce: Option<ReduceOp>,
    bytes: u64,
) -> Result<Row, Error> {
    let group = opened.group();
    let (collective, world) = (options.collective, group.world_size());
    let shape = collective.shape(bytes, size_of::<T>(), world);
    let host = |is_registered| {
        let call = (collective, shape);
        Operands::<T>::new(group, call, (reduce, options.root), is_registered)
    };
    let (Timed { seconds, iterations }, wrong) = match opened {
        OpenBackend::Host(_) => measure_operation(group, options, host(options.is_registered)?)?,
        #[cfg(feature = "nccl")]
        OpenBackend::Devices(devices) => {
            let operands = DeviceOperands::new(devices, host(false)?, options.is_registered)?;
            measure_operation(group, options, operands)?
        }
    };
    let algbw_gbs = if seconds == 0.0 { 0.0 } else { shape.bytes as f64 / seconds / 1e9 };
    Ok(Row {
        bytes: shape.bytes as u64,
        count: shape.count as u64,
        dtype: T::DTYPE.to_string(),
        op: op_name(reduce),
        root: collective.has_root().then_some(options.root),
        time_us: seconds * 1e6,
        algbw_gbs,
        busbw_gbs: algbw_gbs * collective.bus_factor(world),
        wrong,
        iterations: Some(iterations),
    })
}

/// Measures an operation; returns its time, and the number of wrong values on all ranks if results
/// are checked.
fn measure_operation(
    group: &Group,
    options: &Options,
    mut operation: impl MeasuredOperation,
) -> Result<(Timed, Option<u64>), Error> {
    operation.fill()?;
    let timed = time(group, options.repetitions(), options.average, || operation.run())?;
    let wrong = options.is_checked.then(|| count_wrong(group, &mut operation)).transpose()?;
    Ok((timed, wrong))
}

/// Runs the operation once more on freshly filled operands; returns the number of wrong values on
/// all ranks.
fn count_wrong(group: &Group, operation: &mut impl MeasuredOperation) -> Result<u64, Error> {
    operation.fill()?;
    operation.run()?;
    let mut wrong = [operation.count_wrong()? as i64];
    group.all_reduce(&mut wrong, ReduceOp::Sum)?;
    Ok(wrong[0] as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sizes::Stride;

    #[test]
    fn measure_returns_a_row_per_size_type_and_reduction() -> Result<(), Error> {
        let options = Options {
            collective: Collective::ReduceScatter,
            backend: Backend::Host,
            sizes: Sizes::new(1, 256, Stride::Factor(4)).expect("there are sizes"),
            dtypes: vec![Dtype::F32, Dtype::U8],
            reduce: vec![ReduceOp::Sum, ReduceOp::Max],
            root: 0,
            iterations: Iterations::Exactly(2),
            warmup: 1,
            is_checked: true,
            average: Average::Max,
            is_registered: true,
        };
        let rows = Group::on_threads(2, |group| {
            measure(&OpenBackend::Host(group), &options, &mut |_| {})
        })?;
        assert_eq!(rows[0], rows[1], "the rows are equal on all ranks");
        let of = |dtype: &str, op: &str| {
            let rows = rows[0].iter().filter(|row| row.dtype == dtype && row.op == op);
            rows.map(|row| row.bytes).collect::<Vec<_>>()
        };
        // 1 and 4 bytes hold no element for each of two ranks.
        assert_eq!(of("f32", "sum"), [0, 16, 64, 256]);
        assert_eq!(of("u8", "max"), [0, 4, 16, 64, 256]);
        assert!(rows[0].iter().all(|row| row.wrong == Some(0) && 0.0 < row.time_us));
        assert!(rows[0].iter().all(|row| row.iterations == Some(2)));
        Ok(())
    }
}
