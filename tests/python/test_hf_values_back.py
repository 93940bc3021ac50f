"""map=gguf: a checkpoint under the names that a converter would give, where one tensor is one tensor."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from hf_golden import architectures, families, model

CLASSES = {  # architectures and model_type of config.json
    "llama": ("LlamaForCausalLM", "llama"),
    "mixtral": ("MixtralForCausalLM", "mixtral"),
    "granite": ("GraniteForCausalLM", "granite"),
    "smollm3": ("SmolLM3ForCausalLM", "smollm3"),
    "arcee": ("ArceeForCausalLM", "arcee"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "qwen2moe": ("Qwen2MoeForCausalLM", "qwen2_moe"),
    "qwen3moe": ("Qwen3MoeForCausalLM", "qwen3_moe"),
    "olmoe": ("OlmoeForCausalLM", "olmoe"),
    "gemma": ("GemmaForCausalLM", "gemma"),
    "gemma2": ("Gemma2ForCausalLM", "gemma2"),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
    "phi2": ("PhiForCausalLM", "phi"),
    "phi3": ("Phi3ForCausalLM", "phi3"),
    "phimoe": ("PhimoeForCausalLM", "phimoe"),
    "starcoder2": ("Starcoder2ForCausalLM", "starcoder2"),
    "stablelm": ("StableLmForCausalLM", "stablelm"),
    "command-r": ("CohereForCausalLM", "cohere"),
    "cohere2": ("Cohere2ForCausalLM", "cohere2"),
    "olmo2": ("Olmo2ForCausalLM", "olmo2"),
    "nemotron": ("NemotronForCausalLM", "nemotron"),
    "lfm2": ("Lfm2ForCausalLM", "lfm2"),
    "gpt2": ("GPT2LMHeadModel", "gpt2"),
    "starcoder": ("GPTBigCodeForCausalLM", "gpt_bigcode"),
    "gptneox": ("GPTNeoXForCausalLM", "gpt_neox"),
    "falcon-7b": ("FalconForCausalLM", "falcon"),
    "falcon-40b": ("FalconForCausalLM", "falcon"),
    "bloom": ("BloomForCausalLM", "bloom"),
    "mpt": ("MptForCausalLM", "mpt"),
    "bert": ("BertModel", "bert"),
    "nomic-bert": ("NomicBertModel", "nomic_bert"),
    "mamba": ("MambaForCausalLM", "mamba"),
    "mamba2": ("Mamba2ForCausalLM", "mamba2"),
    "t5": ("T5ForConditionalGeneration", "t5"),
    "deepseek2-old": ("DeepseekV2ForCausalLM", "deepseek_v2"),
    "gpt-oss": ("GptOssForCausalLM", "gpt_oss"),
}


def test_every_architecture_has_a_class():
    assert {families()[name].arch for name in CLASSES} == architectures()


@pytest.mark.parametrize("name", CLASSES)
def test_names_for_gguf_are_those_of_the_reference_package(weightfs, tmp_path, name):
    made = model(name, "F32")
    save_file({key: np.ascontiguousarray(value) for key, value in made.checkpoint.items()}, tmp_path / "model.safetensors", {"format": "pt"})
    architecture, kind = CLASSES[name]
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture], "model_type": kind, "num_hidden_layers": 2}))
    pairs = weightfs.run("map", tmp_path, "--map", "gguf", "--json").json()["pairs"]
    assert set(pairs) == set(made.checkpoint)
    one_to_one = {}
    for tensor, shown in made.shown.items():
        one_to_one.setdefault(shown.sources, []).append(tensor)
    for tensor, target in pairs.items():
        sources = made.shown[tensor].sources if tensor in made.shown else ()
        alone = len(sources) == 1 and one_to_one[sources] == [tensor]
        if alone and ".experts." not in tensor:
            assert target == sources[0], f"{tensor} is {target}, the gguf package says {sources[0]}"
        else:
            assert target in (tensor, *(sources if alone else ())), f"{tensor} is {target}, and nothing certain is known"
