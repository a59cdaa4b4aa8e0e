//! [`KernelCase`]: a launch of a kernel with its arguments and its memory. Pure.

use crate::cuda::device::{DeviceAddress, KernelArgument};
use crate::cuda::kernels::{ElementType, HalfType, Kernel, KernelLaunch, KernelProgram};
use crate::runtime::data::random::RandomStream;
use crate::runtime::dtype::half::{Bf16, F16, HalfFloat as _};

/// Seed of the numbers of all checks.
pub(super) const SEED: u64 = 20_261_128;

/// A launch with its memory, which begins as it is here.
#[derive(Clone, Debug)]
pub struct KernelCase {
    /// Program and kernel.
    pub kernel: (KernelProgram, Kernel),
    /// Grid, block and shared memory.
    pub launch: KernelLaunch,
    /// Content of the memory before the launch.
    pub buffers: Vec<Vec<u8>>,
    /// Arguments, in the order of the kernel.
    pub arguments: Vec<CaseArgument>,
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum CaseArgument {
    /// The address of a buffer.
    Buffer(usize),
    /// A number, or no address.
    Scalar(KernelArgument),
}

/// Memory after a launch: the buffers of the case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseMemory(pub Vec<Vec<u8>>);

impl KernelCase {
    /// A launch without arguments.
    pub fn new(program: KernelProgram, kernel: Kernel, launch: KernelLaunch) -> Self {
        debug_assert_eq!(program.file(), kernel.file(), "the program has the kernel");
        Self { kernel: (program, kernel), launch, buffers: Vec::new(), arguments: Vec::new() }
    }

    /// Adds an argument: memory with this content.
    #[must_use]
    pub fn memory<T: bytemuck::NoUninit>(mut self, content: &[T]) -> Self {
        self.arguments.push(CaseArgument::Buffer(self.buffers.len()));
        self.buffers.push(bytemuck::cast_slice(content).to_vec());
        self
    }

    /// Adds an argument: memory of elements.
    #[must_use]
    pub fn elements(self, element: ElementType, values: &[f64]) -> Self {
        self.memory(&encode(element, values))
    }

    /// Adds an argument: memory of this many bytes, each 0xff, which is NaN.
    #[must_use]
    pub fn unwritten(self, bytes: usize) -> Self {
        self.memory(&vec![0xffu8; bytes])
    }

    /// Adds an argument: memory of this many zero bytes.
    #[must_use]
    pub fn zeros(mut self, bytes: usize) -> Self {
        self.arguments.push(CaseArgument::Buffer(self.buffers.len()));
        // Pages of zeros take no memory until something is written to them.
        self.buffers.push(vec![0; bytes]);
        self
    }

    /// Adds an argument: a buffer that is an argument already.
    #[must_use]
    pub fn same_memory(mut self, buffer: usize) -> Self {
        self.arguments.push(CaseArgument::Buffer(buffer));
        self
    }

    /// Adds an argument: no memory.
    #[must_use]
    pub fn null(self) -> Self {
        self.scalar(KernelArgument::Address(DeviceAddress::NULL))
    }

    /// Adds an argument: a number.
    #[must_use]
    pub fn scalar(mut self, argument: KernelArgument) -> Self {
        self.arguments.push(CaseArgument::Scalar(argument));
        self
    }

    /// Adds arguments of type `int`.
    #[must_use]
    pub fn ints<const N: usize>(self, values: [usize; N]) -> Self {
        values.into_iter().fold(self, |case, value| case.scalar(KernelArgument::I32(value as i32)))
    }

    /// Adds an argument: a number of elements.
    #[must_use]
    pub fn count(self, count: usize) -> Self {
        self.scalar(KernelArgument::U64(count as u64))
    }

    /// Name of the kernel in its program, such as `norm_float.norm_forward`.
    pub fn name(&self) -> String {
        let (program, kernel) = self.kernel;
        format!("{}.{}", program.name(), kernel.name())
    }
}

impl CaseMemory {
    /// The content of a buffer.
    pub fn get<T: bytemuck::AnyBitPattern>(&self, buffer: usize) -> Vec<T> {
        self.0[buffer].chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }

    /// The elements of a buffer.
    pub fn elements(&self, buffer: usize, element: ElementType) -> Vec<f64> {
        decode(element, &self.0[buffer])
    }

    /// Numbers of type `float`.
    pub fn floats(&self, buffer: usize) -> Vec<f64> {
        decode(ElementType::F32, &self.0[buffer])
    }
}

/// Rounds numbers to elements.
pub fn encode(element: ElementType, values: &[f64]) -> Vec<u8> {
    let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
    element.encode(&values)
}

/// Reads elements.
pub fn decode(element: ElementType, bytes: &[u8]) -> Vec<f64> {
    let half = |pair: &[u8]| u16::from_ne_bytes([pair[0], pair[1]]);
    match element {
        ElementType::F32 => bytes
            .chunks_exact(4)
            .map(|four| f64::from(bytemuck::pod_read_unaligned::<f32>(four)))
            .collect(),
        ElementType::Half(HalfType::Bf16) => bytes
            .chunks_exact(2)
            .map(|pair| f64::from(Bf16::from_bits(half(pair)).widen()))
            .collect(),
        ElementType::Half(HalfType::F16) => bytes
            .chunks_exact(2)
            .map(|pair| f64::from(F16::from_bits(half(pair)).widen()))
            .collect(),
    }
}

/// Rounds numbers to those that the element type has.
pub(super) fn rounded(element: ElementType, values: &[f64]) -> Vec<f64> {
    decode(element, &encode(element, values))
}

/// Numbers from `-size` to `size` that the element type has.
pub fn draw(random: &mut RandomStream, element: ElementType, len: usize, size: f64) -> Vec<f64> {
    let unit = |random: &mut RandomStream| random.below(1 << 24) as f64 / f64::from(1 << 23) - 1.0;
    let values: Vec<f64> = (0..len).map(|_| size * unit(random)).collect();
    rounded(element, &values)
}
