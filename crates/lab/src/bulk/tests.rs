#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn the_data_is_the_same_every_time_and_of_the_size_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let size = (5 << 20) / 2 + 17;
    let make = |name: &str, data| {
        let path = directory.path().join(name);
        fill(&path, size, data).unwrap();
        std::fs::read(path).unwrap()
    };
    let (one, two) = (make("one", Data::Mixed), make("two", Data::Mixed));
    assert_eq!(one.len() as u64, size);
    assert!(one == two);
    assert!(one.starts_with(b"2026-03-01T12:"));
    assert!(make("noise", Data::Noise) != one);
    assert!(String::from_utf8(make("text", Data::Text)).is_ok());
}
