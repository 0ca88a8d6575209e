from synthbench.mechanisms import MECHANISMS, _classes


def test_every_name_is_that_of_a_mechanism() -> None:
    names = {_classes.name_of(MECHANISMS[name]()): name for name in MECHANISMS}

    assert {names[known] for word, known in vars(_classes).items() if word.isupper()} == {
        "performer-exp",
        "slay",
        "yat",
        "yat-sum",
        "yat-spherical",
    }
