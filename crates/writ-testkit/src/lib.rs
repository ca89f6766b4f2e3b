//! Plays the demo's model and builds its repository; tests use the same parts.

pub mod model_server;

pub mod repo;

pub mod solver;

pub mod demo;

pub mod fleet;

pub mod pilot;

pub mod mail_sink;
