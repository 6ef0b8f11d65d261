"""Faults in what keeps examples apart where torch cannot batch a function, or calls code below vmap."""

from mutant import Mutant, among


def apart(*programs: str) -> tuple[str, ...]:
    return among("test_apart", *(f"test_an_example_has_the_gradient_that_it_has_alone[{program}]" for program in programs))


def hidden(program: str) -> tuple[str, ...]:
    return among("test_operators", f"test_what_torch_hides_writes_to_no_parameter[{program}]")


def asked(program: str) -> tuple[str, ...]:
    return among("test_called_back", f"test_what_torch_asks_an_argument_for_is_answered_for_one_example[{program}]")


MUTANTS = [
    Mutant("views of an argument are stacked", "_shares_memory",
           "return bool(result.numel()) and any(", "return False and any(", apart("moveaxis")),
    Mutant("classes of the user's see all examples", "_inspect", "foreign.append(x)", "pass", apart("operators_of_a_class")),
    Mutant("classes of the user's see all clients", "SharedCalls.call", "isinstance(x, Tensor) and has_own_operators(type(x))",
           "False", among("test_apart", "test_clients_are_kept_apart_from_the_operators_of_a_class")),
    Mutant("what is written to is not followed", "Recorder.follow", "and self._unfollowed[id(tensor)][1] == tensor._version", "",
           among("test_apart", "test_a_tensor_that_is_written_to_is_followed_from_then_on")),
    Mutant("scripts compute with all examples", "SharedCalls.give_up", "raise self._failure", "self._failure = None",
           among("test_operators", "test_a_script_is_not_tried_again_for_all_examples_once_its_error_is_caught")),
    Mutant("both branches are the first", "called_back._choose", "true_fn if pred else false_fn", "true_fn",
           among("test_operators", "test_control_flow_of_torch_has_the_gradients_of_control_flow_of_python[cond-ghost]")),
    Mutant("functions of operators may use parameters", "called_back.call_higher_order",
           "if any(tensor.requires_grad for function in functions for tensor in _list_used(function)):", "if False:",
           among("test_operators", "test_operators_whose_functions_use_parameters_are_refused")),
    Mutant("only what functions name themselves is looked for", "_list_used", "[cell.cell_contents for cell in cells]", "[]",
           among("test_operators", "test_operators_whose_functions_use_parameters_are_refused")),
    Mutant("operators compute with all clients", "SharedCalls.call", "if is_foreign(func) and any(map(is_wrapped, leaves)):",
           "if False:", among("test_operators", "test_the_batching_rule_of_an_operator_sees_no_clients")),
]  # fmt: skip
