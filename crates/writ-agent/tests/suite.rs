//! The turn machine from outside: scripts, pairs, properties, context.

#[cfg(test)]
#[path = "suite/fixture.rs"]
mod fixture;

#[cfg(test)]
#[path = "suite/pairs.rs"]
mod pairs;

#[cfg(test)]
#[path = "suite/scripts.rs"]
mod scripts;

#[cfg(test)]
#[path = "suite/shorten.rs"]
mod shorten;

#[cfg(test)]
#[path = "suite/turns.rs"]
mod turns;

#[cfg(test)]
#[path = "suite/context.rs"]
mod context;

#[cfg(test)]
#[path = "suite/compact.rs"]
mod compact;

#[cfg(test)]
#[path = "suite/properties.rs"]
mod properties;
#[cfg(test)]
#[path = "suite/route.rs"]
mod route;
