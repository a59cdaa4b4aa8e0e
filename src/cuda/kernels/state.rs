//! What the kernels at the end of a step keep in the memory of the device, with the layout of `optimizer.cu`.

use bytemuck::{Pod, Zeroable};

/// What `decide_step` decides for all parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct DeviceStep {
    /// Norm of the gradient, without the loss scale.
    pub norm: f64,
    /// Number of steps that have changed the parameters.
    pub applied: u64,
    /// Factor of the gradients: clipping, and the inverse of the loss scale.
    pub factor: f32,
    /// 1 if the gradient is finite; else the step changes nothing.
    pub is_finite: u32,
}

/// Numbers of a step of Adam that are the same for all elements, from `prepare_adam`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct DeviceAdam {
    /// 1 - β₁.
    pub one_minus_beta1: f32,
    /// β₂.
    pub beta2: f32,
    /// 1 - β₂.
    pub one_minus_beta2: f32,
    /// √(1 - β₂ᵗ).
    pub correction2_root: f32,
    /// Number that is added to the root.
    pub epsilon: f32,
    /// Rate / (1 - β₁ᵗ).
    pub step_size: f32,
}

/// State of a dynamic loss scale, which `update_loss_scale` changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct DeviceLossScale {
    /// Factor of the losses in the next step.
    pub scale: f64,
    /// Number of clean steps since the last overflow.
    pub clean_steps: u64,
    /// Number of overflows, counted down, of which the last one halves the scale.
    pub hysteresis_left: u32,
    /// 1 after an overflow at the lowest scale, at which training cannot continue.
    pub is_stuck: u32,
}
