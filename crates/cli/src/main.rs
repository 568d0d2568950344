//! The `sallyport` program.

fn main() -> std::process::ExitCode {
    sallyport_cli::main()
}
