//! `ipoib`: see [`ipoib_user::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    ipoib_user::cli::main()
}
