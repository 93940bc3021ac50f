//! Points in time for people.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Seconds since 1970 in the time zone of this machine: `2026-11-30 03:29:39 +01:00`.
pub(crate) fn local(seconds: i64) -> Option<String> {
    in_zone(seconds, TimeZone::system())
}

fn in_zone(seconds: i64, zone: TimeZone) -> Option<String> {
    let time = Timestamp::from_second(seconds).ok()?.to_zoned_datetime(zone);
    Some(time.strftime("%Y-%m-%d %H:%M:%S %:z").to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_its_zone_and_an_absurd_one_is_none() {
        let zone = TimeZone::fixed(jiff::tz::offset(-5));
        assert_eq!(in_zone(1_796_009_379, zone).unwrap(), "2026-11-29 22:29:39 -05:00");
        assert_eq!(local(i64::MAX), None);
        assert!(local(0).is_some());
    }
}
