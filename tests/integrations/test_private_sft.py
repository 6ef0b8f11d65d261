import logging
import math

import pytest

pytest.importorskip("trl")
pytest.importorskip("datasets")
pytest.importorskip("peft")

import datasets
import torch
from peft import LoraConfig, PeftModel
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig

import privet
from privet.errors import InvalidArgumentError
from privet.integrations.trl import PrivateSFTTrainer

datasets.disable_progress_bars()
WORDS = ["<pad>", "<eos>", "<unk>", "user", "assistant", *(f"w{number}" for number in range(20))]
CHAT = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}assistant {% generation %}{{ message['content'] }} "
    "<eos>{% endgeneration %}{% else %}user {{ message['content'] }} {% endif %}{% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)
EXAMPLES = 24


def tokenizer():
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, chat_template=CHAT, **special)


def model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), num_hidden_layers=1, max_position_embeddings=32, **sizes))


def text(number, length):
    return " ".join(f"w{(number * 7 + position * 3) % 20}" for position in range(length))


def completions(number=EXAMPLES):
    rows = [{"prompt": text(one, 3) + " ", "completion": text(one + 1, 2 + one % 5), "who": one % 8} for one in range(number)]
    return datasets.Dataset.from_list(rows)


def chats(number=EXAMPLES):
    said = [
        [{"role": "user", "content": text(one, 3)}, {"role": "assistant", "content": text(one + 1, 2 + one % 5)}]
        for one in range(number)
    ]
    return datasets.Dataset.from_list([{"messages": messages} for messages in said])


def plan(steps=2, examples=EXAMPLES, **options):
    return privet.Plan(
        examples=examples, sampling=privet.sampling.Poisson(batch_size=6), steps=steps, clipping=privet.clipping.Flat(bound=0.7),
        delta=1e-3, noise=privet.noise.Gaussian(multiplier=1.3), **options,
    )  # fmt: skip


def trainer(folder, data=None, given=None, private_plan=None, made=None, **options):
    plain = {"max_length": 16, "learning_rate": 1e-2, "bf16": False, "gradient_checkpointing": False, "save_strategy": "no"}
    args = SFTConfig(str(folder), report_to=[], use_cpu=True, disable_tqdm=True, logging_steps=1, **plain | options)
    return PrivateSFTTrainer(
        model=model(), args=args, train_dataset=completions() if data is None else data, processing_class=made or tokenizer(),
        plan=plan() if private_plan is None else private_plan, **(given or {}),
    )  # fmt: skip


def words(host, row, trained=True):
    kept = [token for token, label in zip(row["input_ids"], row["labels"], strict=True) if (label != -100) == trained]
    return [WORDS[token] for token in kept]


def test_only_completions_are_trained(tmp_path):
    """The loss of an example is the mean over the tokens of its completion, as the model itself computes it."""
    host = trainer(tmp_path)
    assert words(host, host.train_dataset[0], trained=False) == text(0, 3).split()
    dataset, collate, loss_fn = host._private_parts()
    for row in [dataset[0], dataset[4]]:
        whole = {name: torch.tensor([row[name]]) for name in ("input_ids", "labels")}
        torch.testing.assert_close(loss_fn(host.model, collate([row]))[0], host.model(**whole).loss, rtol=1e-4, atol=1e-5)


def test_a_run_logs_epsilon_and_nothing_of_the_data(tmp_path):
    host = trainer(tmp_path, given={"eval_dataset": completions(4)}, eval_strategy="steps", eval_steps=2)
    before = {name: value.detach().clone() for name, value in host.model.named_parameters()}
    host.train()
    assert host.training.steps_spent == host.state.global_step == 2
    assert host.training.method == "ghost"
    assert any(not torch.equal(before[name], value) for name, value in host.model.named_parameters())
    steps = [line for line in host.state.log_history if not any(name.startswith("eval_") for name in line)]
    clock = {"train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos"}
    assert set().union(*steps) - clock == {"learning_rate", "epsilon", "delta", "epoch", "step"}
    assert [line["epsilon"] for line in steps[:2]] == [plan().epsilon(steps=step) for step in (1, 2)]
    (evaluated,) = [line for line in host.state.log_history if "eval_loss" in line]
    assert math.isfinite(evaluated["eval_loss"])
    assert host.state.num_input_tokens_seen == host.state.total_flos == 0


def test_chats_are_trained_on_what_the_assistant_says(tmp_path):
    host = trainer(tmp_path, chats(), assistant_only_loss=True)
    row = host.train_dataset[1]
    assert words(host, row, trained=False) == ["user", *text(1, 3).split(), "assistant"]
    assert words(host, row) == [*text(2, 3).split(), "<eos>"]


@pytest.mark.parametrize("options", [{}, {"bf16": True, "activation_checkpointing": True}], ids=["plain", "the defaults of TRL"])
def test_lora_is_trained_evaluated_saved_and_loaded(tmp_path, options):
    """TRL replaces `forward` of the base model, and the host that of the adapter for autocast; both stay in use."""
    config = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    host = trainer(tmp_path, given={"peft_config": config, "eval_dataset": completions(4)}, **options)
    patched = [name for name, module in host.model.named_modules() if "forward" in vars(module)]
    assert patched
    host.train()
    assert host.training.method == "ghost"
    assert set(patched) <= {name for name, module in host.model.named_modules() if "forward" in vars(module)}
    assert math.isfinite(host.evaluate()["eval_loss"])
    host.save_model(tmp_path / "adapter")
    again = PeftModel.from_pretrained(model(), tmp_path / "adapter").eval()
    trained = host.accelerator.unwrap_model(host.model, keep_fp32_wrapper=False).eval()
    inputs = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        assert torch.allclose(again(inputs).logits, trained(inputs).logits, atol=1e-6)
        assert not torch.allclose(again(inputs).logits, model().eval()(inputs).logits, atol=1e-6)


VOID = {
    "packing": True,
    "padding_free": True,
    "activation_offloading": True,
    "loss_type": "dft",
    "gradient_accumulation_steps": 2,
}


@pytest.mark.parametrize("name", VOID)
def test_what_would_void_the_guarantee_is_refused_by_name(tmp_path, name):
    with pytest.raises(Exception, match=rf"SFTConfig\.{name} is .*; it must be ") as error:
        trainer(tmp_path / "out", **{name: VOID[name]})
    assert isinstance(error.value, InvalidArgumentError)
    assert PrivateSFTTrainer.refused[name].reason in str(error.value)
    assert not (tmp_path / "out").exists()


ODD_CHATS = {
    "no answer": [{"role": "user", "content": "w1"}],
    "no message": [],
    "a role that the template lacks": [{"role": "patient", "content": "w7 w8"}],
    "no chat": None,
}


@pytest.mark.parametrize(("first", "later"), [("no answer", "no message"), ("a role that the template lacks", "no chat")])
def test_a_chat_that_cannot_be_prepared_keeps_its_place_without_labels(tmp_path, first, later):
    rows = list(chats(EXAMPLES - 1))
    rows[4] = {"messages": ODD_CHATS[later]}
    data = datasets.Dataset.from_list([{"messages": ODD_CHATS[first]}, *rows], features=chats(1).features)
    made = tokenizer()
    refuse = "{% if m['role'] == 'patient' %}{{ raise_exception(m['content']) }}{% endif %}"
    made.chat_template = "{% for m in messages %}" + refuse + "{% endfor %}" + CHAT
    host = trainer(tmp_path, data, assistant_only_loss=True, made=made)
    assert len(host.train_dataset) == EXAMPLES
    assert [set(row["labels"]) == {-100} for row in host.train_dataset] == [place in (0, 5) for place in range(EXAMPLES)]
    assert words(host, host.train_dataset[1]) == [*text(1, 2).split(), "<eos>"]
    host.train()
    assert host.training.steps_spent == 2


def test_texts_that_cannot_be_prepared_keep_their_place_and_their_user(tmp_path):
    """A prompt that fills the whole length leaves nothing to train on; another has no completion."""
    odd = [{"prompt": text(0, 20) + " ", "completion": "w1", "who": 7}, {"prompt": "w1 ", "completion": None, "who": 7}]
    data = datasets.Dataset.from_list([*completions(EXAMPLES - 2), *odd])
    try:
        host = trainer(tmp_path, data)
    except InvalidArgumentError as error:
        pytest.fail(f"a text has lost its place: {error}")
    assert [row["labels"] == [-100] * len(row["labels"]) for row in host.train_dataset] == [False] * 22 + [True] * 2
    assert host.train_dataset["who"][-2:] == [7, 7]


def test_nothing_is_logged_because_of_one_text(tmp_path, caplog):
    """A tokenizer warns of the first text that is longer than its model, with the length."""
    made = tokenizer()
    made.model_max_length = 9
    data = datasets.Dataset.from_list([*completions(EXAMPLES - 1), {"prompt": text(0, 13) + " ", "completion": "w1", "who": 0}])
    log = logging.getLogger("transformers")
    log.addHandler(caplog.handler)
    try:
        trainer(tmp_path, data, made=made)
    finally:
        log.removeHandler(caplog.handler)
    assert "longer than" not in caplog.text


def test_a_template_without_generation_is_refused_by_a_made_up_chat(tmp_path):
    made = tokenizer()
    made.chat_template = CHAT.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    with pytest.raises((RuntimeError, ValueError), match="generation"):
        trainer(tmp_path, chats(), assistant_only_loss=True, made=made)


def test_a_formatting_function_may_need_real_rows(tmp_path):
    def told(row):
        return f"w1 {WORDS[WORDS.index(row['asked'])]} {row['answer'][0]}"

    rows = [{"asked": f"w{one % 20}", "answer": [f"w{one % 7}"]} for one in range(EXAMPLES - 1)] + [{"asked": "w1", "answer": []}]
    host = trainer(tmp_path, datasets.Dataset.from_list(rows), given={"formatting_func": told})
    assert words(host, host.train_dataset[8]) == ["w1", "w8", "w1", "<eos>"]
    assert set(host.train_dataset[EXAMPLES - 1]["labels"]) == {-100}


def test_rows_that_are_tokens_already_stay_as_they_are_and_texts_are_padded_to_the_longest_that_is_kept(tmp_path):
    """A model may have as many positions as `max_length`, which need not be a multiple of 16."""
    rows = [{"input_ids": [5, 6, 7 + one % 3], "labels": [-100, 6, 7 + one % 3]} for one in range(EXAMPLES)]
    for options in ({}, {"dataset_kwargs": {"skip_prepare_dataset": True}}):
        assert list(trainer(tmp_path, datasets.Dataset.from_list(rows), **options).train_dataset) == rows
    host = trainer(tmp_path, datasets.Dataset.from_list([{"text": text(one, 19)} for one in range(EXAMPLES)]), max_length=19)
    dataset, collate, _ = host._private_parts()
    assert collate([dataset[0]])["input_ids"].shape == (1, 19)


def test_a_length_that_the_model_cannot_take_is_refused_by_a_made_up_text(tmp_path):
    """Longer texts would contribute nothing, without a word."""
    data = datasets.Dataset.from_list([{"text": text(one, 5)} for one in range(EXAMPLES)])
    host = trainer(tmp_path, data, max_length=33)
    host.model = GPT2LMHeadModel(GPT2Config(vocab_size=len(WORDS), n_positions=32, n_embd=16, n_layer=1, n_head=2))
    with pytest.raises(InvalidArgumentError, match=r"SFTConfig\.max_length is 33; .*IndexError.*number of the model's positions"):
        host._check_padding()


def test_private_text_is_left_out_of_the_warnings_of_trl(tmp_path, caplog, monkeypatch):
    """A prompt whose last token joins the completion's first is quoted by TRL; of data for evaluation, only without the text."""
    log = logging.getLogger("trl.trainer.sft_trainer")
    monkeypatch.setattr(log, "propagate", True)
    with caplog.at_level("WARNING", logger=log.name):
        log.addHandler(caplog.handler)
        trainer(tmp_path, datasets.Dataset.from_list([{"prompt": "w1 w17", "completion": "w2"}] * EXAMPLES))
        assert "prefix" not in caplog.text
        public = datasets.Dataset.from_list([{"prompt": "w1 w16", "completion": "w2"}])
        trainer(tmp_path, given={"eval_dataset": public})
        log.removeHandler(caplog.handler)
    assert "is not a prefix" in caplog.text
    assert "w16" not in caplog.text


def users_plan(users, **options):
    return plan(examples=users, unit="one user", **options)


def test_users_are_the_unit(tmp_path):
    """Eight people wrote three examples each; the loss of a person is the mean over theirs."""
    host = trainer(tmp_path, given={"user_column": "who", "user_cap": 3}, private_plan=users_plan(8, steps=3))
    entries, _, loss_fn = host._private_parts()
    assert (len(entries), entries.privacy_unit) == (8, "one user")
    content, mask = entries[2]
    assert content["input_ids"].shape == (3, 16)
    assert mask.tolist() == [True] * 3
    batch = {name: value[None] for name, value in content.items()}, mask[None]
    rows = [row for row in host.train_dataset if row["who"] == 2]
    alone = [host.model(input_ids=torch.tensor([row["input_ids"]]), labels=torch.tensor([row["labels"]])).loss for row in rows]
    torch.testing.assert_close(loss_fn(host.model, batch)[0], torch.stack(alone).mean(), rtol=1e-4, atol=1e-5)
    host.train()
    assert host.training.steps_spent == 3
    assert "for one user" in str(host.training.guarantee())


def test_users_stay_with_their_rows_when_trl_shuffles(tmp_path):
    host = trainer(tmp_path, shuffle_dataset=True, given={"user_column": "who", "user_cap": 3}, private_plan=users_plan(8))
    entries, _, _ = host._private_parts()
    content, _ = entries[5]
    theirs = {tuple(row["input_ids"]) for row in host.train_dataset if row["who"] == 5}
    held = {tuple(tokens[tokens != 0].tolist()) for tokens in content["input_ids"]}
    assert held == theirs
    assert len(theirs) == 3


@pytest.mark.parametrize(("given", "private_plan", "options", "named"), [
    ({"user_column": "whose"}, users_plan(8), {}, "user_column is 'whose'"),
    ({"user_cap": None}, users_plan(8), {}, "user_cap is None"),
    ({"user_cap": 0}, users_plan(8), {}, "user_cap is 0"),
    ({}, users_plan(8), {"max_length": None}, r"SFTConfig\.max_length is None"),
    ({"user_column": None, "user_cap": None}, users_plan(24), {}, "entries are of 'one example'"),
    ({}, plan(examples=8), {}, "entries are of 'one user'"),
    ({}, users_plan(9), {}, "'8 users'; it must be of exactly the plan's size, 9"),
])  # fmt: skip
def test_users_need_a_column_a_cap_a_public_length_and_a_plan_for_them(tmp_path, given, private_plan, options, named):
    with pytest.raises(InvalidArgumentError, match=named):
        trainer(tmp_path, given={"user_column": "who", "user_cap": 3, **given}, private_plan=private_plan, **options)
