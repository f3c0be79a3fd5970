use largefolio_linux::shell::as_root;

use super::*;

fn choice(lever: &str, scope: Scope) -> Choice {
    Choice {
        lever: lever.to_owned(),
        name: format!("{lever} set"),
        edits: String::new(),
        annotate: None,
        set: vec![format!("thp.{lever}=always")],
        tuned: vec![format!("thp.{lever}=always")],
        start: Vec::new(),
        unit_thp: None,
        env: None,
        env_set: Vec::new(),
        verify: Vec::new(),
        not_verified: String::new(),
        warm: false,
        scope,
        limits: String::new(),
    }
}

fn candidate(choices: &[usize], time: [f64; 3], memory_percent: f64) -> Candidate {
    let [low, mid, high] = time;
    Candidate {
        choices: choices.to_vec(),
        time: Some(Interval { low, mid, high }),
        memory_bytes: 100,
        memory_percent,
        faults: 10,
        fits: None,
        is_frontier: true,
    }
}

fn question(goal: Goal) -> Question {
    Question {
        trace: PathBuf::new(),
        goal,
        memory_percent_max: 50.0,
        cache: CacheState::Warm,
        memory_bytes: 0,
        limit_bytes: None,
        may_end: false,
        program: Vec::new(),
        lasting: Lasting::default(),
    }
}

fn best(candidates: &[Candidate]) -> Option<usize> {
    let choices =
        [choice("64K", Scope::System), choice("32K", Scope::Program), choice("2M", Scope::System)];
    question(Goal::Time).best(candidates, &choices)
}

#[test]
fn uncertain_gains_make_no_plan() {
    let plain = candidate(&[], [0.0; 3], 0.0);
    assert_eq!(best(&[plain.clone(), candidate(&[0], [-30.0, -10.0, 1.0], 0.0)]), None);
    let sure = candidate(&[1], [-3.0, -2.0, -1.0], 0.0);
    let unsure = candidate(&[0], [-30.0, -10.0, 1.0], 0.0);
    assert_eq!(best(&[plain.clone(), unsure, sure]), Some(2));
    assert_eq!(best(&[plain]), None);
}

#[test]
fn memory_growth_is_limited() {
    let plain = candidate(&[], [0.0; 3], 0.0);
    let large = candidate(&[0], [-9.0, -8.0, -7.0], 51.0);
    let small = candidate(&[1], [-3.0, -2.0, -1.0], 50.0);
    assert_eq!(best(&[plain, large, small]), Some(2));
}

#[test]
fn the_simplest_of_equal_plans_is_chosen() {
    let plain = candidate(&[], [0.0; 3], 0.0);
    let both = candidate(&[0, 1], [-11.0, -10.0, -9.0], 0.0);
    let one = candidate(&[0], [-10.8, -9.8, -8.8], 0.0);
    let own = candidate(&[1], [-10.7, -9.7, -8.7], 0.0);
    let less = candidate(&[2], [-9.0, -8.0, -7.0], 0.0);
    // Among two equally simple plans, the one that leaves the system alone wins.
    assert_eq!(best(&[plain.clone(), both.clone(), one.clone(), own, less.clone()]), Some(3));
    assert_eq!(best(&[plain.clone(), both.clone(), one]), Some(2));
    assert_eq!(best(&[plain, both, less]), Some(1));
}

#[test]
fn a_plan_is_made_of_commands() {
    let mut text = choice("text", Scope::Program);
    (text.set, text.tuned, text.warm) = (Vec::new(), Vec::new(), true);
    text.verify = vec!["--text".to_owned(), "large".to_owned()];
    let mut heap = choice("64K", Scope::System);
    heap.start = vec!["--heap".to_owned(), "64K".to_owned()];
    // It is in force, so no run can differ in it.
    heap.set.push("thp.enabled=madvise".to_owned());
    let choices = [heap, text];
    let program = ["job".to_owned(), "a b".to_owned()];
    let texts = ["/usr/bin/job".to_owned()];
    let one = candidate(&[0, 1], [-3.0, -2.0, -1.0], 0.0);
    let plan = plan((7, &one), &choices, (&program, &texts), &Lasting::default(), Goal::Time);
    let commands: Vec<String> = plan.steps.iter().map(Step::command).collect();
    let tune = as_root("folio tune --set thp.64K=always --set thp.enabled=madvise --yes");
    assert_eq!(commands, [tune.as_str(), "folio warm /usr/bin/job"]);
    assert_eq!(plan.steps[0].undo, ["tune", "--undo"]);
    let verify = "verify --runs 20 --tune thp.64K=always --heap 64K --text large -- job";
    assert_eq!(plan.verify[..plan.verify.len() - 1].join(" "), verify);
    assert_eq!(plan.verify.last().map(String::as_str), Some("a b"));
    assert_eq!(plan.start, ["--heap", "64K"]);
}

#[test]
fn a_plan_can_be_persistent_and_for_a_service() {
    let mut heap = choice("64K", Scope::Program);
    (heap.set, heap.start) = (Vec::new(), vec!["--heap".to_owned(), "64K".to_owned()]);
    heap.env = Some("A=1".to_owned());
    heap.env_set = vec!["thp.64K=madvise".to_owned()];
    let mut text = choice("text", Scope::Program);
    (text.set, text.tuned, text.warm) = (Vec::new(), Vec::new(), true);
    let lasting = Lasting { is_lasting: true, unit: Some("job.service".to_owned()) };
    let one = candidate(&[0, 1], [-3.0, -2.0, -1.0], 0.0);
    let texts = ["/usr/bin/job".to_owned()];
    let plan = plan((1, &one), &[heap, text], (&[], &texts), &lasting, Goal::Time);
    let commands: Vec<String> = plan.steps.iter().map(Step::command).collect();
    let expected = [
        "folio tune --set thp.64K=madvise --yes --persist",
        "folio tune --unit job.service --env A=1 --yes",
        "folio warm --persist /usr/bin/job",
    ]
    .map(as_root);
    assert_eq!(commands, expected);
    assert!(plan.start.is_empty(), "the service starts so by itself");
}

#[test]
fn a_limit_of_the_program_is_one_of_its_service() {
    let mut limit = choice("heap", Scope::Program);
    (limit.set, limit.start) = (Vec::new(), vec!["--thp".to_owned(), "off".to_owned()]);
    limit.unit_thp = Some("off".to_owned());
    let one = candidate(&[0], [-3.0, -2.0, -1.0], 0.0);
    let plan = |lasting: &Lasting| {
        plan((1, &one), std::slice::from_ref(&limit), (&[], &[]), lasting, Goal::Memory)
    };
    assert!(plan(&Lasting::default()).steps.is_empty());
    assert_eq!(plan(&Lasting::default()).start, ["--thp", "off"]);
    let service = Lasting { is_lasting: false, unit: Some("job.service".to_owned()) };
    let of_service = plan(&service);
    let commands: Vec<String> = of_service.steps.iter().map(Step::command).collect();
    assert_eq!(commands, [as_root("folio tune --unit job.service --thp off --yes")]);
    assert!(of_service.start.is_empty());
}

#[test]
fn a_plan_is_verified_with_the_metric_of_its_goal() {
    let mut choices = [choice("64K", Scope::System), choice("readahead", Scope::System)];
    choices[1].not_verified = "it acts on files that are not cached".to_owned();
    let plan = |one: &[usize], goal| {
        let one = candidate(one, [-3.0, -2.0, -1.0], 0.0);
        plan((1, &one), &choices, (&["job".to_owned()], &[]), &Lasting::default(), goal)
    };
    let metric = |goal| plan(&[0], goal).verify[3..5].join(" ");
    assert_eq!(metric(Goal::Time), "--tune thp.64K=always");
    assert_eq!(metric(Goal::Memory), "--metric memory");
    assert_eq!(metric(Goal::Faults), "--metric minor faults");
    let plan = plan(&[0, 1], Goal::Memory);
    assert!(plan.verify.is_empty());
    let why = "readahead set: it acts on files that are not cached";
    assert_eq!(plan.not_verified.as_deref(), Some(why));
}

#[test]
fn a_program_that_does_not_fit_gets_the_smallest_change_that_makes_it_fit() {
    let with = |fits, choices: &[usize], mid: f64| Candidate {
        fits: Some(fits),
        ..candidate(choices, [mid - 1.0, mid, mid + 1.0], 0.0)
    };
    let plain = with(false, &[], 0.0);
    // Choice 1 concerns the program alone; slower is better than killed.
    let all =
        [plain.clone(), with(true, &[0], -5.0), with(true, &[1], 3.0), with(true, &[0, 1], -9.0)];
    assert_eq!(best(&all), Some(2));
    assert_eq!(best(&[plain.clone(), with(true, &[0], 2.0), with(true, &[2], 1.0)]), Some(2));
    assert_eq!(best(&[plain.clone(), with(false, &[0], -50.0)]), None);
    // If it fits as it is, folio never advises a change with which it does not.
    let fits = with(true, &[], 0.0);
    assert_eq!(best(&[fits.clone(), with(false, &[0], -50.0)]), None);
    assert_eq!(best(&[fits, with(false, &[0], -50.0), with(true, &[2], -3.0)]), Some(2));
}
