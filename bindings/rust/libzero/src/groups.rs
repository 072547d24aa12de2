// SPDX-License-Identifier: Apache-2.0
//! The options of a group.
use crate::custom::CustomRule;
use crate::options::{Optimizer, StateDtype};

/// The rule that a group follows.
#[derive(Debug, Default)]
pub(crate) enum GroupRule {
    #[default]
    OfOptimizer,
    Named(Optimizer),
    Custom(CustomRule),
}

/// The options of a group, for [`Optim::add_with`](crate::Optim::add_with). They must be the same
/// on every rank. By default, a group follows the rule of the optimizer and starts with its
/// settings.
///
/// ```
/// # fn main() -> libzero::Result<()> {
/// use libzero::{Comm, Deadlines, GroupOptions, Optim, Optimizer, Options, Shape, StateDtype};
///
/// let comm = Comm::solo(Deadlines::default())?;
/// let mut optim = Optim::new(&comm, &Options::default())?;
/// let lion = GroupOptions::of(Optimizer::Lion).state_dtype(StateDtype::Bf16).set("lr", 1e-4);
/// optim.add_with(&[Shape::new("w", &[784, 10])], lion)?;
/// optim.add(&[Shape::new("b", &[10])], &[])?; // AdamW, the rule of the optimizer
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct GroupOptions {
    pub(crate) rule: GroupRule,
    pub(crate) state_dtype: StateDtype,
    pub(crate) settings: Vec<(String, f64)>,
}

impl GroupOptions {
    /// Selects the rule of the group. The group starts with the defaults of that rule, not with the
    /// settings of the optimizer.
    pub fn of(optimizer: Optimizer) -> GroupOptions {
        GroupOptions { rule: GroupRule::Named(optimizer), ..GroupOptions::default() }
    }

    /// Does the same as [`of`](GroupOptions::of) for your update rule.
    pub fn of_rule(rule: CustomRule) -> GroupOptions {
        GroupOptions { rule: GroupRule::Custom(rule), ..GroupOptions::default() }
    }

    /// Sets the type in which the group's state is stored. The default is [`StateDtype::Full`].
    pub fn state_dtype(mut self, state_dtype: StateDtype) -> GroupOptions {
        self.state_dtype = state_dtype;
        self
    }

    /// Adds a setting of the group, or replaces its earlier value.
    pub fn set(mut self, name: &str, value: f64) -> GroupOptions {
        self.settings.retain(|(earlier, _)| earlier != name);
        self.settings.push((name.to_owned(), value));
        self
    }

    pub(crate) fn with_settings(settings: &[(&str, f64)]) -> GroupOptions {
        let settings = settings.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        GroupOptions { settings, ..GroupOptions::default() }
    }
}
