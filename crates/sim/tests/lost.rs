//! Blocks that can be read at no copy, while owners come and go.

use ashlar_sim::cluster::{Profile, run};

/// Whatever is lost: hosts read nothing that another copy may have otherwise, and all goes on when it can be read again.
#[test]
fn what_is_lost_at_every_copy_is_never_read_and_holds_up_nothing_else() {
    let seeds = match std::env::var_os("ASHLAR_SOAK") {
        Some(_) => 0..700,
        None => 0..100,
    };
    let mut lost = 0;
    for (spoils, crashes) in [(60, 10), (20, 20), (10, 30)] {
        let profile = Profile {
            name: "lost",
            engines: 0,
            spoils,
            spoils_all: true,
            crashes,
            ..Profile::BAD_BLOCKS
        };
        lost += seeds
            .clone()
            .fold(0, |lost, seed| match run(seed, &profile) {
                Ok(lived) => lost + lived.unread_bases,
                Err(failure) => panic!("{failure}"),
            });
    }
    assert!(lost > 40, "{lost} granules of bases were lost");
}
