//! Tests of the program: commands, launches, faults, pods, ssh. One executable, because each links the
//! whole crate.

#![cfg(all(feature = "cli", feature = "train"))]

mod action;
mod bench;
mod cascades;
mod checkpoints;
mod cli;
mod config;
mod conformance;
mod cures;
mod doctor;
mod env_file;
mod environment;
mod everywhere;
mod faces;
mod faults;
mod hostfile;
mod hugging_face;
mod jobs;
mod matrix;
mod mpi;
mod netns;
mod oracles;
mod plan;
mod pods;
mod sample;
mod sarif;
mod selection;
mod settings;
mod slurm;
mod ssh;
mod support;
mod tokenize;
mod trainer;
mod upstream;
