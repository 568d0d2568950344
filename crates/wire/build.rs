//! Generates the gRPC code, without a system `protoc`.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut files = Vec::new();
    for entry in Path::new("proto/sallyport/v1").read_dir()? {
        let name = entry?.file_name();
        files.push(format!("sallyport/v1/{}", name.to_string_lossy()));
    }
    files.sort();
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::codec::SmallCodec")
        .compile_fds(protox::compile(files, ["proto"])?)?;
    Ok(())
}
