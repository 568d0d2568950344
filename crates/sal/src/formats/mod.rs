//! Keys in the formats that other tools read and write.

pub mod pkcs8;
pub mod sec1;
pub mod spki;
