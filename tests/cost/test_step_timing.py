from privet.cost import alternating, paired_ratio


def test_steps_alternate_after_a_warm_up():
    clock, taken = iter(range(1000)), []

    def slow():
        taken.append("slow")
        for _ in range(5):
            next(clock)

    times = alternating({"slow": slow, "fast": lambda: taken.append("fast")}, 3, lambda: float(next(clock)))
    assert taken == ["slow", "fast"] * 4
    assert times == {"slow": [6.0] * 3, "fast": [1.0] * 3}
    assert paired_ratio(times["slow"], times["fast"]) == 6.0


def test_a_disturbance_affects_both_steps_of_a_round():
    """The machine is ten times slower in two of three rounds: the ratio of medians would be 20, but in each round it is 2."""
    assert paired_ratio([2.0, 20.0, 20.0], [1.0, 10.0, 10.0]) == 2.0
