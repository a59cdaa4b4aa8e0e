//! A model of one's own, trained by the engine with every stage of sharding.
//!
//! ```text
//! remuda run --num_gpus 2 target/release/examples/own_model
//! ```

use remuda::runtime::engine::{
    BackwardPass, Engine, EngineConfig, EngineError, ForwardPass, Init, Model, ParameterTable,
    PassError, Sharding,
};
use remuda::runtime::{Group, RandomStream};

/// `y = w · x + b`, in one unit. A model of several units is passed through unit by unit: `pass.index` says which, and
/// each is gathered before its pass and reduced after it.
#[derive(Default)]
struct Linear {
    table: ParameterTable,
    /// `w · x + b - y` of every row.
    errors: Vec<f32>,
}

/// Two inputs each; the true `y` is `2 x₀ - 3 x₁ + 0.5`.
type Rows = Vec<[f32; 2]>;

impl Model for Linear {
    type Batch = Rows;

    fn parameters(&self) -> &ParameterTable {
        &self.table
    }

    fn forward(&mut self, pass: &ForwardPass<'_, f32>, rows: &Rows) -> Result<(), PassError> {
        let [w0, w1, b] = *pass.unit(pass.index)? else { panic!("the unit has three numbers") };
        let errors = rows.iter().map(|[x0, x1]| (w0 - 2.0) * x0 + (w1 + 3.0) * x1 + b - 0.5);
        self.errors = errors.collect();
        Ok(())
    }

    fn loss(&self) -> f32 {
        self.errors.iter().map(|error| error * error).sum::<f32>() / self.errors.len() as f32
    }

    fn backward(&mut self, pass: &mut BackwardPass<'_, f32>, rows: &Rows) -> Result<(), PassError> {
        let scale = pass.forward.loss_scale * 2.0 / rows.len() as f32;
        let gradient = pass.gradient(pass.index())?;
        for (error, [x0, x1]) in self.errors.iter().zip(rows) {
            gradient.iter_mut().zip([x0, x1, &1.0]).for_each(|(g, x)| *g += scale * error * x);
        }
        Ok(())
    }
}

/// Trains with a stage; returns the digest of the result, which no stage changes, and the last loss.
pub(crate) fn train(group: &Group, sharding: Sharding) -> Result<(String, f32), EngineError> {
    let mut model = Linear::default();
    model.table.unit("linear");
    model.table.push("w", &[1, 2], Init::Normal { std: 1.0 });
    model.table.push("b", &[1], Init::Constant(0.0));
    let schedule = remuda::runtime::optim::LrSchedule::Constant { rate: 0.05 };
    let mut engine =
        Engine::new(group, model, EngineConfig { sharding, schedule, ..EngineConfig::default() })?;
    let mut loss = f32::NAN;
    for step in 0..200 {
        let rows = |lane| {
            let mut random = RandomStream::new(&[step, lane as u64]);
            (0..8).map(|_| [0; 2].map(|_| random.normal() as f32)).collect()
        };
        loss = engine.train_batch(rows)?.loss;
    }
    Ok((engine.digest()?, loss))
}

#[expect(clippy::disallowed_macros, reason = "this is a program of its own")]
fn main() -> Result<(), EngineError> {
    let group = Group::from_env()?;
    for sharding in Sharding::ALL {
        println!("{sharding:?}: {:?}", train(&group, sharding)?);
    }
    Ok(())
}
