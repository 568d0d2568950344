//! The sallyport command.
fn main() {}
