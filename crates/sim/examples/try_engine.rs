use ashlar_sim::engine::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n = |i: usize| a.get(i).and_then(|s| s.parse::<u64>().ok());
    match a[1].as_str() {
        "every" => {
            let copies = n(2).unwrap_or(2) as u8;
            let t = std::time::Instant::now();
            let r = run_every_crash(
                ashlar_store::Layout::Mirror { copies },
                n(3).unwrap_or(1),
                n(4).unwrap_or(5),
            );
            println!("{r:#?} {:?}", t.elapsed());
            if let Err((case, _)) = r {
                let mut l = |s: &str| println!("{s}");
                if a.len() > 5 {
                    let _ = run_case(&case, Some(&mut l));
                }
            }
        }
        name => {
            let p = Profile::named(name).unwrap();
            let first = n(2).unwrap_or(0);
            if a.len() > 4 {
                let mut l = |s: &str| println!("{s}");
                println!(
                    "{:?}",
                    run_traced(first, &p[(first % p.len() as u64) as usize], Some(&mut l))
                );
                return;
            }
            let t = std::time::Instant::now();
            let (mut failed, mut cmds, mut micros, mut crashes) = (0, 0, 0, 0);
            let count = n(3).unwrap_or(100);
            for seed in first..first + count {
                match run(seed, &p[(seed % p.len() as u64) as usize]) {
                    Err(f) => {
                        failed += 1;
                        println!("{f}");
                    }
                    Ok(s) => {
                        cmds += s.commands;
                        micros += s.micros;
                        crashes += s.crashes;
                    }
                }
            }
            println!(
                "seeds {count} failed {failed}, {cmds} commands {crashes} crashes {} ms simulated, {:?}",
                micros / 1000,
                t.elapsed()
            );
        }
    }
}
