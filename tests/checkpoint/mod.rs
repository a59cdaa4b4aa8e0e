//! Checkpoints of any number of ranks: layouts, damage, processes that are killed at every stage of a save,
//! full and separate disks.

mod damage;
mod disks;
mod earlier;
mod kills;
mod layouts;
mod runs;
mod test_dir;
mod worker;
