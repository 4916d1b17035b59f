"""Defaults of type parameters, and what else is new in CPython 3.13."""

from interpreter.programs.registry import program


@program()
def type_parameter_defaults():
    def f[T = int, *Ts = *tuple[int, str], **P = [int]](x: T) -> T:
        return x

    class C[T = str]:
        pass

    return (
        [p.has_default() for p in f.__type_params__],
        f.__type_params__[0].__default__.__name__,
        C.__type_params__[0].__default__.__name__,
    )


@program()
def locals_are_snapshots():
    x = 1
    a = locals()
    x = 2
    b = locals()
    a["y"] = 5
    return a["x"], b["x"], "y" in b, a is b


@program()
def closed_generator_returns():
    def gen():
        try:
            yield 1
        except GeneratorExit:
            return "closed"

    g = gen()
    next(g)
    return g.close()


@program()
def exec_keywords():
    d = {}
    exec("x = 1", globals=d)
    return d["x"], eval("y", globals={"y": 2})
