//! Blocks that can be read at no copy, while owners come and go.

use ashlar_sim::cluster::{Profile, run};

/// Whatever is lost: hosts read nothing that another copy may have otherwise, and all goes on when it can be read again.
#[test]
fn what_is_lost_at_every_copy_is_never_read_and_holds_up_nothing_else() {
    let profile = Profile {
        name: "lost",
        engines: 0,
        spoils: 60,
        spoils_all: true,
        crashes: 10,
        ..Profile::BAD_BLOCKS
    };
    let lost = (0..200).map(|seed| match run(seed, &profile) {
        Ok(lived) => lived.unread_bases,
        Err(failure) => panic!("{failure}"),
    });
    let lost: u64 = lost.sum();
    assert!(lost > 20, "{lost} granules of bases were lost");
}
