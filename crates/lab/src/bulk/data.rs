//! The data that moves: the same every time, so that runs can be compared.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use sallyport_bench::AtFile;

use crate::LabError;

/// What the data is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// Half lines of a log, half noise that no compression makes smaller, in blocks of 1 MiB.
    Mixed,
    /// Noise only: a recording of it cannot be smaller.
    Noise,
    /// Lines of a log only.
    Text,
}

/// Writes so many bytes of it.
pub(crate) fn fill(path: &Path, size: u64, data: Data) -> Result<(), LabError> {
    const BLOCK: usize = 1 << 20;
    let mut out = BufWriter::with_capacity(BLOCK, File::create(path).at("write", path)?);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    // xorshift64*: nothing secret, only nothing that compresses.
    let mut next = move || {
        seed ^= seed >> 12;
        seed ^= seed << 25;
        seed ^= seed >> 27;
        seed.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let mut left = size;
    let mut number = 0_u64;
    while left > 0 {
        let mut block = Vec::with_capacity(BLOCK + 128);
        let noise = match data {
            Data::Mixed => number % 2 == 1,
            Data::Noise => true,
            Data::Text => false,
        };
        while block.len() < BLOCK {
            let value = next();
            if noise {
                block.extend_from_slice(&value.to_le_bytes());
            } else {
                let line = format!(
                    "2026-03-01T12:{:02}:{:02}.{:03}Z INFO request id={value:016x} user=user{} path=/v1/items/{} status=200 \
                     bytes={}\n",
                    value % 60,
                    value >> 8 & 31,
                    value >> 16 & 511,
                    value >> 24 & 63,
                    value >> 32 & 0xffff,
                    value >> 40 & 0xffff
                );
                block.extend_from_slice(line.as_bytes());
            }
        }
        let take = block.len().min(BLOCK).min(usize::try_from(left).unwrap_or(BLOCK));
        out.write_all(block.get(..take).unwrap_or_default()).at("write", path)?;
        left -= take as u64;
        number += 1;
    }
    Ok(out.flush().at("write", path)?)
}
