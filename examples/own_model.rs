//! A model of one's own, trained by the engine with every stage of sharding.
//!
//! ```text
//! remuda run --num_gpus 2 target/release/examples/own_model
//! ```

use std::io::Write as _;

use remuda::runtime::engine::{
    BackwardPass, Engine, EngineConfig, EngineError, ForwardPass, Init, Model, ParameterTable,
    PassError, Sharding,
};
use remuda::runtime::{Group, RandomStream};

/// `y = w · x + b`, in two units: each is gathered before its pass and reduced after it.
#[derive(Default)]
struct Linear {
    table: ParameterTable,
    /// Of every row, `w · x - y` after the first pass, and with `b` after the second one.
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
        match pass.unit(pass.index)? {
            [w0, w1] => {
                let error = |[x0, x1]: &[f32; 2]| (w0 - 2.0) * x0 + (w1 + 3.0) * x1 - 0.5;
                self.errors = rows.iter().map(error).collect();
            }
            bias => self.errors.iter_mut().for_each(|error| *error += bias[0]),
        }
        Ok(())
    }

    fn loss(&self) -> f32 {
        self.errors.iter().map(|error| error * error).sum::<f32>() / self.errors.len() as f32
    }

    fn backward(&mut self, pass: &mut BackwardPass<'_, f32>, rows: &Rows) -> Result<(), PassError> {
        let scale = pass.forward.loss_scale * 2.0 / rows.len() as f32;
        let gradient = pass.gradient(pass.index())?;
        for (error, x) in self.errors.iter().zip(rows) {
            let inputs = if gradient.len() == 2 { &x[..] } else { &[1.0] };
            gradient.iter_mut().zip(inputs).for_each(|(g, x)| *g += scale * error * x);
        }
        Ok(())
    }
}

/// Trains with a stage; returns the digest of the result, which no stage changes, and the last loss.
pub(crate) fn train(group: &Group, sharding: Sharding) -> Result<(String, f32), EngineError> {
    let mut model = Linear::default();
    model.table.unit("product");
    model.table.push("w", &[1, 2], Init::Normal { std: 1.0 });
    model.table.unit("bias");
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

fn main() -> Result<(), EngineError> {
    let group = Group::from_env()?;
    for sharding in Sharding::ALL {
        let (digest, loss) = train(&group, sharding)?;
        if group.rank() == 0 {
            let stage = sharding.stage();
            let _ = writeln!(std::io::stdout(), "stage {stage}: loss {loss:.6}, {digest}");
        }
    }
    Ok(())
}
