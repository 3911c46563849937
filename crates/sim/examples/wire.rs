//! `cargo run --example wire PROFILE FIRST COUNT [trace]`
use ashlar_sim::{Profile, run_traced};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let profile = Profile::named(&args[1]).expect("a profile");
    let first: u64 = args[2].parse().expect("a number");
    let count: u64 = args[3].parse().expect("a number");
    let mut say = |line: &str| println!("{line}");
    let mut failed = 0;
    for seed in first..first + count {
        let listener: Option<ashlar_sim::Listener<'_>> =
            if args.len() > 4 { Some(&mut say) } else { None };
        match run_traced(seed, &profile, listener) {
            Ok(summary) => {
                if count < 20 {
                    println!("seed {seed}: {summary}")
                }
            }
            Err(failure) => {
                failed += 1;
                println!("{failure}")
            }
        }
    }
    println!("seeds {count} failed {failed}");
}
