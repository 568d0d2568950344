use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::RateBased;
use super::simulation::{Link, Simulation};
use crate::carrier::WINDOW_BYTES;

const MBIT: u64 = 125_000;
const LONG: Link = Link {
    rate: 100 * MBIT,
    round_trip: Duration::from_millis(100),
    queue: 5_000_000,
    lost: 0,
    jitter: Duration::ZERO,
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What one flow has of the link, in percent, in `time` after `after`; and what it lost, in thousandths.
fn share(link: Link, after: Duration, time: Duration) -> (u64, u64) {
    let mut simulation = Simulation::new(link, &[Duration::ZERO]);
    simulation.run(after);
    let (sent, lost) = (simulation.flows[0].sent, simulation.flows[0].lost);
    let rate = simulation.run(time)[0];
    let flow = &simulation.flows[0];
    (rate * 100 / link.rate, (flow.lost - lost) * 1_000 / (flow.sent - sent).max(1))
}

#[test]
fn losses_by_chance_leave_the_rate() {
    for (lost, least) in [(0, 95), (2_000, 90), (10_000, 85), (20_000, 65), (50_000, 12)] {
        let (percent, _) = share(Link { lost, ..LONG }, seconds(3), seconds(12));
        assert!(percent >= least, "{lost} of 1,000,000 lost: {percent} % of the rate");
    }
}

#[test]
fn a_short_transfer_is_not_held_up_by_losses() {
    // 8 MB: 0.7 s at the link's rate, and some round trips to find it.
    let mut simulation = Simulation::new(Link { lost: 10_000, ..LONG }, &[Duration::ZERO]);
    simulation.run(seconds(3));
    assert!(simulation.flows[0].delivered > 8_000_000, "{}", simulation.flows[0].delivered);
}

#[test]
fn a_link_is_filled_and_the_queue_stays_short() {
    for round_trip in [Duration::from_micros(500), Duration::from_millis(10), Duration::from_millis(200)] {
        let link = Link { round_trip, ..LONG };
        let mut simulation = Simulation::new(link, &[Duration::ZERO]);
        simulation.run((round_trip * 30).max(Duration::from_millis(100)));
        simulation.queued = 0;
        let rate = simulation.run(seconds(14))[0];
        assert!(rate * 100 >= link.rate * 93, "{round_trip:?}: {rate}");
        let most = (link.holds() * 3 / 4).max(super::carried(link.rate, Duration::from_millis(15)));
        assert!(simulation.queued <= most, "{round_trip:?}: {} of {most}", simulation.queued);
        assert_eq!(simulation.flows[0].lost, 0);
    }
}

#[test]
fn a_short_queue_is_not_flooded() {
    for (part, thousandths) in [(50, 45), (10, 30), (4, 30)] {
        let link = Link { queue: LONG.holds() / part, ..LONG };
        let (percent, lost) = share(link, seconds(3), seconds(12));
        assert!(percent >= 75, "queue of a {part}th: {percent} %");
        assert!(lost <= thousandths, "queue of a {part}th: {lost} of 1,000 lost");
    }
}

#[test]
fn round_trips_that_differ_cost_little() {
    let link = Link { round_trip: Duration::from_millis(20), jitter: Duration::from_millis(20), ..LONG };
    let (percent, _) = share(link, seconds(3), seconds(10));
    assert!(percent >= 70, "{percent} %");
}

#[test]
fn a_rate_that_falls_to_a_tenth_is_followed() {
    for queue in [5_000_000, 200_000] {
        let mut simulation = Simulation::new(Link { queue, ..LONG }, &[Duration::ZERO]);
        simulation.run(seconds(5));
        simulation.link.rate /= 10;
        simulation.run(seconds(5));
        simulation.queued = 0;
        let (sent, lost) = (simulation.flows[0].sent, simulation.flows[0].lost);
        let rate = simulation.run(seconds(10))[0];
        let flow = &simulation.flows[0];
        assert!(rate * 100 >= simulation.link.rate * 80, "{rate}");
        assert!(simulation.queued < simulation.link.holds() * 2, "{}", simulation.queued);
        assert!((flow.lost - lost) * 100 <= (flow.sent - sent) * 3);

        simulation.link.rate *= 10;
        simulation.run(seconds(4));
        let rate = simulation.run(seconds(5))[0];
        assert!(rate * 100 >= simulation.link.rate * 85, "and when it rises again: {rate}");
    }
}

#[test]
fn two_share_alike() {
    let queues = [5_000_000, LONG.holds() / 2, LONG.holds() / 10];
    for (queue, later) in queues.into_iter().flat_map(|queue| [(queue, 0), (queue, 4)]) {
        let mut simulation = Simulation::new(Link { queue, ..LONG }, &[Duration::ZERO, seconds(later)]);
        simulation.run(seconds(15));
        let rates = simulation.run(seconds(25));
        assert!(rates[0] + rates[1] >= LONG.rate * 8 / 10, "{rates:?}");
        assert!(rates[0] <= rates[1] * 3 && rates[1] <= rates[0] * 3, "{queue}: {rates:?}");
    }
}

#[test]
fn who_has_little_to_send_keeps_what_is_known() {
    let mut simulation = Simulation::new(LONG, &[Duration::ZERO]);
    simulation.run(seconds(5));
    let known = simulation.flows[0].controller.rates.best();
    simulation.flows[0].has = Some(10 * MBIT);
    simulation.run(seconds(30));
    assert!(simulation.flows[0].controller.rates.best() * 10 >= known * 9);
    assert!(simulation.flows[0].controller.bytes() >= LONG.holds() * 8 / 10);
}

#[test]
fn little_to_send_from_the_beginning_keeps_the_window_small_and_open() {
    let mut simulation = Simulation::new(LONG, &[Duration::ZERO]);
    simulation.flows[0].has = Some(20_000);
    simulation.run(seconds(30));
    let window = simulation.flows[0].controller.bytes();
    assert!((super::INITIAL_BYTES..100_000).contains(&window), "{window}");
}

#[test]
fn a_path_that_is_cut_for_a_while_is_found_again() {
    let mut simulation = Simulation::new(LONG, &[Duration::ZERO]);
    simulation.run(seconds(3));
    simulation.link.lost = 1_000_000;
    simulation.run(seconds(4));
    assert!(simulation.flows[0].controller.bytes() <= super::INITIAL_BYTES);
    simulation.link.lost = 0;
    simulation.run(seconds(4));
    let rate = simulation.run(seconds(3))[0];
    assert!(rate * 100 >= LONG.rate * 85, "{rate}");
}

#[test]
fn marks_narrow_the_window_once_a_round_trip() {
    let mut simulation = Simulation::new(LONG, &[Duration::ZERO]);
    simulation.run(seconds(3));
    let controller = &mut simulation.flows[0].controller;
    controller.phase = super::Phase::Cruise { left: 2 };
    let before = controller.bytes();
    controller.congested(false, 0);
    controller.congested(false, 0);
    let after = controller.bytes();
    assert!(after < before && after >= before * 8 / 10, "{before} {after}");
}

#[derive(Debug, Clone)]
enum Step {
    Sent,
    Acknowledged { ago: u64, bytes: u64 },
    BatchOver { in_flight: u64, app_limited: bool },
    Congested { persistent: bool, lost: u64 },
    Mtu(u16),
    Time(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![0..100_000_u64, Just(u64::MAX)];
    let step = prop_oneof![
        3 => Just(Step::Sent),
        3 => (0..400_000_u64, bytes.clone()).prop_map(|(ago, bytes)| Step::Acknowledged { ago, bytes }),
        3 => (bytes.clone(), any::<bool>())
            .prop_map(|(in_flight, app_limited)| Step::BatchOver { in_flight, app_limited }),
        1 => (proptest::bool::weighted(0.1), bytes).prop_map(|(persistent, lost)| Step::Congested { persistent, lost }),
        1 => any::<u16>().prop_map(Step::Mtu),
        3 => prop_oneof![0..50_000_u64, Just(20_000_000)].prop_map(Step::Time),
    ];
    proptest::collection::vec(step, 0..300)
}

proptest! {
    #[test]
    fn whatever_is_said_the_window_stays_within_its_bounds(steps in steps()) {
        let most = u64::from(WINDOW_BYTES);
        let mut now = Instant::now() + seconds(60);
        let mut controller = RateBased::new(now, 1_200, most);
        for step in steps {
            match step {
                Step::Sent => controller.delivery.sent(now, controller.shortest.value()),
                Step::Acknowledged { ago, bytes } => {
                    controller.acknowledged(now, now - Duration::from_micros(ago), bytes);
                }
                Step::BatchOver { in_flight, app_limited } => controller.batch_over(now, in_flight, app_limited),
                Step::Congested { persistent, lost } => controller.congested(persistent, lost),
                Step::Mtu(mtu) => controller.packet = u64::from(mtu),
                Step::Time(micros) => now += Duration::from_micros(micros),
            }
            let window = controller.bytes();
            prop_assert!(window <= most && window >= 4 * controller.packet, "{window}");
        }
    }
}
