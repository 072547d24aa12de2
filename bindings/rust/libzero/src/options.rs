// SPDX-License-Identifier: Apache-2.0
//! The options of an optimizer, and their conversion to C structs.
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

use libzero_sys as sys;

use crate::dtype::Dtype;
use crate::error::{Result, c_text};

/// The update rule. Rules follow the formulas of torch.optim, or their papers if torch.optim does
/// not have them. Each variant lists the settings of its rule with their defaults.
/// [`Options::set`] changes a setting of all groups, and [`Optim::add`](crate::Optim::add) and
/// [`Optim::set`](crate::Optim::set) those of one group. [`Optimizer::rule`] returns the same list
/// with the range of each setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Optimizer {
    /// The settings and their defaults are `lr: 1e-3`, `beta1: 0.9`, `beta2: 0.999`, `eps: 1e-8`,
    /// `weight_decay: 0.01`, `amsgrad: 0` and `maximize: 0`.
    #[default]
    AdamW = sys::ZERO_OPTIMIZER_ADAMW,
    /// The settings and their defaults are `lr: 1e-3`, `beta1: 0.9`, `beta2: 0.999`, `eps: 1e-8`,
    /// `weight_decay: 0`, `amsgrad: 0` and `maximize: 0`. Weight decay is added to the gradient.
    Adam = sys::ZERO_OPTIMIZER_ADAM,
    /// The settings and their defaults are `lr: 1e-3`, `momentum: 0`, `dampening: 0`,
    /// `weight_decay: 0`, `nesterov: 0` and `maximize: 0`.
    Sgd = sys::ZERO_OPTIMIZER_SGD,
    /// The settings and their defaults are `lr: 1e-2`, `alpha: 0.99`, `eps: 1e-8`,
    /// `weight_decay: 0`, `momentum: 0`, `centered: 0` and `maximize: 0`.
    RmsProp = sys::ZERO_OPTIMIZER_RMSPROP,
    /// The settings and their defaults are `lr: 1e-2`, `lr_decay: 0`, `weight_decay: 0`,
    /// `initial_accumulator_value: 0`, `eps: 1e-10` and `maximize: 0`.
    Adagrad = sys::ZERO_OPTIMIZER_ADAGRAD,
    /// The settings and their defaults are `lr: 1e-4`, `beta1: 0.9`, `beta2: 0.99`,
    /// `weight_decay: 0` and `maximize: 0`. Weight decay is decoupled.
    Lion = sys::ZERO_OPTIMIZER_LION,
    /// The settings and their defaults are `lr: 2e-3`, `beta1: 0.9`, `beta2: 0.999`, `eps: 1e-8`,
    /// `weight_decay: 0` and `maximize: 0`.
    Adamax = sys::ZERO_OPTIMIZER_ADAMAX,
    /// The settings and their defaults are `lr: 1`, `rho: 0.9`, `eps: 1e-6`, `weight_decay: 0` and
    /// `maximize: 0`.
    Adadelta = sys::ZERO_OPTIMIZER_ADADELTA,
    /// The settings and their defaults are `lr: 1e-3`, `beta1: 0.9`, `beta2: 0.999`, `eps: 1e-8`,
    /// `weight_decay: 0`, `decoupled_weight_decay: 0` and `maximize: 0`.
    RAdam = sys::ZERO_OPTIMIZER_RADAM,
    /// The settings and their defaults are `lr: 2e-3`, `beta1: 0.9`, `beta2: 0.999`, `eps: 1e-8`,
    /// `weight_decay: 0`, `momentum_decay: 4e-3`, `decoupled_weight_decay: 0` and `maximize: 0`.
    NAdam = sys::ZERO_OPTIMIZER_NADAM,
    /// The settings and their defaults are `lr: 1e-2`, `eta_minus: 0.5`, `eta_plus: 1.2`,
    /// `step_size_min: 1e-6`, `step_size_max: 50` and `maximize: 0`. lr is only the first step
    /// size.
    Rprop = sys::ZERO_OPTIMIZER_RPROP,
    /// The settings and their defaults are `lr: 1e-3`, `beta1: 0.9`, `beta2: 0.999`, `eps: 1e-6`,
    /// `weight_decay: 0.01`, `always_adapt: 0` and `maximize: 0`. Weight decay is part of the
    /// direction. The norms of a whole tensor scale the step of this tensor.
    Lamb = sys::ZERO_OPTIMIZER_LAMB,
    /// The settings and their defaults are `lr: 1`, `momentum: 0`, `weight_decay: 0`,
    /// `nesterov: 0`, `trust_coefficient: 1e-3`, `eps: 1e-8`, `always_adapt: 0` and `maximize: 0`.
    /// Steps are scaled in the same way as with LAMB.
    Lars = sys::ZERO_OPTIMIZER_LARS,
    /// The settings and their defaults are `lr: 1e-3`, `beta1: 0.98`, `beta2: 0.92`, `beta3: 0.99`,
    /// `eps: 1e-8`, `weight_decay: 0` and `maximize: 0`. Weight decay is proximal.
    Adan = sys::ZERO_OPTIMIZER_ADAN,
    /// The settings and their defaults are `lr: 1e-3`, `beta1: 0.9`, `beta2: 0.999`,
    /// `beta3: 0.9999`, `alpha: 5`, `alpha_warmup: 0`, `beta3_warmup: 0`, `eps: 1e-8`,
    /// `weight_decay: 0` and `maximize: 0`. The warm-ups are numbers of steps. Weight decay is
    /// decoupled.
    AdEmaMix = sys::ZERO_OPTIMIZER_ADEMAMIX,
}

/// The assignment of state to owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partition {
    /// Parameters are cut into blocks of 1,024 elements. Each rank owns the same number of blocks,
    /// and if the number of blocks is not a multiple of the number of ranks, the first ranks own
    /// one more. Small models are therefore not split evenly. If a model fits into one block, rank
    /// 0 owns all of it, and [`Statistics::idle_ranks`](crate::Statistics::idle_ranks) counts the
    /// other ranks, which hold no state.
    #[default]
    Even,
    /// Whole tensors are assigned to the least loaded rank, largest first.
    Greedy,
    /// Whole tensors are assigned to the least loaded rank, in order.
    GreedyInOrder,
    /// Whole tensors are assigned to [`Shape::owner`](crate::Shape::owner).
    Manual,
}

/// The treatment of infinities and NaNs in the reduced gradient of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nonfinite {
    /// Infinities and NaNs reach the parameters, as in torch.optim.
    #[default]
    Ignore,
    /// All ranks skip the update.
    Skip,
    /// All ranks skip the update, and the step returns an error.
    Error,
}

/// The master weights of 16-bit parameters. A step updates the master weights, and rounds them to
/// the parameter. Master weights are part of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Master {
    /// Master weights are stored as f32. Ties are rounded to even.
    #[default]
    Float32,
    /// Only the 16 low-order bits, which a [`Bf16`](crate::Bf16) parameter does not have, are
    /// stored. The state is 2 bytes smaller per element, and ties are rounded away from zero.
    Remainder,
    /// No master weights are stored. Each step loses the bits that rounding to nearest cuts off.
    None,
}

/// The type in which the state of a group is stored, apart from master weights. Updates compute in
/// f32. They round state in bf16 at random, up with a probability of the distance to the number
/// below, so that slow averages do not stop. The random bits depend only on the step of a parameter
/// and the position of an element, so results are the same with any number of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum StateDtype {
    /// State is stored as f64 for f64 parameters, and as f32 for all others.
    #[default]
    Full = sys::ZERO_STATE_DTYPE_FULL,
    /// State is stored as [`Bf16`](crate::Bf16). The library refuses this for f64 parameters and
    /// for a [`CustomRule`](crate::CustomRule).
    Bf16 = sys::ZERO_STATE_DTYPE_BFLOAT16,
}

/// The behavior when some ranks run out of inputs before others; see
/// [`Optim::join`](crate::Optim::join).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnevenInputs {
    /// Ranks cannot join, and every rank must make every call.
    #[default]
    Off,
    /// Ranks may join. A mean divides by the number of all ranks.
    World,
    /// Ranks may join. A mean divides by the number of ranks that still have inputs.
    Active,
    /// All ranks stop with an error when the first rank runs out of inputs.
    Error,
}

/// The reduction of gradients over the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// The sum, divided by the number of ranks.
    #[default]
    Mean,
    /// The sum.
    Sum,
    /// No reduction. The caller has already reduced the gradients, and each owner uses its own
    /// gradients.
    None,
}

impl Reduction {
    /// Adds the result of the reduction to the sums of earlier calls with the same reduction.
    ///
    /// Call [`Optim::reduce_grads`](crate::Optim::reduce_grads) once per micro-batch. For the last
    /// micro-batch, you can pass this to [`Optim::step_with`](crate::Optim::step_with) instead.
    pub fn accumulate(self) -> Reduce {
        Reduce(self.flags() | sys::ZERO_REDUCE_ACCUMULATE)
    }

    fn flags(self) -> i32 {
        match self {
            Reduction::Mean => sys::ZERO_REDUCE_MEAN,
            Reduction::Sum => sys::ZERO_REDUCE_SUM,
            Reduction::None => sys::ZERO_REDUCE_NONE,
        }
    }
}

/// The way in which gradients are reduced, which is a [`Reduction`], optionally
/// [accumulated](Reduction::accumulate) over several calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduce(i32);

impl Reduce {
    pub(crate) fn flags(self) -> i32 {
        self.0
    }
}

impl From<Reduction> for Reduce {
    fn from(reduction: Reduction) -> Reduce {
        Reduce(reduction.flags())
    }
}

/// The options of an optimizer. They must be the same on every rank, except for `threads`. If a
/// number is 0, the default is used.
///
/// ```
/// # fn main() -> libzero::Result<()> {
/// use libzero::{Comm, Deadlines, Optim, Optimizer, Options};
///
/// let options = Options {
///     optimizer: Optimizer::Sgd,
///     bucket_bytes: 8 << 20, // 8 MiB
///     max_grad_norm: 1.0,
///     ..Options::default()
/// }
/// .set("lr", 0.1)
/// .set("momentum", 0.9);
/// let optim = Optim::new(&Comm::solo(Deadlines::default())?, &options)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The update rule. Default: AdamW.
    pub optimizer: Optimizer,
    /// The assignment of state to owners. Default: even blocks.
    pub partition: Partition,
    /// The size of one transfer in bytes, at least 4,096. Default: 33,554,432.
    pub bucket_bytes: i64,
    /// The value to which [`Optim::step`](crate::Optim::step) limits the total norm of gradients.
    /// Default: no clipping.
    pub max_grad_norm: f64,
    /// The order p of that norm, which is above 0 or infinite. Default: 2.
    pub grad_norm_type: f64,
    /// The treatment of gradients that are not finite. Default: ignore.
    pub nonfinite: Nonfinite,
    /// The number of threads that update parameters on this rank, at most 64. Default: this rank's
    /// part of the cores, at most 4.
    pub threads: i32,
    /// The master weights of 16-bit parameters. Default: an f32.
    pub master: Master,
    /// The type to which gradients are rounded before they are summed: [`Dtype::Bf16`] or
    /// [`Dtype::F16`]. Default: no rounding.
    pub wire_dtype: Option<Dtype>,
    /// A power of two by which gradients are divided before they are sent, and by which their sum
    /// is multiplied. Default: 1.
    pub predivide_factor: f64,
    /// The type to which a step rounds f32 parameters on every rank: [`Dtype::Bf16`] or
    /// [`Dtype::F16`]. The parameters then have master weights. Default: no rounding.
    pub share_dtype: Option<Dtype>,
    /// The initial loss scale, in the range from 2^-100 to 2^100. Dynamic loss scaling works like
    /// torch's GradScaler. Default: no loss scaling.
    pub loss_scale: f64,
    /// The factor by which the loss scale grows, at least 1. Default: 2.
    pub growth_factor: f64,
    /// The number of steps without a skip after which the loss scale grows. Default: 2,000.
    pub growth_interval: i64,
    /// The factor by which a skipped step reduces the loss scale, above 0 and at most 1. Default:
    /// 0.5.
    pub backoff_factor: f64,
    /// The behavior when some ranks run out of inputs. Default: ranks cannot
    /// [join](crate::Optim::join).
    pub uneven_inputs: UnevenInputs,
    /// True if [`Optim::step`](crate::Optim::step) returns before parameters have been updated, as
    /// [`Optim::param_wait`](crate::Optim::param_wait) describes. Default: false.
    pub overlap_gather: bool,
    /// The number of copies of the state. Each copy is divided over world / instances consecutive
    /// ranks. Default: 1.
    pub instances: i32,
    /// The settings of every group, for example `("lr", 3e-4)`. Settings that are not given have
    /// the defaults that [`Optimizer`] lists for each rule.
    pub settings: Vec<(String, f64)>,
}

impl Options {
    /// Adds a setting, or replaces its earlier value.
    pub fn set(mut self, name: &str, value: f64) -> Options {
        self.settings.retain(|(earlier, _)| earlier != name);
        self.settings.push((name.to_owned(), value));
        self
    }

    /// `settings` must be made from `self.settings`, and must outlive the result.
    pub(crate) fn to_c(&self, settings: &CSettings) -> sys::zero_options {
        sys::zero_options {
            optimizer: self.optimizer as i32,
            partition: match self.partition {
                Partition::Even => sys::ZERO_PARTITION_EVEN,
                Partition::Greedy => sys::ZERO_PARTITION_GREEDY,
                Partition::GreedyInOrder => sys::ZERO_PARTITION_GREEDY_IN_ORDER,
                Partition::Manual => sys::ZERO_PARTITION_MANUAL,
            },
            bucket_bytes: self.bucket_bytes,
            max_grad_norm: self.max_grad_norm,
            grad_norm_type: self.grad_norm_type,
            nonfinite: match self.nonfinite {
                Nonfinite::Ignore => sys::ZERO_NONFINITE_IGNORE,
                Nonfinite::Skip => sys::ZERO_NONFINITE_SKIP,
                Nonfinite::Error => sys::ZERO_NONFINITE_ERROR,
            },
            threads: self.threads,
            names: settings.names(),
            values: settings.values.as_ptr(),
            setting_count: settings.values.len(),
            master: match self.master {
                Master::Float32 => sys::ZERO_MASTER_FLOAT32,
                Master::Remainder => sys::ZERO_MASTER_REMAINDER,
                Master::None => sys::ZERO_MASTER_NONE,
            },
            wire_dtype: self.wire_dtype.map_or(0, Dtype::to_c),
            predivide_factor: self.predivide_factor,
            share_dtype: self.share_dtype.map_or(0, Dtype::to_c),
            loss_scale: self.loss_scale,
            growth_factor: self.growth_factor,
            backoff_factor: self.backoff_factor,
            growth_interval: self.growth_interval,
            uneven_inputs: match self.uneven_inputs {
                UnevenInputs::Off => sys::ZERO_UNEVEN_OFF,
                UnevenInputs::World => sys::ZERO_UNEVEN_WORLD,
                UnevenInputs::Active => sys::ZERO_UNEVEN_ACTIVE,
                UnevenInputs::Error => sys::ZERO_UNEVEN_ERROR,
            },
            overlap_gather: self.overlap_gather.into(),
            instances: self.instances,
            ..init()
        }
    }
}

/// Settings in the form that C needs.
pub(crate) struct CSettings {
    _names: Vec<CString>,
    pointers: Vec<*const c_char>,
    values: Vec<f64>,
}

impl CSettings {
    pub(crate) fn new<N: AsRef<str>>(settings: &[(N, f64)]) -> Result<CSettings> {
        let names = settings
            .iter()
            .map(|(name, _)| c_text(name.as_ref(), "setting"))
            .collect::<Result<Vec<_>>>()?;
        let pointers = names.iter().map(|name| name.as_ptr()).collect();
        let values = settings.iter().map(|&(_, value)| value).collect();
        Ok(CSettings { _names: names, pointers, values })
    }

    pub(crate) fn names(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }

    pub(crate) fn to_group(&self) -> sys::zero_group_options {
        sys::zero_group_options {
            names: self.names(),
            values: self.values.as_ptr(),
            setting_count: self.values.len(),
            ..init()
        }
    }
}

/// A struct of zero.h.
///
/// # Safety
///
/// Zero bytes must be a valid value of the struct, and its first field must be `struct_size`.
pub(crate) unsafe trait CStruct: Sized {}

macro_rules! c_struct {
    ($($name:ident),* $(,)?) => {$(
        // SAFETY: The struct contains only numbers and pointers, and begins with `struct_size`.
        unsafe impl CStruct for sys::$name {}
    )*};
}
c_struct!(
    zero_comm_options,
    zero_failure,
    zero_custom_optimizer,
    zero_options,
    zero_group_options,
    zero_param,
    zero_buffer,
    zero_step_options,
    zero_result,
    zero_join_options,
    zero_save_options,
    zero_load_options,
    zero_checkpoint,
    zero_plan,
    zero_statistics,
    zero_comm_functions,
);

/// Returns a struct of zeros, which are the defaults.
pub(crate) fn init<T: CStruct>() -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: Zero bytes are a valid value, and the first field is the size.
    unsafe {
        value.as_mut_ptr().cast::<usize>().write(size_of::<T>());
        value.assume_init()
    }
}
