import signal
import sys
import textwrap

import pytest

from tracelab.base.errors import UsageError
from tracelab.record.hooks import MissingFunctionError, StepFunction, run_program
from tracelab.system.processes import terminable


@pytest.fixture(autouse=True)
def _process_stays_as_it_was(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tracelab"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.fixture
def ended_steps():
    """One entry for each end of a step."""
    return []


@pytest.fixture
def run(tmp_path, ended_steps):
    def run(text, *arguments, step=None):
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(text))
        function = StepFunction(step, lambda: ended_steps.append(step)) if step else None
        return run_program(str(script), arguments, as_module=False, step=function)

    return run


# How a script runs.


def test_script_runs_as_main_with_its_arguments(run, capsys):
    code = run(
        """
        import sys
        print(__name__, sys.argv[1:], __file__.endswith("script.py"))
        """,
        "--lr",
        "0.1",
    )
    assert code == 0
    assert capsys.readouterr().out == "__main__ ['--lr', '0.1'] True\n"


def test_script_finds_what_stands_beside_it(run, tmp_path, capsys):
    (tmp_path / "beside_the_script.py").write_text("VALUE = 3")
    assert run("from beside_the_script import VALUE; print(VALUE)") == 0
    assert capsys.readouterr().out == "3\n"


def test_what_is_defined_in_the_script_can_be_pickled(run, capsys):
    assert run("import pickle\nclass A: pass\nprint(len(pickle.dumps(A())) > 0)") == 0
    assert capsys.readouterr().out == "True\n"


@pytest.mark.parametrize(
    ("text", "expected", "message"),
    [
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('no data')", 1, "no data\n"),
        ("raise KeyboardInterrupt", 130, ""),
    ],
)
def test_exit_code_is_the_scripts(run, capsys, text, expected, message):
    assert run(text) == expected
    assert capsys.readouterr().err == message


def test_a_launchers_end_is_an_exit(run, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tracelab"])
    before = signal.getsignal(signal.SIGTERM)
    with terminable():
        assert run("import os, signal; os.kill(os.getpid(), signal.SIGTERM); print('on')") == 143
    assert signal.getsignal(signal.SIGTERM) == before


def test_program_may_handle_its_end_by_itself(run, capsys):
    with terminable():
        code = run("""
            import os, signal
            signal.signal(signal.SIGTERM, lambda *_: print("mine"))
            os.kill(os.getpid(), signal.SIGTERM)
            """)
    assert code == 0
    assert capsys.readouterr().out == "mine\n"


def test_exception_is_printed_from_the_scripts_first_line_on(run, capsys):
    assert run("def f():\n    raise ValueError('boom')\nf()") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "script.py" in lines[1]
    assert lines[-1] == "ValueError: boom"


def test_syntax_error_is_the_scripts_own(run, capsys):
    assert run("def f(:") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith('script.py", line 1')  # as Python prints it, without a traceback
    assert lines[-1].startswith("SyntaxError: ")


def test_module_that_is_not_there_is_told_without_the_frames_of_the_runner(capsys):
    assert run_program("no_such_module_of_mine", [], as_module=True) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("ImportError: ")
    assert line.endswith("no_such_module_of_mine")


def test_script_that_is_not_there_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        run_program(str(tmp_path / "none.py"), [], as_module=False)


def test_module_runs_as_main(tmp_path, capsys):
    (tmp_path / "a_module_of_mine.py").write_text("import sys; print(__name__, sys.argv[1:])")
    sys.path.insert(0, str(tmp_path))
    assert run_program("a_module_of_mine", ["x"], as_module=True) == 0
    assert capsys.readouterr().out == "__main__ ['x']\n"


# What a step is.


def test_function_of_the_script_ends_a_step(run, ended_steps):
    text = """
        def step(i):
            '''Its own.'''
            return i
        values = [step(i) for i in range(3)]
        assert values == [0, 1, 2] and step.__doc__ == "Its own."
        """
    assert run(text, step="step") == 0
    assert ended_steps == ["step"] * 3


def test_method_of_the_script_ends_a_step(run, ended_steps):
    text = """
        def step(): pass
        class Trainer:
            def step(self): pass
        step()
        Trainer().step()
        """
    assert run(text, step="Trainer.step") == 0
    assert ended_steps == ["Trainer.step"]


@pytest.mark.parametrize(
    ("name", "kind"), [("T.s", "staticmethod"), ("T.c", "classmethod"), ("T.p", "property")]
)
def test_any_kind_of_method_ends_a_step(run, ended_steps, name, kind):
    text = f"""
        class T:
            @{kind}
            def {name[-1]}(self=None): return 5
        member = getattr(T(), {name[-1]!r})
        assert (member if member == 5 else member()) == 5
        """
    assert run(text, step=name) == 0
    assert ended_steps == [name]


def test_coroutines_and_generators_end_a_step_when_they_are_done(run, ended_steps):
    text = """
        import asyncio, sys
        if len(sys.argv) > 1:
            async def work(number):
                await asyncio.sleep(0)
                return number
            assert asyncio.run(work(3)) == 3
        else:
            def work(number):
                yield number
                yield number + 1
            numbers = work(3)
            assert next(numbers) == 3
            assert list(numbers) == [4]
        """
    assert run(text, "async", step="work") == 0
    assert ended_steps == ["work"]
    assert run(text, step="work") == 0
    assert ended_steps == ["work", "work"]


def test_function_of_a_module_beside_the_script_ends_a_step(run, ended_steps, tmp_path):
    (tmp_path / "helper_of_the_script.py").write_text(
        "class H:\n    @staticmethod\n    def st(x): return x\n"
        "    @classmethod\n    def cl(cls): return cls.__name__\n"
    )
    static, of_class = "helper_of_the_script:H.st", "helper_of_the_script:H.cl"
    text = "from helper_of_the_script import H; assert (H.st(2), H().st(3), H.cl()) == (2, 3, 'H')"
    assert run(text, step=static) == 0
    assert ended_steps == [static, static]
    # What is hooked stays hooked.
    assert run(text, step=of_class) == 0
    assert ended_steps[2:] == [static, static, of_class]


def test_the_scripts_folder_is_put_on_the_path_once(run, tmp_path):
    # GIVEN a module with the step, which puts another folder first
    (tmp_path / "changes_the_path.py").write_text(
        "import sys\nsys.path.insert(0, '/elsewhere')\ndef step(): pass\n"
    )
    text = f"""
        import sys
        assert sys.path[:2] == ["/elsewhere", {str(tmp_path)!r}]
        assert sys.path.count({str(tmp_path)!r}) == 1
        """
    assert run(text, step="changes_the_path:step") == 0


def test_annotations_are_what_the_script_wrote(run, capsys):
    assert run("class A: x: int = 1\nprint(A.__annotations__['x'] is int)") == 0
    assert capsys.readouterr().out == "True\n"


def test_exception_goes_through_the_scripts_own_hook(run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    assert run("import sys; sys.excepthook = lambda *_: print('mine'); raise ValueError") == 1
    assert capsys.readouterr().out == "mine\n"


def test_function_of_a_module_ends_a_step(run, ended_steps, monkeypatch):
    import textwrap as module

    monkeypatch.setattr(module, "dedent", module.dedent)
    assert run("import textwrap; textwrap.dedent('x')", step="textwrap:dedent") == 0
    assert ended_steps == ["textwrap:dedent"]


def test_function_that_no_module_has_is_told_before_the_script_runs(run, capsys):
    with pytest.raises(MissingFunctionError, match=r"^textwrap:no_such: "):
        run("print('it runs')", step="textwrap:no_such")
    assert capsys.readouterr().out == ""


def test_name_that_the_script_does_not_define_is_a_regions(run, ended_steps):
    assert run("print('no such function')", step="generate") == 0
    assert ended_steps == []
