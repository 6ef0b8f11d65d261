"""Faults in what keeps examples apart where torch cannot batch a function, or calls code below vmap."""

from mutant import Mutant, among


def apart(*programs: str) -> tuple[str, ...]:
    return among("test_apart", *(f"test_an_example_has_the_gradient_that_it_has_alone[{program}-auto]" for program in programs))


def hidden(program: str) -> tuple[str, ...]:
    return among("test_operators", f"test_what_torch_hides_writes_to_no_parameter[{program}]")


MUTANTS = [
    Mutant(
        "what a function writes to may get another size",
        "ExampleCalls._one_by_one",
        "if list(map(_read_layout, rows)) != before:",
        "if False:",
        apart("out_that_shrinks"),
    ),
    Mutant(
        "what is written to a row is lost",
        "ExampleCalls._one_by_one",
        "tensor[position].copy_(row)",
        "pass",
        apart("out_that_is_read"),
    ),
    Mutant(
        "views of an argument are stacked", "_find_argument", "if data_pointer(result) in places:", "if False:", apart("moveaxis")
    ),
    Mutant("classes of the user's see all examples", "_inspect", "foreign.append(x)", "pass", apart("operators_of_a_class")),
    Mutant(
        "classes are where they say that they are",
        "_is_from",
        "and getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind",
        "",
        apart("operators_of_a_forged_class"),
    ),
    Mutant(
        "classes of the user's see all clients",
        "SharedCalls.call",
        "isinstance(x, Tensor) and has_own_operators(type(x))",
        "False",
        among("test_apart", "test_clients_are_kept_apart_from_the_operators_of_a_class"),
    ),
    Mutant(
        "modules and functions of torch may be hooks", "_is_hook_of_torch", "return False", "return True", apart("hook_of_a_hook")
    ),
    Mutant(
        "any function may be a hook",
        "_is_hook_of_torch",
        "any(hook.__globals__ is vars(each) for each in _WITH_HOOKS)",
        "True",
        apart("imitated_hook"),
    ),
    Mutant(
        "what torch does not compile is torch's",
        "_is_hook_of_torch",
        "bool(inner) and all(map(_is_hook_of_torch, inner))",
        "True",
        apart("wrapped_hook"),
    ),
    Mutant(
        "tensors of all examples are unwrapped",
        "_refuse_unwrapping",
        'raise UntraceableError("the model or loss asks for the tensor of all examples")',
        "pass",
        apart("unwrapped"),
    ),
    Mutant("0.0 is −0.0", "_to_key", "if isinstance(value, float | complex):", "if False:", apart("negative_zero")),
    Mutant(
        "what is written to is not followed",
        "Recorder.follow",
        "and self._unfollowed[id(tensor)][1] == tensor._version",
        "",
        among("test_apart", "test_a_tensor_that_is_written_to_is_followed_from_then_on"),
    ),
    Mutant(
        "copies are written to in place of views",
        "ExampleCalls.call",
        "if not self._copied.keys().isdisjoint(_find_memory(x) for x in written):",
        "if False:",
        apart("view_by_an_index"),
    ),
    Mutant(
        "a script writes to what it is given",
        "GuardedCalls.check_script",
        "raise WriteError(_WRITTEN)",
        "pass",
        hidden("a script's argument-False-loop"),
    ),
    Mutant(
        "a script writes to what it holds",
        "find_written_by_script",
        "(args, options, held)",
        "(args, options)",
        hidden("a script's constant-False-loop"),
    ),
    Mutant(
        "the mode shows the check a copy",
        "_watch_function.call",
        "with torch._C.DisableTorchFunction():",
        "if True:",
        hidden("a script's argument-False-loop"),
    ),
    Mutant(
        "branches of scripts are not read",
        "_iter_nodes",
        "yield from _iter_nodes(inner)",
        "pass",
        hidden("a script's argument-False-loop"),
    ),
    Mutant(
        "scripts compute with all examples",
        "SharedCalls.check_script",
        "raise self._failure",
        "self._failure = None",
        among("test_operators", "test_a_script_is_not_tried_again_for_all_examples_once_its_error_is_caught"),
    ),
    Mutant(
        "methods of scripts run",
        "_watch_method.call",
        "raise UnsupportedModelError(SCRIPTED)",
        "pass",
        among("test_operators", "test_methods_of_scripted_modules_are_refused_wherever_they_are_held"),
    ),
    Mutant(
        "functions of operators are not watched",
        "call_operator",
        "definition._backend_fns[device] = _watch_where_it_runs(kernel)",
        "pass",
        hidden("an operator's closure-False-loop"),
    ),
    Mutant(
        "contexts of operators are not watched",
        "call_operator",
        "definition._setup_context_fn = _watch_where_it_runs(definition._setup_context_fn)",
        "pass",
        hidden("an operator's context-False-loop"),
    ),
    Mutant(
        "both branches are the first",
        "called_back._choose",
        "true_fn if pred else false_fn",
        "true_fn",
        among("test_operators", "test_control_flow_of_torch_has_the_gradients_of_control_flow_of_python[cond-ghost]"),
    ),
    Mutant(
        "functions of operators may use parameters",
        "called_back.call_higher_order",
        "if any(map(_asks_for_gradients, _find_used(functions))):",
        "if False:",
        among("test_operators", "test_operators_whose_functions_use_parameters_are_refused"),
    ),
    Mutant(
        "only what functions name themselves is looked for",
        "_find_used",
        "used += [",
        "_ = [",
        among("test_operators", "test_operators_whose_functions_use_parameters_are_refused"),
    ),
    Mutant(
        "operators compute with all clients",
        "SharedCalls.call",
        "if is_foreign(func) and any(map(is_wrapped, leaves)):",
        "if False:",
        among("test_operators", "test_the_batching_rule_of_an_operator_sees_no_clients"),
    ),
]
