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
    products: Vec<f32>,
    errors: Vec<f32>,
}

impl Model for Linear {
    type Batch = Vec<[f32; 3]>;

    fn parameters(&self) -> &ParameterTable {
        &self.table
    }

    fn forward(
        &mut self,
        pass: &ForwardPass<'_, f32>,
        rows: &Self::Batch,
    ) -> Result<(), PassError> {
        let params = pass.unit(pass.index)?;
        if pass.index == 0 {
            let product = |x: &[f32; 3]| x.iter().zip(params).map(|(x, w)| x * w).sum();
            self.products = rows.iter().map(product).collect();
        } else {
            let error = |(y, x): (&f32, &[f32; 3])| y + params[0] - (2.0 * x[0] - 3.0 * x[1] + 0.5);
            self.errors = self.products.iter().zip(rows).map(error).collect();
        }
        Ok(())
    }

    fn loss(&self) -> f32 {
        self.errors.iter().map(|error| error * error).sum::<f32>() / self.errors.len() as f32
    }

    fn backward(
        &mut self,
        pass: &mut BackwardPass<'_, f32>,
        rows: &Self::Batch,
    ) -> Result<(), PassError> {
        let scale = pass.forward.loss_scale * 2.0 / rows.len() as f32;
        let gradient = pass.gradient(pass.index())?;
        for (error, x) in self.errors.iter().zip(rows) {
            let inputs = if gradient.len() == 3 { &x[..] } else { &[1.0] };
            gradient.iter_mut().zip(inputs).for_each(|(g, x)| *g += scale * error * x);
        }
        Ok(())
    }
}

/// Trains with a stage; returns the digest of the result, which no stage changes, and the last loss.
pub(crate) fn train(group: &Group, sharding: Sharding) -> Result<(String, f32), EngineError> {
    let mut model = Linear::default();
    model.table.unit("product");
    model.table.push("w", &[1, 3], Init::Normal { std: 1.0 });
    model.table.unit("bias");
    model.table.push("b", &[1], Init::Constant(0.0));
    let schedule = remuda::runtime::optim::LrSchedule::Constant { rate: 0.05 };
    let config = EngineConfig { sharding, schedule, ..EngineConfig::default() };
    let mut engine = Engine::new(group, model, config)?;
    let mut loss = f32::NAN;
    for step in 0..200 {
        let row = |random: &mut RandomStream| [0; 3].map(|_| random.normal() as f32);
        let rows =
            |lane| (0..8).map(|i| row(&mut RandomStream::new(&[step, lane as u64, i]))).collect();
        loss = engine.train_batch(rows)?.loss;
    }
    Ok((engine.digest()?, loss))
}

fn main() -> Result<(), EngineError> {
    let group = Group::from_env()?;
    for sharding in Sharding::ALL {
        let (digest, loss) = train(&group, sharding)?;
        if group.rank() == 0 {
            let _ =
                writeln!(std::io::stdout(), "stage {}: loss {loss:.6}, {digest}", sharding.stage());
        }
    }
    Ok(())
}
