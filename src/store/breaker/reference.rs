//! The breaker against its rules, written down a second time.
#![allow(clippy::unwrap_used)]

use super::*;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The rules once more, as the module's docs tell them, for one tensor of few chunks.
#[derive(Default)]
struct Reference {
    /// When it may be probed, while it is not closed; never, while it is.
    open: Option<Duration>,
    probing: bool,
    cool_down: u64,
    closed_at: Duration,
    failures: Vec<Duration>,
    /// Chunk, when it may be probed, seconds of its cool-down.
    latches: Vec<(u64, Duration, u64)>,
}

impl Reference {
    fn admits(&mut self, chunk: u64, now: Duration) -> bool {
        if let Some(until) = self.open {
            let admitted = !self.probing && now >= until;
            self.probing |= admitted;
            return admitted;
        }
        match self.latches.iter_mut().find(|latch| latch.0 == chunk) {
            Some(latch) if now < latch.1 => false,
            Some(latch) => {
                latch.1 = now + s(latch.2);
                true
            }
            None => {
                self.latches.push((chunk, now + s(1), 1));
                true
            }
        }
    }

    fn failed(&mut self, chunk: u64, now: Duration, probe: bool) {
        match self.latches.iter_mut().find(|latch| latch.0 == chunk) {
            Some(latch) => {
                latch.2 = (2 * latch.2).min(900);
                latch.1 = now + s(latch.2);
            }
            None => self.latches.push((chunk, now + s(1), 1)),
        }
        if self.open.is_some() {
            if self.probing && probe {
                self.cool_down = (2 * self.cool_down).min(900);
                (self.open, self.probing) = (Some(now + s(self.cool_down)), false);
            }
            return;
        }
        self.failures.push(now);
        let lately = self.failures.iter().filter(|&&at| now - at < s(60)).count();
        if lately >= 5 || self.latches.len() >= 5 {
            if self.cool_down == 0 || now - self.closed_at > s(self.cool_down) {
                self.cool_down = 10;
            }
            self.failures.clear();
            (self.open, self.probing) = (Some(now + s(self.cool_down)), false);
        }
    }

    fn healed(&mut self, chunk: u64, now: Duration) {
        self.latches.retain(|latch| latch.0 != chunk);
        if self.probing {
            *self = Reference { cool_down: self.cool_down, closed_at: now, ..Reference::default() };
        }
    }

    fn undecided(&mut self, now: Duration) {
        if self.probing {
            (self.open, self.probing) = (Some(now), false);
        }
    }
}

/// WEIGHTFS_TRACES=100000 shows what is promised.
#[test]
fn random_traces_go_as_the_rules_say() {
    let traces: u64 = std::env::var("WEIGHTFS_TRACES").map_or(2000, |n| n.parse().unwrap());
    let mut seed = 0x0bad_cafe_0bad_cafe_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut opened = 0;
    for trace in 0..traces {
        let (breakers, mut reference) = (Breakers::default(), Reference::default());
        // Some see a bad source for hours, some a few seconds.
        let pace = [300, 3000, 60_000][trace as usize % 3];
        let (mut now, mut probes) = (s(1), Vec::new());
        for step in 0..100 {
            now += Duration::from_millis(random(pace));
            let chunk = random(7);
            let context = format!("trace {trace}, step {step}, chunk {chunk} at {now:?}");
            match random(6) {
                0..3 => {
                    let admitted = breakers.admit(7, chunk, now) == Admission::Probe;
                    assert_eq!(admitted, reference.admits(chunk, now), "{context}");
                    if admitted {
                        probes.push(chunk);
                    }
                }
                3 => {
                    breakers.failed(7, chunk, now, false);
                    reference.failed(chunk, now, false);
                }
                _ => match (probes.pop(), random(4)) {
                    (None, _) => {}
                    (Some(chunk), 0) => {
                        breakers.healed(7, chunk, now);
                        reference.healed(chunk, now);
                    }
                    (Some(_), 1) => {
                        breakers.undecided(7, now);
                        reference.undecided(now);
                    }
                    (Some(chunk), _) => {
                        breakers.failed(7, chunk, now, true);
                        reference.failed(chunk, now, true);
                    }
                },
            }
            let tripped = breakers.tripped().first().map(|t| (t.half_open, t.until));
            let want = reference.open.map(|until| match reference.probing {
                true => (true, Duration::ZERO),
                false => (false, until),
            });
            assert_eq!(tripped, want, "{context}");
            opened += u64::from(want.is_some_and(|(half_open, _)| half_open));
        }
    }
    assert!(opened > traces, "half-open in {opened} steps only");
}
