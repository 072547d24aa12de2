// SPDX-License-Identifier: Apache-2.0
//! Descriptions of the update rules of the C library.
use std::slice;

use libzero_sys as sys;

use crate::error::{Result, check, load, static_text};
use crate::options::Optimizer;

/// A setting of an update rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// The name of the setting in [`Options::set`](crate::Options::set).
    pub name: &'static str,
    /// The default value.
    pub default: f64,
    /// A description of the values that the setting may take.
    pub range: &'static str,
}

/// One tensor of a parameter's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The name in checkpoints.
    pub name: &'static str,
    /// The setting that must not be 0 for this tensor to exist, or None if the tensor always
    /// exists.
    pub setting: Option<&'static str>,
}

/// An update rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The name in checkpoints.
    pub name: &'static str,
    /// The hyperparameters.
    pub settings: Vec<Setting>,
    /// The state of each parameter.
    pub slots: Vec<Slot>,
}

impl Optimizer {
    /// Returns the settings of the rule, and the state of each parameter. Fails if the C library
    /// does not have this rule.
    pub fn rule(self) -> Result<Rule> {
        load()?;
        // SAFETY: Zero bytes are a valid value of this struct.
        let mut rule: sys::zero_rule = unsafe { std::mem::zeroed() };
        rule.struct_size = size_of::<sys::zero_rule>();
        // SAFETY: The struct contains its own size.
        check(unsafe { sys::zero_rule_info(self as i32, &mut rule) })?;
        // SAFETY: The tables of the library have these lengths. The tables and their texts are
        // never freed.
        let (names, defaults, ranges, slots, needed) = unsafe {
            (
                slice::from_raw_parts(rule.setting_names, rule.setting_count),
                slice::from_raw_parts(rule.setting_defaults, rule.setting_count),
                slice::from_raw_parts(rule.setting_ranges, rule.setting_count),
                slice::from_raw_parts(rule.slots, rule.slot_count),
                slice::from_raw_parts(rule.slot_settings, rule.slot_count),
            )
        };
        let setting = |i: usize| Setting {
            name: static_text(names[i]),
            default: defaults[i],
            range: static_text(ranges[i]),
        };
        let slot = |i: usize| Slot {
            name: static_text(slots[i]),
            setting: (!needed[i].is_null()).then(|| static_text(needed[i])),
        };
        Ok(Rule {
            name: static_text(rule.name),
            settings: (0..rule.setting_count).map(setting).collect(),
            slots: (0..rule.slot_count).map(slot).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Optimizer;

    /// The rules in the order of their numbers.
    const ALL: [Optimizer; 15] = [
        Optimizer::AdamW,
        Optimizer::Adam,
        Optimizer::Sgd,
        Optimizer::RmsProp,
        Optimizer::Adagrad,
        Optimizer::Lion,
        Optimizer::Adamax,
        Optimizer::Adadelta,
        Optimizer::RAdam,
        Optimizer::NAdam,
        Optimizer::Rprop,
        Optimizer::Lamb,
        Optimizer::Lars,
        Optimizer::Adan,
        Optimizer::AdEmaMix,
    ];

    #[test]
    fn comments_of_rules_have_their_settings_and_defaults() {
        let source = include_str!("options.rs");
        let (_, variants) = source.split_once("pub enum Optimizer {").unwrap();
        let comments: Vec<&str> = variants.split(" = sys::ZERO_OPTIMIZER_").collect();
        for (number, optimizer) in ALL.into_iter().enumerate() {
            assert_eq!(optimizer as usize, number);
            // Every second part is between backquotes.
            let told: Vec<(&str, f64)> = comments[number]
                .split('`')
                .skip(1)
                .step_by(2)
                .map(|code| code.split_once(": ").unwrap())
                .map(|(name, value)| (name, value.parse().unwrap()))
                .collect();
            let rule = optimizer.rule().unwrap();
            let settings: Vec<_> =
                rule.settings.iter().map(|one| (one.name, one.default)).collect();
            assert_eq!(told, settings, "{optimizer:?}");
        }
    }
}
