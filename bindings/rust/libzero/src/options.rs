// SPDX-License-Identifier: Apache-2.0
//! The options of an optimizer, and their conversion to C structs.
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

use libzero_sys as sys;

use crate::dtype::Dtype;
use crate::error::{Result, c_text};

/// The update rule, by the formula of torch.optim (Lion by its paper). Each rule lists its
/// settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Optimizer {
    /// lr, beta1, beta2, eps, weight_decay, amsgrad, maximize.
    #[default]
    AdamW = sys::ZERO_OPTIMIZER_ADAMW,
    /// The same settings, with weight decay added to the gradient.
    Adam = sys::ZERO_OPTIMIZER_ADAM,
    /// lr, momentum, dampening, weight_decay, nesterov, maximize.
    Sgd = sys::ZERO_OPTIMIZER_SGD,
    /// lr, alpha, eps, weight_decay, momentum, centered, maximize.
    RmsProp = sys::ZERO_OPTIMIZER_RMSPROP,
    /// lr, lr_decay, weight_decay, initial_accumulator_value, eps, maximize.
    Adagrad = sys::ZERO_OPTIMIZER_ADAGRAD,
    /// lr, beta1, beta2, weight_decay (decoupled), maximize.
    Lion = sys::ZERO_OPTIMIZER_LION,
    /// lr, beta1, beta2, eps, weight_decay, maximize.
    Adamax = sys::ZERO_OPTIMIZER_ADAMAX,
    /// lr, rho, eps, weight_decay, maximize.
    Adadelta = sys::ZERO_OPTIMIZER_ADADELTA,
    /// lr, beta1, beta2, eps, weight_decay, decoupled_weight_decay, maximize.
    RAdam = sys::ZERO_OPTIMIZER_RADAM,
    /// The same settings, and momentum_decay.
    NAdam = sys::ZERO_OPTIMIZER_NADAM,
    /// lr (the first step size), eta_minus, eta_plus, step_size_min, step_size_max, maximize.
    Rprop = sys::ZERO_OPTIMIZER_RPROP,
    /// lr, beta1, beta2, eps, weight_decay (in the direction), always_adapt, maximize. Each tensor's step
    /// is scaled by the norms of the whole tensor.
    Lamb = sys::ZERO_OPTIMIZER_LAMB,
    /// lr, momentum, weight_decay, nesterov, trust_coefficient, eps, always_adapt, maximize. Its
    /// steps are scaled in the same way.
    Lars = sys::ZERO_OPTIMIZER_LARS,
    /// lr, beta1, beta2, beta3, eps, weight_decay (proximal), maximize.
    Adan = sys::ZERO_OPTIMIZER_ADAN,
    /// lr, beta1, beta2, beta3, alpha, alpha_warmup and beta3_warmup (steps), eps, weight_decay (decoupled),
    /// maximize.
    AdEmaMix = sys::ZERO_OPTIMIZER_ADEMAMIX,
}

/// The assignment of state to owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partition {
    /// Buckets split evenly, in blocks of 1,024 elements.
    #[default]
    Even,
    /// Whole tensors, largest first, to the least loaded rank.
    Greedy,
    /// The same without the sort.
    GreedyInOrder,
    /// Whole tensors, to [`Shape::owner`](crate::Shape::owner).
    Manual,
}

/// The treatment of infinities and NaNs in the reduced gradient of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nonfinite {
    /// They reach the parameters, as in torch.optim.
    #[default]
    Ignore,
    /// All ranks skip the update.
    Skip,
    /// All ranks skip the update, and the step returns an error.
    Error,
}

/// The master weights of 16-bit parameters. A step updates the master, and the parameter is the
/// rounded master. Masters are part of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Master {
    /// A whole f32. Ties are rounded to even.
    #[default]
    Float32,
    /// Only the 16 bits that a [`Bf16`](crate::Bf16) parameter lacks. The state is 2 bytes smaller
    /// per element, and ties are rounded away from zero.
    Remainder,
    /// No master: the bits that rounding to nearest cuts off are lost.
    None,
}

/// The behavior when some ranks run out of inputs before others; see
/// [`Optim::join`](crate::Optim::join).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnevenInputs {
    /// Ranks cannot join: every rank makes every call.
    #[default]
    Off,
    /// Ranks may join. A mean divides by the number of all ranks.
    World,
    /// Ranks may join. A mean divides by the number of ranks that still have inputs.
    Active,
    /// All ranks stop with an error when the first rank runs out of inputs.
    Error,
}

/// The reduction of the ranks' gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// The sum, divided by the number of ranks.
    #[default]
    Mean,
    /// The sum.
    Sum,
    /// No reduction: the caller has reduced the gradients, and each owner uses its own.
    None,
}

impl Reduction {
    /// Makes owners keep the sum and add it to the sums of earlier calls with the same reduction.
    ///
    /// Call [`Optim::reduce_grads`](crate::Optim::reduce_grads) once per micro-batch. For the last
    /// one, you can pass this to [`Optim::step_with`](crate::Optim::step_with) instead.
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

/// The way in which gradients are reduced: a [`Reduction`], once or
/// [accumulated](Reduction::accumulate).
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

/// The options of an optimizer. They are the same on every rank, except for `threads`. A number
/// that is 0 means its default.
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
    /// The limit to which [`Optim::step`](crate::Optim::step) clips the total norm of gradients.
    /// Default: no clipping.
    pub max_grad_norm: f64,
    /// The p of that norm, above 0 or infinite. Default: 2.
    pub grad_norm_type: f64,
    /// The treatment of gradients that are not finite. Default: ignore.
    pub nonfinite: Nonfinite,
    /// The number of threads that update on this rank. Default: the rank's part of the cores.
    pub threads: i32,
    /// The master weights of 16-bit parameters. Default: an f32.
    pub master: Master,
    /// The type to which gradients are rounded before they are summed: [`Dtype::Bf16`] or
    /// [`Dtype::F16`]. Default: no rounding.
    pub wire_dtype: Option<Dtype>,
    /// A power of two. Gradients are divided by it before they travel, and their sum is multiplied
    /// by it. Default: 1.
    pub predivide_factor: f64,
    /// The type to which a step rounds f32 parameters on every rank: [`Dtype::Bf16`] or
    /// [`Dtype::F16`]. The parameters then have masters. Default: no rounding.
    pub share_dtype: Option<Dtype>,
    /// The first scale of dynamic loss scaling, like torch's GradScaler: 2^-100 to 2^100. Default:
    /// no loss scaling.
    pub loss_scale: f64,
    /// The factor by which that scale grows, at least 1. Default: 2.
    pub growth_factor: f64,
    /// The number of steps without a skip after which it grows. Default: 2,000.
    pub growth_interval: i64,
    /// The factor that reduces it after a skipped step, above 0 and at most 1. Default: 0.5.
    pub backoff_factor: f64,
    /// The behavior when some ranks run out of inputs. Default: ranks cannot
    /// [join](crate::Optim::join).
    pub uneven_inputs: UnevenInputs,
    /// True if [`Optim::step`](crate::Optim::step) returns before parameters are new: see
    /// [`Optim::param_wait`](crate::Optim::param_wait).
    pub overlap_gather: bool,
    /// The number of copies of the state. Each copy is divided over world / instances neighbouring
    /// ranks. Default: 1.
    pub instances: i32,
    /// The settings of every group, for example `("lr", 3e-4)`. [`Optimizer`] lists the settings of
    /// each rule.
    pub settings: Vec<(String, f64)>,
}

impl Options {
    /// Adds this setting, or replaces its earlier value.
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

/// Settings in C's form.
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
/// Zero bytes are a value of it, and its first field is `struct_size`.
pub(crate) unsafe trait CStruct: Sized {}

macro_rules! c_struct {
    ($($name:ident),* $(,)?) => {$(
        // SAFETY: numbers and pointers only, `struct_size` in front.
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
    // SAFETY: zero bytes are a value, whose first field is its size.
    unsafe {
        value.as_mut_ptr().cast::<usize>().write(size_of::<T>());
        value.assume_init()
    }
}
