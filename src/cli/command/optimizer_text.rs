//! The settings of an optimizer in words. Pure.

use crate::runtime::optim::{AdamOptions, LionOptions, Optimizer, SgdOptions, WeightDecay};

/// Returns the name of the optimizer, and a text for each of its settings.
pub(super) fn show_settings(optimizer: &Optimizer) -> Vec<String> {
    match optimizer {
        Optimizer::Adam(adam) => show_adam(adam),
        Optimizer::Sgd(sgd) => show_sgd(sgd),
        Optimizer::Lion(LionOptions { betas, weight_decay }) => {
            vec!["Lion".to_owned(), show_betas(*betas), show_decay(*weight_decay)]
        }
    }
}

fn show_adam(adam: &AdamOptions) -> Vec<String> {
    let name = match adam.decay {
        WeightDecay::Decoupled => "AdamW",
        WeightDecay::L2 => "Adam",
    };
    let mut shown = vec![
        name.to_owned(),
        show_betas(adam.betas),
        format!("eps {}", show_number(adam.epsilon)),
        show_decay(adam.weight_decay),
    ];
    if !adam.bias_correction {
        shown.push("no bias correction".to_owned());
    }
    shown
}

fn show_sgd(sgd: &SgdOptions) -> Vec<String> {
    let mut shown = vec!["SGD".to_owned(), format!("momentum {}", show_number(sgd.momentum))];
    if sgd.dampening != 0.0 {
        shown.push(format!("dampening {}", show_number(sgd.dampening)));
    }
    if sgd.nesterov {
        shown.push("Nesterov".to_owned());
    }
    shown.push(show_decay(sgd.weight_decay));
    shown
}

fn show_betas(betas: [f64; 2]) -> String {
    format!("betas {}, {}", show_number(betas[0]), show_number(betas[1]))
}

fn show_decay(weight_decay: f64) -> String {
    format!("weight decay {}", show_number(weight_decay))
}

/// A number as in Python: small ones with an exponent.
fn show_number(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-4 { format!("{number:e}") } else { number.to_string() }
}
