//! The git service with real repositories and the real git.

#[cfg(test)]
#[path = "suite/fixture.rs"]
mod fixture;

#[cfg(test)]
#[path = "suite/workspaces.rs"]
mod workspaces;

#[cfg(test)]
#[path = "suite/merges.rs"]
mod merges;

#[cfg(test)]
#[path = "suite/checkouts.rs"]
mod checkouts;

#[cfg(test)]
#[path = "suite/hostile.rs"]
mod hostile;

#[cfg(test)]
#[path = "suite/shapes.rs"]
mod shapes;

#[cfg(test)]
#[path = "suite/reverts.rs"]
mod reverts;

#[cfg(test)]
#[path = "suite/recovery.rs"]
mod recovery;

#[cfg(test)]
#[path = "suite/maps.rs"]
mod maps;
