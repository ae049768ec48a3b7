//! Own time: the boot-time clock from an anchor, and a slew.

use super::bounds::Micros;

/// Own time as a function of the boot-time clock. It is continuous and never goes back while the anchor stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Anchor {
    /// Reading of the boot-time clock at the anchor.
    pub(super) boot: Micros,
    /// Own time at the anchor.
    pub(super) own: Micros,
    /// Distance to the wall at the anchor, to be made up by slewing.
    pub(super) slew: Micros,
}

impl Anchor {
    /// Own time at a reading of the boot-time clock. A reading from before the anchor gives the anchor's time: a
    /// thread may hold a reading that is older than the anchor that another one has just set.
    pub(super) fn own(&self, boot: Micros, slew_ppm: i64) -> Micros {
        let elapsed = (boot - self.boot).max(0);
        let most = elapsed.saturating_mul(slew_ppm) / 1_000_000;
        self.own + elapsed + self.slew.clamp(-most, most)
    }

    /// The anchor moved along its own line to `boot`, with a new distance to make up.
    pub(super) fn moved(&self, boot: Micros, slew: Micros, slew_ppm: i64) -> Self {
        Self { boot: boot.max(self.boot), own: self.own(boot, slew_ppm), slew }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timekeeping::bounds::SECOND;

    #[test]
    fn it_slews_by_500_ppm_at_the_most_and_not_past_the_wall() {
        let anchor = Anchor { boot: 0, own: 100 * SECOND, slew: 1_000 };
        assert_eq!(anchor.own(SECOND, 500), 101 * SECOND + 500);
        assert_eq!(anchor.own(3_600 * SECOND, 500), 3_700 * SECOND + 1_000);
        let back = Anchor { slew: -2 * SECOND, ..anchor };
        assert_eq!(back.own(SECOND, 500), 101 * SECOND - 500);
    }

    #[test]
    fn it_is_continuous_and_does_not_go_back() {
        let mut anchor = Anchor { boot: 0, own: 0, slew: -2 * SECOND };
        let mut last = 0;
        for boot in (0..10_000_000).step_by(997) {
            let own = anchor.own(boot, 500);
            assert!(own >= last);
            last = own;
            if boot % 7 == 0 {
                let next = anchor.moved(boot, if boot % 2 == 0 { SECOND } else { -SECOND }, 500);
                assert_eq!(next.own(boot, 500), own);
                assert!(next.own(boot - 1, 500) >= own - 1);
                anchor = next;
            }
        }
    }
}
