//! The page is part of the library: it is built again when a file of the page is new.

fn main() {
    println!("cargo:rerun-if-changed=web");
}
