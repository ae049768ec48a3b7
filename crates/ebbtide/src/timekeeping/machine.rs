//! The state machine of time: readings in, a [`Now`] or a reason not to serve out. It reads no clock.

use std::collections::VecDeque;

use super::anchor::Anchor;
use super::bounds::{Bounds, DAY, Micros, SECOND};
use super::engine::{Comparison, EngineReading};
use super::event::{Event, NotReady, Voucher};
use super::mark::{BootId, Mark, timestamp};
use super::now::Now;
use super::reading::Reading;
use crate::model::time::Timestamp;

/// The time of one process and one store.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) bounds: Bounds,
    /// True if several nodes share the engine: its clock is compared, and decides.
    pub(super) shared: bool,
    pub(super) boot_id: Option<BootId>,
    pub(super) phase: Phase,
    pub(super) anchor: Anchor,
    pub(super) hold: Option<Hold>,
    pub(super) doubt: Option<Doubt>,
    /// Own time since which the wall has been behind.
    pub(super) behind: Option<Micros>,
    pub(super) engine: Option<Comparison>,
    pub(super) budget: Budget,
    /// Count of the doubts so far. A lease that was taken under another count is void.
    pub(super) doubts: u64,
    /// True if the last observation was confirmed.
    confirmed: bool,
    pub(super) events: VecDeque<Event>,
}

/// Progress of an opening.
#[derive(Debug, Clone, Copy)]
pub(super) enum Phase {
    /// Own time is not known yet.
    Opening {
        mark: Option<Mark>,
        /// Wall minus boot-time clock, when the wall was last seen behind the mark.
        waiting: Option<Micros>,
    },
    Running,
}

/// A stretch after an adoption or a reboot in which absence is still judged by the time before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    /// Own time minus `earliest`: both run on at the same pace.
    pub(super) gap: Micros,
    /// Boot-time reading at which it ends, if nothing vouches for the wall before.
    pub(super) until: Micros,
    /// Wall reading after which a synchronization vouches for the wall that the hold is about.
    pub(super) since: Micros,
    /// Boot-time reading since which the kernel has vouched for the wall.
    pub(super) vouched: Option<Micros>,
}

/// A wall clock that is ahead of own time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubt {
    /// Own time at which it began.
    pub(super) since: Micros,
    /// Largest difference so far. A wall that then goes back, and not to own time, settles nothing.
    pub(super) largest: Micros,
    /// Wall minus own time, at the beginning of `same_since`.
    pub(super) difference: Micros,
    /// Boot-time reading since which the difference has been the same.
    pub(super) same_since: Micros,
}

/// Unvouched adoptions. Their sum starts anew when there was none for a day, so that no day sees more than the bound.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Budget {
    pub(super) used: Micros,
    /// Own time of the last one.
    pub(super) at: Micros,
}

/// Events that are kept until somebody asks for them.
const EVENTS: usize = 256;

/// Time between two anchors: shorter ones lose the slew to rounding.
const ANCHOR_FOR: Micros = SECOND;

impl Machine {
    /// A machine for a store that remembers `mark`.
    pub(super) fn new(bounds: Bounds, shared: bool, boot_id: Option<BootId>, mark: Option<Mark>) -> Self {
        Self {
            bounds,
            shared,
            boot_id,
            phase: Phase::Opening { mark, waiting: None },
            anchor: Anchor::default(),
            hold: None,
            doubt: None,
            behind: None,
            engine: None,
            budget: Budget::default(),
            doubts: 0,
            confirmed: false,
            events: VecDeque::new(),
        }
    }

    /// Own time at a reading of the boot-time clock.
    pub(super) fn own(&self, boot: Micros) -> Micros {
        self.anchor.own(boot, self.bounds.slew_ppm)
    }

    /// The time of a request that begins at this reading.
    pub(super) fn observe(&mut self, at: Reading) -> Result<Now, NotReady> {
        if let Phase::Opening { mark, waiting } = self.phase {
            self.open(mark, waiting, at)?;
        }
        self.follow_engine(at);
        self.judge_wall(at);
        self.slew(at);
        self.end_hold(at);
        let now = self.interval(at);
        let confirmed = now.is_ok_and(Now::is_confirmed);
        if self.confirmed && !confirmed {
            self.doubts += 1;
        }
        self.confirmed = confirmed;
        now
    }

    /// Takes what a comparison with the engine's clock says. False if it proves too little; ask again.
    pub(super) fn compare(&mut self, reading: &EngineReading) -> bool {
        let Some(comparison) = Comparison::of(reading, &self.bounds) else { return false };
        self.engine = Some(comparison);
        true
    }

    /// Follows wall and engine if they agree; then there is nothing to hold back.
    fn follow_engine(&mut self, at: Reading) {
        let Some(engine) = self.current_engine(at) else { return };
        if !engine.agrees(at.wall, at.boot, &self.bounds) {
            return;
        }
        let ahead = at.wall - self.own(at.boot);
        if ahead > self.bounds.doubt && ahead <= self.bounds.vouched {
            self.adopt(at, Voucher::Engine);
        }
        if (at.wall - self.own(at.boot)).abs() <= self.bounds.doubt && self.hold.take().is_some() {
            self.note(Event::HoldEnded { at: timestamp(self.own(at.boot)) });
        }
    }

    /// Begins, continues or ends a doubt, and notes a wall that is behind.
    fn judge_wall(&mut self, at: Reading) {
        let own = self.own(at.boot);
        let difference = at.wall - own;
        if difference < -self.bounds.doubt {
            if self.behind.is_none() {
                self.behind = Some(own);
                self.note(Event::WallBehind { at: timestamp(own), by: -difference });
            }
        } else if self.behind.take().is_some() {
            self.note(Event::WallBack { at: timestamp(own) });
        }
        if difference <= self.bounds.doubt {
            let gone = difference >= -self.bounds.doubt;
            if gone && self.doubt.take().is_some() {
                self.note(Event::DoubtEnded { at: timestamp(own) });
            }
            return;
        }
        let same = |doubt: &Doubt| (difference - doubt.difference).abs() <= self.bounds.same_within;
        let doubt = match self.doubt {
            Some(doubt) if same(&doubt) => Doubt { largest: doubt.largest.max(difference), ..doubt },
            Some(doubt) => {
                Doubt { difference, same_since: at.boot, largest: doubt.largest.max(difference), ..doubt }
            }
            None => {
                self.note(Event::DoubtBegan { at: timestamp(own), by: difference });
                Doubt { since: own, largest: difference, difference, same_since: at.boot }
            }
        };
        self.doubt = Some(doubt);
        // On a shared engine nothing but its clock vouches for the wall.
        if self.shared {
            return;
        }
        let synchronized = at.synchronized_at.is_some_and(|then| {
            let fresh = then > at.wall - self.bounds.vouch_age;
            fresh && then > own + self.bounds.doubt && then <= at.wall + self.bounds.doubt
        });
        if synchronized && difference <= self.bounds.vouched {
            self.adopt(at, Voucher::Kernel);
        } else if at.boot - doubt.same_since >= self.bounds.same_for
            && difference >= doubt.largest - self.bounds.same_within
            && self.budget_allows(own, difference)
        {
            self.budget = Budget { used: self.budget.used + difference, at: at.wall };
            self.adopt(at, Voucher::Nobody);
        }
    }

    /// Starts the sum anew after a day without an adoption, and says if `difference` still fits.
    fn budget_allows(&mut self, own: Micros, difference: Micros) -> bool {
        if own - self.budget.at > DAY {
            self.budget.used = 0;
        }
        self.budget.used + difference <= self.bounds.unvouched
    }

    /// Moves own time ahead to the wall. Unless the engine vouches, `earliest` stays behind for the length of a hold.
    fn adopt(&mut self, at: Reading, voucher: Voucher) {
        let own = self.own(at.boot);
        self.set_own(at);
        self.hold = match voucher {
            Voucher::Engine | Voucher::Operator => None,
            Voucher::Kernel | Voucher::Nobody => {
                let gap = self.hold.map_or(0, |hold| hold.gap) + at.wall - own;
                let until = at.boot + self.bounds.hold_unvouched;
                Some(Hold { gap, until, since: own + self.bounds.doubt, vouched: None })
            }
        };
        self.doubt = None;
        self.doubts += 1;
        self.note(Event::Adopted { from: timestamp(own), to: timestamp(at.wall), voucher });
    }

    /// Makes own time the wall's.
    pub(super) fn set_own(&mut self, at: Reading) {
        self.anchor = Anchor { boot: at.boot, own: at.wall, slew: 0 };
    }

    /// Lets own time follow a wall that is not in doubt.
    fn slew(&mut self, at: Reading) {
        let difference = at.wall - self.own(at.boot);
        let follows = difference.abs() <= self.bounds.doubt;
        if at.boot - self.anchor.boot >= ANCHOR_FOR || (!follows && self.anchor.slew != 0) {
            let slew = if follows { difference } else { 0 };
            self.anchor = self.anchor.moved(at.boot, slew, self.bounds.slew_ppm);
        }
    }

    /// Ends a hold in time, but not while the wall is in doubt or behind.
    fn end_hold(&mut self, at: Reading) {
        let agreed = self.doubt.is_none() && self.behind.is_none();
        let Some(hold) = &mut self.hold else { return };
        let vouched = agreed
            && at.synchronized_at.is_some_and(|then| {
                let recent = then > at.wall - self.bounds.synchronized_age;
                recent && then > hold.since && then <= at.wall + self.bounds.doubt
            });
        hold.vouched = if vouched { hold.vouched.or(Some(at.boot)) } else { None };
        let until = hold.vouched.map_or(hold.until, |since| hold.until.min(since + self.bounds.hold_vouched));
        if agreed && at.boot >= until {
            self.hold = None;
            let own = timestamp(self.own(at.boot));
            self.note(Event::HoldEnded { at: own });
        }
    }

    fn interval(&self, at: Reading) -> Result<Now, NotReady> {
        let own = self.own(at.boot);
        if self.hold.is_some() && self.behind.is_some() {
            return Err(NotReady::BehindInHold { by: own - at.wall });
        }
        let earliest = own - self.hold.map_or(0, |hold| hold.gap);
        let (mut low, mut high) = (earliest, own);
        let mut confirmed = self.doubt.is_none();
        if let Some(engine) = &self.engine
            && !engine.agrees(own, at.boot, &self.bounds)
        {
            let (least, most) = engine.engine(at.boot);
            (low, high) = (low.min(least), high.max(most));
            confirmed = false;
        }
        // Only an engine that agrees with own time, compared after the last step of the wall, says that the wall is wrong.
        let wall_is_wrong = |engine: Comparison| engine.agrees(own, at.boot, &self.bounds);
        if let Some(doubt) = self.doubt
            && !self.current_engine(at).is_some_and(wall_is_wrong)
        {
            high = high.max(own + doubt.largest);
        }
        if confirmed {
            return Ok(Now::held(timestamp(earliest), timestamp(own)));
        }
        if high - low > self.bounds.closed {
            return Err(NotReady::Closed { width: high - low });
        }
        Ok(Now::unconfirmed(timestamp(low), timestamp(high)))
    }

    /// The comparison with the engine, if nothing has happened since that it could not know.
    pub(super) fn current_engine(&self, at: Reading) -> Option<Comparison> {
        self.engine.filter(|engine| engine.is_current(at, &self.bounds))
    }

    /// The time up to which a sweep may remove.
    pub(super) fn sweep_until(&mut self, at: Reading) -> Result<Timestamp, NotReady> {
        let now = self.observe(at)?;
        let difference = at.wall - self.own(at.boot);
        if difference.abs() > self.bounds.doubt || !now.is_confirmed() {
            return Err(NotReady::NoSweep { difference });
        }
        if !self.shared {
            return Ok(now.earliest());
        }
        if self.current_engine(at).is_none() {
            return Err(NotReady::NoEngineClock);
        }
        let earliest = self.own(at.boot) - self.hold.map_or(0, |hold| hold.gap);
        Ok(timestamp(earliest - self.bounds.sweep_margin))
    }

    /// The mark to store. None while own time is not known, or would pass the clock of a shared engine unseen.
    pub(super) fn mark(&self, at: Reading) -> Option<Mark> {
        if matches!(self.phase, Phase::Opening { .. }) {
            return None;
        }
        let mut own = self.own(at.boot);
        let mut earliest = own - self.hold.map_or(0, |hold| hold.gap);
        if self.shared {
            let engine =
                self.current_engine(at).filter(|engine| at.boot - engine.at <= self.bounds.mark_age)?;
            // While the two disagree one of them is wrong, and a later process would believe it.
            if !engine.agrees(own, at.boot, &self.bounds) {
                return None;
            }
            let (least, _) = engine.engine(at.boot);
            own = own.min(least);
            earliest = earliest.min(own);
        }
        Some(Mark {
            own: own.max(0),
            earliest: earliest.max(0),
            hold_left: self.hold.map(|hold| (hold.until - at.boot).max(0)),
            adopted: self.budget.used,
            adopted_at: self.budget.at,
            ahead: self.doubt.map_or(0, |doubt| doubt.largest),
            boot: at.boot,
            boot_id: self.boot_id,
        })
    }

    /// True if the last observation was confirmed: until something happens, the next ones will be too.
    pub(super) fn is_plain(&self) -> bool {
        self.confirmed && self.doubt.is_none()
    }

    pub(super) fn note(&mut self, event: Event) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}
