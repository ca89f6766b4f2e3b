use writ_types::chat::Usage;

use super::*;
use crate::config::ModelRole;
use crate::config::{ModelsConfig, ModelsTable};
use crate::error::Failure;
use crate::provider::Routes;

const START: Timestamp = Timestamp::from_millis(1_793_000_000_000);

fn at(seconds: u64) -> Timestamp {
    START.plus_duration(Duration::from_secs(seconds))
}

fn chain(models: &[&str]) -> Chain {
    let mut config = ModelsConfig::default();
    let [first, fallback @ ..] = models else { panic!("a first model") };
    config.models.default = Some((*first).to_owned());
    config.models.fallback = fallback.iter().map(|model| (*model).to_owned()).collect();
    Routes::new(&config).expect("resolves").chain(ModelRole::Executor).clone()
}

fn error(failure: Failure) -> ModelError {
    ModelError { provider: "p".into(), model: "m".into(), failure, usage: Usage::default(), begun: false }
}

fn unavailable() -> ModelError {
    error(Failure::Unavailable { status: 500, retry_after: None, said: Default::default() })
}

fn limited(seconds: u64) -> ModelError {
    error(Failure::RateLimited { retry_after: Some(Duration::from_secs(seconds)), said: Default::default() })
}

fn rejected() -> ModelError {
    error(Failure::Rejected { status: 400, code: "x".into(), said: Default::default() })
}

/// A call with what is known of the routes.
struct Bench {
    course: Course,
    health: RouteExperience,
}

impl Bench {
    fn new(models: &[&str]) -> Self {
        let backoff = Backoff::new(&ModelsTable::default());
        Self { course: Course::new(&chain(models), backoff), health: RouteExperience::default() }
    }

    /// The next attempt: its model, and its wait in seconds.
    fn next(&self, seconds: u64) -> Option<(String, u64)> {
        let step = self.course.next_step(&self.health, at(seconds))?;
        Some((step.route.model, step.wait.as_secs()))
    }

    /// Fails the next attempt.
    fn fail(&mut self, error: &ModelError, seconds: u64) {
        let step = self.course.next_step(&self.health, at(seconds)).expect("an attempt");
        self.course.record_failure(&step.route, error, at(seconds));
        self.health.record_failure(&step.route, error, at(seconds));
    }

    /// A new call, with what was learnt.
    fn again(&mut self, models: &[&str]) {
        self.course = Course::new(&chain(models), Backoff::new(&ModelsTable::default()));
    }
}

fn next(model: &str, wait: u64) -> Option<(String, u64)> {
    Some((model.to_owned(), wait))
}

const TWO: [&str; 2] = ["anthropic/a", "openai/b"];

/// Rows: SCL-020 SCL-021
#[test]
fn a_passing_failure_moves_on_at_once_and_comes_back_after_its_wait() {
    let mut bench = Bench::new(&TWO);
    assert_eq!(bench.next(0), next("a", 0));
    bench.fail(&unavailable(), 0);
    assert_eq!(bench.next(0), next("b", 0), "another is asked at once");
    bench.fail(&unavailable(), 0);
    assert_eq!(bench.next(0), next("a", 1), "all have failed: the first wait");
    bench.fail(&unavailable(), 1);
    bench.fail(&unavailable(), 1);
    assert_eq!(bench.next(1), next("a", 2), "and it grows");
    for _ in 0..6 {
        bench.fail(&unavailable(), 100);
    }
    assert_eq!(bench.next(100), None, "five tries each");
}

/// Rows: SCL-021
#[test]
fn a_refusal_is_not_tried_again_on_the_same_route() {
    let mut bench = Bench::new(&TWO);
    bench.fail(&rejected(), 0);
    assert_eq!(bench.next(0), next("b", 0));
    bench.fail(&rejected(), 0);
    assert_eq!(bench.next(0), None);
    let report = bench.course.final_report(&rejected());
    assert_eq!(report.outside.matches("p/m: the request is not accepted").count(), 2, "{}", report.outside);
    assert!(report.outside.starts_with("no model could answer"));
}

/// Rows: SCL-022
#[test]
fn a_provider_is_left_alone_for_as_long_as_it_asks_by_later_calls_too() {
    let mut bench = Bench::new(&TWO);
    bench.fail(&limited(7), 0);
    assert_eq!(bench.next(0), next("b", 0));
    bench.again(&TWO);
    assert_eq!(bench.next(6), next("b", 0), "one second too early");
    assert_eq!(bench.next(7), next("a", 0));
    bench.again(&["anthropic/other"]);
    assert_eq!(bench.next(5), next("other", 2), "with nobody else, it is waited for: same provider");
}

#[test]
fn a_429_is_not_a_fault_of_the_model() {
    let mut bench = Bench::new(&TWO);
    for seconds in 0..10 {
        bench.again(&TWO);
        let step = bench.course.next_step(&RouteExperience::default(), at(seconds)).expect("an attempt");
        bench.health.record_failure(&step.route, &limited(0), at(seconds));
        bench.health.record_failure(&step.route, &unavailable(), at(seconds));
    }
    assert_eq!(bench.next(10), next("a", 0));
}

/// Rows: SCL-020
/// Rows: SF-350 (in part: another is asked first)
#[test]
fn three_failures_in_a_row_put_a_route_last_for_five_minutes() {
    let mut bench = Bench::new(&TWO);
    for _ in 0..2 {
        bench.fail(&rejected(), 0);
        bench.again(&TWO);
    }
    assert_eq!(bench.next(0), next("a", 0), "twice is not enough");
    bench.fail(&rejected(), 0);
    bench.again(&TWO);
    assert_eq!(bench.next(0), next("b", 0));
    assert_eq!(bench.next(299), next("b", 0));
    assert_eq!(bench.next(300), next("a", 0), "after the cooldown it is tried again");
    bench.fail(&rejected(), 300);
    bench.again(&TWO);
    assert_eq!(bench.next(300), next("b", 0), "and one more failure is enough");
    assert_eq!(bench.next(600), next("a", 0));
    bench.health.record_answer(&chain(&TWO).first().clone());
    for _ in 0..2 {
        bench.fail(&rejected(), 600);
        bench.again(&TWO);
    }
    assert_eq!(bench.next(600), next("a", 0), "an answer makes up for all before it");
}

#[test]
fn a_breaker_never_leaves_a_person_without_a_model() {
    let mut bench = Bench::new(&TWO[..1]);
    for _ in 0..5 {
        bench.fail(&rejected(), 0);
        bench.again(&TWO[..1]);
    }
    assert!(bench.health.is_open(chain(&TWO).first(), at(0)));
    assert_eq!(bench.next(0), next("a", 0));
}

#[test]
fn what_was_shown_is_not_said_again_and_what_is_nobodys_fault_is_final() {
    let begun = ModelError { begun: true, ..unavailable() };
    for error in [begun, error(Failure::Cancelled), error(Failure::OtherPermit)] {
        let mut bench = Bench::new(&TWO);
        bench.fail(&error, 0);
        assert_eq!(bench.next(0), None, "{error}");
    }
}

#[test]
fn failover_never_lowers_clearance() {
    let config = |clearance: &str| -> ModelsConfig {
        let text = format!(
            "[models]\ndefault = \"ollama/a\"\nfallback = [\"openai/b\", \"lmstudio/c\", \"ollama/a\"]\n\
             [models.role_fallback]\nplanner = []\n\
             [providers.ollama]\nclearance = \"{clearance}\"\n[providers.lmstudio]\nclearance = \"secret\"\n"
        );
        toml::from_str(&text).expect("a configuration")
    };
    let models = |clearance, role| -> Vec<String> {
        let routes = Routes::new(&config(clearance)).expect("resolves");
        routes.chain(role).all().map(|route| route.model.clone()).collect()
    };
    assert_eq!(models("secret", ModelRole::Proxy), ["a", "c"], "nothing secret goes to another's machine");
    assert_eq!(models("personal", ModelRole::Proxy), ["a", "b", "c"]);
    assert_eq!(
        models("personal", ModelRole::Planner),
        ["a"],
        "a role's own list counts in place of the other"
    );
}

/// A conversation that is too long is another's with the next route, and says nothing against this one.
#[test]
fn a_full_context_moves_on_and_opens_no_breaker() {
    let full = error(Failure::ContextLength { sizes: Default::default(), said: Default::default() });
    let mut bench = Bench::new(&TWO);
    for _ in 0..BREAKER_FAILURES + 1 {
        bench.again(&TWO);
        assert_eq!(bench.next(0), next("a", 0));
        bench.fail(&full, 0);
        assert_eq!(bench.next(0), next("b", 0), "a larger model may read it");
        bench.fail(&full, 0);
        assert_eq!(bench.next(0), None);
    }
}

#[test]
fn the_experience_is_the_same_after_a_restart_and_a_clock_that_was_set_back_does_no_harm() {
    let mut bench = Bench::new(&TWO);
    for second in 0..u64::from(BREAKER_FAILURES) {
        bench.health.record_failure(chain(&TWO).first(), &rejected(), at(second));
    }
    bench.health.record_failure(chain(&TWO).all().nth(1).expect("two"), &limited(30), at(3));
    let stored = serde_json::to_value(bench.health.to_stored()).expect("JSON");
    let read: Vec<StoredHealth> = serde_json::from_value(stored).expect("reads");
    let again = RouteExperience::from_stored(read.clone(), at(3));
    assert!(again.is_open(chain(&TWO).first(), at(3)));
    assert_eq!(again.to_stored(), bench.health.to_stored());
    // The clock was an hour ahead when it was stored: the route comes last for as long as ever, and no longer.
    let back = RouteExperience::from_stored(read.clone(), at(3).plus_duration(Duration::ZERO));
    assert!(!back.is_open(chain(&TWO).first(), at(3).plus_duration(BREAKER_COOLDOWN)));
    let late = RouteExperience::from_stored(read, at(3).plus_duration(BREAKER_COOLDOWN));
    assert!(!late.is_open(chain(&TWO).first(), at(3).plus_duration(BREAKER_COOLDOWN)));
    assert_eq!(late.health_of(chain(&TWO).first()).failures, BREAKER_FAILURES, "one more is enough");
}

#[test]
fn only_changes_are_worth_storing() {
    let (mut health, chain) = (RouteExperience::default(), chain(&TWO));
    health.record_answer(chain.first());
    assert_eq!(health.changes(), 0);
    health.record_failure(chain.first(), &rejected(), at(0));
    assert_eq!(health.changes(), 1);
    health.record_failure(chain.first(), &error(Failure::Cancelled), at(0));
    assert_eq!(health.changes(), 1, "that is no failure of the route");
    health.record_answer(chain.first());
    assert_eq!((health.changes(), health.to_stored()), (2, Vec::new()));
}

/// A part that was refused is left out at once, once; a request that cannot go without it moves on.
#[test]
fn a_part_that_may_be_left_out_is_tried_without_once() {
    let unsupported =
        |feature| error(Failure::Unsupported { feature, status: 400, said: Default::default() });
    let mut bench = Bench::new(&TWO);
    bench.fail(&unsupported(Feature::Form), 0);
    assert_eq!(bench.next(0), next("a", 0), "without the form");
    bench.fail(&unsupported(Feature::Effort), 0);
    assert_eq!(bench.next(0), next("a", 0), "without the effort, too");
    bench.fail(&unsupported(Feature::Form), 0);
    assert_eq!(bench.next(0), next("b", 0), "it refuses what it was not sent");
    bench.fail(&unsupported(Feature::Images), 0);
    assert_eq!(bench.next(0), None);
    assert_eq!(bench.health.to_stored(), Vec::new(), "no breaker counts that");
}
