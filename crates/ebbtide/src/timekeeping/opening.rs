//! The beginning of own time: from the mark, the boot-time clock, the wall and the engine. And its correction by an
//! operator.

use super::anchor::Anchor;
use super::bounds::Micros;
use super::event::{Accepted, Event, NotReady, Voucher};
use super::machine::{Budget, Doubt, Hold, Machine, Phase};
use super::mark::{Mark, timestamp};
use super::reading::Reading;

impl Machine {
    /// Finds own time, or says why it must wait. It is tried again with every reading.
    pub(super) fn open(
        &mut self,
        mark: Option<Mark>,
        waiting: Option<Micros>,
        at: Reading,
    ) -> Result<(), NotReady> {
        let opened = if self.shared { self.open_shared(mark, at) } else { self.open_alone(mark, at) };
        if let Err(NotReady::BehindMark { .. }) = opened {
            self.phase = Phase::Opening { mark, waiting: Some(at.wall - at.boot) };
        }
        let anchor = opened?;
        self.anchor = anchor;
        // A wall that reached the mark by waiting, and not by being set, let time stand still for the records that are
        // older: their lives would be longer by the wait.
        let stood_still =
            waiting.is_some_and(|offset| (at.wall - at.boot - offset).abs() <= self.bounds.doubt);
        let fence = stood_still.then(|| timestamp(anchor.own));
        if let Some(mark) = mark {
            self.budget = Budget { used: mark.adopted, at: mark.adopted_at };
        }
        self.phase = Phase::Running;
        self.note(Event::Opened { at: timestamp(anchor.own), held: self.hold.is_some(), fence });
        Ok(())
    }

    /// On a shared engine its clock decides: it must agree with the wall, or with what this boot has counted. A mark
    /// is believed up to the engine's clock: another node may have written it with a wrong one.
    fn open_shared(&self, mark: Option<Mark>, at: Reading) -> Result<Anchor, NotReady> {
        let engine = self.current_engine(at).ok_or(NotReady::NoEngineClock)?;
        let counted = mark.and_then(|mark| Some(mark.own + mark.elapsed(self.boot_id, at.boot)?));
        let (_, most) = engine.engine(at.boot);
        let remembered = counted.or(mark.map(|mark| mark.own)).map_or(0, |own| own.min(most));
        if engine.agrees(at.wall, at.boot, &self.bounds) {
            return Ok(Anchor { boot: at.boot, own: at.wall.max(remembered), slew: 0 });
        }
        match counted {
            Some(own) if engine.agrees(own, at.boot, &self.bounds) => {
                Ok(Anchor { boot: at.boot, own: own.min(most), slew: 0 })
            }
            _ => Err(NotReady::EngineDisagrees { ahead: engine.ahead(at.wall, at.boot) }),
        }
    }

    fn open_alone(&mut self, mark: Option<Mark>, at: Reading) -> Result<Anchor, NotReady> {
        let anchor = |own: Micros| Anchor { boot: at.boot, own, slew: 0 };
        let Some(mark) = mark else { return Ok(anchor(at.wall)) };
        if let Some(elapsed) = mark.elapsed(self.boot_id, at.boot) {
            let gap = mark.own - mark.earliest;
            let left = mark.hold_left.map(|left| left - elapsed);
            self.hold = left.map(|left| Hold { gap, until: at.boot + left, since: mark.own, vouched: None });
            let own = mark.own + elapsed;
            let largest = mark.ahead;
            let doubt = Doubt { since: own, largest, difference: largest, same_since: at.boot };
            self.doubt = (largest > 0).then_some(doubt);
            return Ok(anchor(own));
        }
        let ahead = at.wall - mark.own;
        if ahead < -self.bounds.doubt {
            return Err(NotReady::BehindMark { by: -ahead });
        }
        if ahead > self.bounds.vouched {
            return Err(NotReady::FarAhead { by: ahead });
        }
        let own = at.wall.max(mark.own);
        let until = at.boot + self.bounds.hold_unvouched;
        let since = mark.own + self.bounds.doubt;
        self.hold = Some(Hold { gap: own - mark.earliest, until, since, vouched: None });
        Ok(anchor(own))
    }

    /// Makes the wall own time, because an operator says that it is right. Where that sets own time back, the caller
    /// sets the fence at the time that is returned.
    pub(super) fn accept(&mut self, at: Reading) -> Result<Accepted, NotReady> {
        if self.shared {
            let engine = self.current_engine(at).ok_or(NotReady::NoEngineClock)?;
            if !engine.agrees(at.wall, at.boot, &self.bounds) {
                return Err(NotReady::EngineDisagrees { ahead: engine.ahead(at.wall, at.boot) });
            }
        }
        let from = match self.phase {
            Phase::Running => Some(self.own(at.boot)),
            Phase::Opening { mark, .. } => mark.map(|mark| mark.own),
        };
        if let Phase::Opening { mark: Some(mark), .. } = self.phase {
            self.budget = Budget { used: mark.adopted, at: mark.adopted_at };
        }
        let goes_back = from.is_some_and(|from| from - at.wall > self.bounds.doubt);
        // A smaller step back is left to the slew: own time goes back only together with a fence.
        if !from.is_some_and(|from| (0..=self.bounds.doubt).contains(&(from - at.wall))) {
            self.set_own(at);
        } else if let (Phase::Opening { .. }, Some(from)) = (self.phase, from) {
            self.anchor = Anchor { boot: at.boot, own: from, slew: 0 };
        }
        self.phase = Phase::Running;
        (self.hold, self.doubt, self.behind) = (None, None, None);
        self.doubts += 1;
        let _ = self.observe(at);
        let to = timestamp(self.own(at.boot));
        let from = from.map_or(to, timestamp);
        self.note(Event::Adopted { from, to, voucher: Voucher::Operator });
        Ok(Accepted { from, to, fence: goes_back.then_some(to) })
    }
}
