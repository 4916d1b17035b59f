"""``except*`` and exception groups."""

from interpreter.programs.registry import program


@program()
def split_in_two():
    log = []
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2), ValueError(3)])
    except* ValueError as e:
        log.append(("value", e.message, [x.args for x in e.exceptions]))
    except* KeyError as e:
        log.append(("key", [x.args for x in e.exceptions]))
    return log


@program()
def rest_is_raised():
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError:
        print("handled")


@program()
def naked_exception():
    try:
        raise ValueError("naked")
    except* ValueError as e:
        found = type(e).__name__, e.message, e.exceptions[0].args
    return found


@program()
def naked_exception_unmatched():
    try:
        raise ValueError("naked")
    except* KeyError:
        print("no")


@program()
def nested_groups():
    log = []
    try:
        raise ExceptionGroup("a", [ExceptionGroup("b", [ValueError(1), TypeError(2)]), KeyError(3)])
    except* (TypeError, KeyError) as e:
        log.append(repr(e))
    except* ValueError as e:
        log.append(repr(e))
    return log


@program()
def raise_inside_star_handler():
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError:
        raise TypeError("new")  # noqa: B904


@program()
def reraise_inside_star_handler():
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2), TypeError(3)])
    except* ValueError:
        raise
    except* KeyError:
        print("key")


@program()
def several_new_exceptions():
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError as e:
        raise TypeError("a") from e
    except* KeyError:
        raise IndexError("b")  # noqa: B904


@program()
def else_and_finally():
    log = []
    try:
        log.append("body")
    except* ValueError:
        log.append("never")
    else:
        log.append("else")
    finally:
        log.append("finally")
    return log


@program()
def catching_groups_is_refused():
    try:
        raise ValueError
    except* ExceptionGroup:
        pass


@program()
def catching_nonsense():
    try:
        raise ValueError
    except* 5:
        pass


@program()
def group_methods():
    g = ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [KeyError(2), ValueError(3)])])
    match, rest = g.split(ValueError)
    sub = g.subgroup(lambda e: isinstance(e, KeyError))
    return repr(match), repr(rest), repr(sub), g.derive([TypeError()]).message


@program()
def ordinary_except_of_group():
    try:
        raise ExceptionGroup("g", [ValueError(1)])
    except ExceptionGroup as e:
        return str(e), len(e.exceptions)


@program()
def own_group_class():
    class MyGroup(ExceptionGroup):
        def derive(self, excs):
            return MyGroup(self.message + "!", excs)

    try:
        try:
            raise MyGroup("m", [ValueError(1), KeyError(2)])
        except* ValueError as e:
            print(type(e).__name__, e.message)
    except MyGroup as rest:
        return rest.message, repr(rest.exceptions)


@program()
def nothing_left():
    try:
        raise ExceptionGroup("g", [ValueError(1)])
    except* Exception as e:
        print(len(e.exceptions))
    return "after"


@program()
def star_in_loop():
    out = []
    for kind in (ValueError, KeyError):
        try:
            raise ExceptionGroup("g", [kind("x")])
        except* ValueError:
            out.append("v")
        except* KeyError:
            out.append("k")
    return out


@program()
def base_exception_group():
    try:
        raise BaseExceptionGroup("b", [KeyboardInterrupt(), ValueError()])
    except* KeyboardInterrupt as e:
        print(type(e).__name__)
