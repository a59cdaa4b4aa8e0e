//! The lines of `remuda checkpoint show` about the state besides the tensors, in the words of options and of
//! torch. Values of another program are shown as JSON.

use std::fmt::Write as _;

use serde_json::Value;

use crate::cli::command::optimizer_text::show_settings;
use crate::report::text::{escape_control, show_count};
use crate::runtime::checkpoint::{Division, SavedState};
use crate::runtime::engine::{Sharding, saved_schedule};
use crate::runtime::optim::LossScale;

/// Gap between two settings.
const GAP: &str = "  ";

/// Returns a line for each fact that the state has.
pub(super) fn show_facts(state: &SavedState) -> String {
    let facts = [
        ("model", Some(state.model.clone())),
        ("data", state.data.map(|data| data.to_string())),
        ("saved by", state.division.as_ref().map(show_division)),
        ("optimizer", Some(show_optimizer(&state.optimizer, &state.optimizer_settings))),
        ("schedule", show_schedule(state)),
        ("loss scale", show_loss_scale(&state.loss_scale)),
        ("random", show_json(&state.random)),
        ("client", show_json(&state.client)),
    ];
    facts.into_iter().fold(String::new(), |mut text, (name, fact)| {
        if let Some(fact) = fact.filter(|fact| !fact.is_empty()) {
            let _ = writeln!(text, "  {name:<10}  {}", escape_control(&fact));
        }
        text
    })
}

fn show_json(value: &Value) -> Option<String> {
    if value.is_null() { None } else { Some(value.to_string()) }
}

fn show_division(division: &Division) -> String {
    let Division { sharding, world_size, accumulate, precision } = division;
    let workers = show_count(*world_size as usize, "worker");
    let batches = if *accumulate == 1 { "micro-batch" } else { "micro-batches" };
    let stage = Sharding::ALL.into_iter().find(|stage| stage.to_string() == *sharding);
    let stage = match stage {
        Some(stage) => format!("ZeRO stage {}", stage.stage()),
        None => format!("sharding {sharding}"),
    };
    format!("{workers} × {accumulate} {batches}, {precision}, {stage}")
}

fn show_optimizer(name: &str, settings: &Value) -> String {
    match serde_json::from_value(settings.clone()) {
        Ok(optimizer) => show_settings(&optimizer).join(GAP),
        Err(_) => match show_json(settings) {
            Some(settings) => format!("{name} {settings}"),
            None => name.to_owned(),
        },
    }
}

/// The schedule of learning rates counts the steps that changed the parameters.
fn show_schedule(state: &SavedState) -> Option<String> {
    if let Some((schedule, updates)) = saved_schedule(state) {
        let done = show_count(updates as usize, "optimizer step");
        return Some(match schedule.steps() {
            Some(steps) => format!("{done}; the learning rate falls until step {steps}"),
            None => done,
        });
    }
    let schedule = &state.schedule;
    let fields = schedule.as_object().filter(|fields| fields.len() == 1);
    match fields.and_then(|fields| fields.get("updates")).and_then(Value::as_u64) {
        Some(updates) => Some(show_count(updates as usize, "optimizer step")),
        None => show_json(schedule),
    }
}

fn show_loss_scale(loss_scale: &Value) -> Option<String> {
    match serde_json::from_value(loss_scale.clone()) {
        Ok(LossScale::Constant { scale }) => Some(format!("{scale} (constant)")),
        Ok(LossScale::Dynamic { scale, clean_steps, .. }) => {
            let steps = show_count(clean_steps as usize, "step");
            Some(format!("{scale} (dynamic), {steps} since the last overflow"))
        }
        Err(_) => show_json(loss_scale),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::runtime::optim::{AdamOptions, LrSchedule, Optimizer, Schedule};

    #[test]
    fn state_is_shown_in_the_words_of_options() {
        let adam = AdamOptions { betas: [0.9, 0.99], weight_decay: 0.1, ..AdamOptions::default() };
        let settings = serde_json::to_value(Optimizer::Adam(adam)).expect("numbers");
        let state = SavedState {
            division: Some(Division {
                sharding: Sharding::Optimizer.to_string(),
                world_size: 1,
                accumulate: 3,
                precision: "f32".to_owned(),
            }),
            optimizer: "Adam".to_owned(),
            optimizer_settings: settings,
            schedule: json!({ "updates": 34 }),
            loss_scale: json!({ "Constant": { "scale": 1.0 } }),
            ..SavedState::default()
        };
        let expected = "  saved by    1 worker × 3 micro-batches, f32, ZeRO stage 1
  optimizer   AdamW  betas 0.9, 0.99  eps 1e-8  weight decay 0.1
  schedule    34 optimizer steps
  loss scale  1 (constant)
";
        assert_eq!(show_facts(&state), expected);
    }

    #[test]
    fn length_of_the_schedule_is_shown() {
        let schedule = Schedule { rate: 1e-3, rate_min: 1e-4, warmup: 5, steps: 100 };
        for (schedule, expected) in [
            (
                LrSchedule::HalfCosine(schedule),
                "  schedule    34 optimizer steps; the learning rate falls until step 100\n",
            ),
            (LrSchedule::Constant { rate: 1e-3 }, "  schedule    34 optimizer steps\n"),
        ] {
            let schedule = json!({ "updates": 34, "settings": schedule });
            let state = SavedState { schedule, ..SavedState::default() };
            assert_eq!(show_facts(&state), expected);
        }
    }

    #[test]
    fn values_of_other_programs_are_json() {
        let state = SavedState {
            optimizer: "lamb".to_owned(),
            optimizer_settings: json!({ "trust": 1 }),
            schedule: json!({ "epoch": 2 }),
            ..SavedState::default()
        };
        let expected = "  optimizer   lamb {\"trust\":1}\n  schedule    {\"epoch\":2}\n";
        assert_eq!(show_facts(&state), expected);
    }
}
