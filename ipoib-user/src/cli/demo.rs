//! `ipoib demo`.

use super::Failure;
use crate::demo::topology::Place;
use crate::demo::{self, Options, Screen, Stop, Style, duration, table};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Show the datapath at work between network namespaces
///
/// Makes three network namespaces (a fabric host, a gateway, an Ethernet host), attaches the
/// datapath to the gateway's two ports and runs TCP, UDP and ping over IPv4 and IPv6 through it.
/// Ends at Ctrl-C or after --for, and leaves nothing behind. Needs root and iproute2, no InfiniBand.
#[derive(clap::Args)]
#[command(
    after_long_help = "Before the traffic, a line `namespaces: n1=NAME gateway=NAME n2=NAME` says where \
    to look, and `traffic runs` when counting has begun (with --json on stderr). What is done there \
    shows: `ip -n GATEWAY route add blackhole 10.20.0.1` loses what goes to n2 over IPv4, which \
    `lost` and the exit code say.\n\n\
    Exit codes: 0 everything that was sent arrived, and at least 90 % of the forwarded packets of \
    each family took the fast path; 1 not so; 2 wrong use; 3 this host can't (the error says why)."
)]
pub struct Args {
    /// Stop after this much traffic: 10s, 2m, 1500ms, 1h or seconds [default: at Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse)]
    time: Option<Duration>,
    /// Write one JSON object at the end; what goes on, the namespaces' names included, to stderr
    #[arg(long)]
    json: bool,
    /// How often to show progress
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1s")]
    interval: Duration,
    /// Where it takes place
    #[arg(long, value_enum, value_name = "PLACE", default_value_t)]
    topology: Place,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let stop = Stop::on_signals().map_err(|e| Failure::new(3, format!("signals: {e}")))?;
    let options = Options {
        time: args.time,
        interval: args.interval,
        place: args.topology,
    };
    let (mut stdout, mut stderr) = (io::stdout(), io::stderr());
    let mut screen = if args.json {
        Screen::new(&mut stderr, Style::Lines)
    } else {
        let style = if fits_the_table(&stdout) {
            Style::InPlace
        } else {
            Style::Lines
        };
        Screen::new(&mut stdout, style)
    };
    let summary =
        demo::run(&options, &stop, &mut screen).map_err(|e| Failure::new(e.exit_code(), e))?;
    let text = if args.json {
        summary.json().to_string()
    } else {
        summary.text()
    };
    writeln!(io::stdout(), "{text}")
        .map_err(|e| Failure::new(1, format!("writing the summary: {e}")))?;
    Ok(ExitCode::from(u8::from(!summary.ok())))
}

fn interval(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(100);
    match duration::parse(text)? {
        interval if interval < SHORTEST => Err("the shortest interval is 100ms".to_owned()),
        interval => Ok(interval),
    }
}

/// Whether stdout is a terminal on which the table and the cursor below it have room.
fn fits_the_table(stdout: &io::Stdout) -> bool {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ fills one `winsize`, which `size` is.
    let known = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) } == 0;
    stdout.is_terminal()
        && known
        && usize::from(size.ws_row) > table::HEIGHT
        && usize::from(size.ws_col) >= table::WIDTH
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Demo {
        #[command(flatten)]
        args: Args,
    }

    fn parse(arguments: &[&str]) -> Result<Args, String> {
        Demo::try_parse_from(["demo"].iter().chain(arguments))
            .map(|demo| demo.args)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn without_arguments_it_runs_until_ctrl_c() {
        let args = parse(&[]).unwrap();
        assert_eq!(
            (args.time, args.interval, args.json),
            (None, Duration::from_secs(1), false)
        );
    }

    #[test]
    fn times_are_read_and_wrong_ones_named() {
        let args = parse(&["--for", "2m", "--interval", "250ms", "--json"]).unwrap();
        assert_eq!(args.time, Some(Duration::from_secs(120)));
        assert_eq!(args.interval, Duration::from_millis(250));
        let wrong = parse(&["--for", "soon"]).err().unwrap();
        assert!(wrong.contains("\"soon\" is no length of time"), "{wrong}");
        let short = parse(&["--interval", "1ms"]).err().unwrap();
        assert!(short.contains("the shortest interval is 100ms"), "{short}");
    }
}
