"""Frozen bases in 8 or 4 bits under float32 adapters: torchao's and bitsandbytes' weights, on a CPU."""

from functools import partial

import oracle
import pytest
import torch
from cases import With
from recording import cover, shift
from torch import nn
from torch.nn import functional as F

import privet
from privet.clipping import Flat
from privet.gradients import per_example_norms
from privet.gradients.core.examples import split_batch
from privet.gradients.probe.probe import probe

pytestmark = pytest.mark.filterwarnings("ignore")
WIDTH, WORDS, CLASSES, EXAMPLES = 64, 5, 4, 4


def adapted():
    """Return a frozen layer and a low-rank adapter."""
    layers = {"base": nn.Linear(WIDTH, WIDTH).requires_grad_(False), "down": nn.Linear(WIDTH, 2, bias=False)}
    return With(lambda m, x: m.base(x) + m.up(m.down(x)), **layers, up=nn.Linear(2, WIDTH, bias=False))


def bitsandbytes(layer, kind, **options):
    made = getattr(pytest.importorskip("bitsandbytes").nn, kind)(WIDTH, WIDTH, **options)
    made.load_state_dict(layer.state_dict())
    return made.to("cpu").requires_grad_(False)


def torchao_int8(layer):
    torchao = pytest.importorskip("torchao.quantization")
    torchao.quantize_(layer, torchao.Int8WeightOnlyConfig())
    return layer


NF4 = {"kind": "Linear4bit", "quant_type": "nf4", "compute_dtype": torch.float32}
FAST = {
    "torchao_int8": torchao_int8,
    "bitsandbytes_4bit_scales_in_8": partial(bitsandbytes, **NF4, compress_statistics=True),
    "bitsandbytes_4bit_scales_in_32": partial(bitsandbytes, **NF4, compress_statistics=False),
}
ALL = FAST | {"bitsandbytes_8bit": partial(bitsandbytes, kind="Linear8bitLt", has_fp16_weights=False)}


def build(name):
    torch.manual_seed(0)
    model = nn.Sequential(adapted(), nn.Tanh(), adapted(), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
    for part in (model[0], model[2]):
        part.base = ALL[name](part.base)
    return model.train()


def loss_fn(model, batch):
    return F.cross_entropy(model(batch[0]).mean(1), batch[1], reduction="none")


def batch_of(examples):
    generator = torch.Generator().manual_seed(2)
    labels = torch.randint(CLASSES, (examples,), generator=generator)
    return torch.randn(examples, WORDS, WIDTH, generator=generator), labels


@pytest.mark.parametrize("quantise", ALL)
def test_gradients_are_those_of_plain_autograd(quantise):
    model, batch = build(quantise), batch_of(EXAMPLES)
    weight = model[0].base.weight
    assert weight.dtype in (torch.uint8, torch.int8) or type(weight) is not nn.Parameter  # it is quantised indeed
    expected = oracle.plain_gradients(build(quantise), loss_fn, batch)
    assert len(expected) == 6
    covered = cover(model, loss_fn, batch)
    assert covered.looped == (0 if quantise in FAST else EXAMPLES)
    assert probe(model, loss_fn, [split_batch(batch)], public=True) == ("ghost" if quantise in FAST else "loop")
    for name, gradient in expected.items():
        assert float(gradient.norm()) > 0
        torch.testing.assert_close(covered.gradients[name].double(), gradient, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("quantise", ALL)
@pytest.mark.parametrize("bound", [0.03, 0.9])
def test_no_example_moves_the_sum_by_more_than_the_bound(quantise, bound):
    model, batch = build(quantise), batch_of(EXAMPLES)
    moved = [shift(model, loss_fn, batch, Flat(bound), position) for position in range(EXAMPLES)]
    assert all(each <= bound * (1 + 1e-5) for each in moved)
    assert max(moved) >= 0.99 * min(bound, float(per_example_norms(model, loss_fn, batch).max()))


@pytest.mark.parametrize("quantise", ALL)
def test_adapters_train_and_the_base_stays(quantise):
    model = build(quantise)

    def base():
        weights = [layer.base.weight for layer in (model[0], model[2])]
        return [weight.dequantize() if hasattr(weight, "qdata") else weight.data.clone() for weight in weights]

    before = base()
    data = torch.utils.data.TensorDataset(*batch_of(40))
    plan = privet.Plan(
        examples=40, sampling=privet.sampling.Poisson(10), steps=3, delta=1e-3, clipping=Flat(0.3),
        noise=privet.noise.Gaussian(0.7),
    )  # fmt: skip
    trained = [p for p in model.parameters() if p.requires_grad]
    start = [p.detach().clone() for p in trained]
    privet.Training(plan, model, loss_fn, torch.optim.SGD(trained, lr=0.1), data).run()
    assert all(not torch.equal(p, old) for p, old in zip(trained, start, strict=True))
    assert all(map(torch.equal, base(), before))


def test_language_models_with_adapters_of_peft_over_4_bits_take_one_pass(tmp_path):
    """QLoRA as people write it."""
    pytest.importorskip("bitsandbytes")
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    sizes = {"vocab_size": 29, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).save_pretrained(tmp_path)
    config = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    base = transformers.LlamaForCausalLM.from_pretrained(tmp_path, quantization_config=config, device_map="cpu")
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"])).train()
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)

    def next_words(model, batch):
        logits = model(input_ids=batch).logits[:, :-1]
        return F.cross_entropy(logits.transpose(1, 2), batch[:, 1:], reduction="none").mean(1)

    words = torch.randint(29, (3, 7))
    assert probe(model, next_words, [split_batch(words)], public=True) == "ghost"
    assert cover(model, next_words, words).looped == 0
